#include "server/http/exchange.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

struct Parts {
  int wakes = 0, gone = 0;
  std::shared_ptr<HttpExchangeState> state =
      std::make_shared<HttpExchangeState>(100, [this] { ++wakes; });
  std::shared_ptr<HttpExchange> exchange = make_http_exchange(state);
};

TEST(HttpExchange, WakesTheConnectionOnceForWhatItHasNotTaken) {
  Parts parts;
  parts.exchange->start_stream(200, {{"a", "b"}});
  parts.exchange->write("one");
  parts.exchange->write("two");
  EXPECT_EQ(parts.wakes, 1);
  EXPECT_EQ(parts.exchange->pending_bytes(), 6u);
  const HttpOutbox outbox = parts.state->take();
  EXPECT_EQ(outbox.stream->first, 200);
  EXPECT_EQ(outbox.bytes, "onetwo");
  EXPECT_FALSE(outbox.finished);
  EXPECT_EQ(parts.exchange->pending_bytes(), 6u) << "taken by the connection is not taken by the network";
  parts.state->set_unsent(2);
  parts.exchange->write("three");
  EXPECT_EQ(parts.wakes, 2);
  EXPECT_EQ(parts.exchange->pending_bytes(), 7u);
  parts.exchange->finish();
  parts.exchange->write("after the end");
  EXPECT_EQ(parts.state->take().bytes, "three");
  EXPECT_TRUE(parts.state->complete());
}

TEST(HttpExchange, GivesUpBeyondItsLimit) {
  Parts parts;
  parts.exchange->on_gone([&] { ++parts.gone; });
  parts.exchange->start_stream(200, {});
  parts.exchange->write(std::string(60, 'x'));
  EXPECT_FALSE(parts.state->take().too_slow);
  parts.state->set_unsent(60);
  parts.exchange->write(std::string(40, 'x'));
  EXPECT_FALSE(parts.exchange->gone());
  parts.exchange->write("x");
  EXPECT_TRUE(parts.exchange->gone());
  parts.exchange->finish();
  EXPECT_TRUE(parts.state->take().too_slow);
  EXPECT_EQ(parts.gone, 0) << "it is the connection's thread that calls";
  parts.state->leave();
  parts.state->leave();
  EXPECT_EQ(parts.gone, 1);
}

TEST(HttpExchange, SaysThatItWasDropped) {
  Parts before, within, after;
  before.exchange.reset();
  EXPECT_TRUE(before.state->take().dropped);
  within.exchange->start_stream(200, {});
  within.exchange.reset();
  EXPECT_TRUE(within.state->take().aborted);
  after.exchange->respond({200, {}, "body"});
  after.exchange.reset();
  const HttpOutbox outbox = after.state->take();
  EXPECT_FALSE(outbox.dropped || outbox.aborted);
  EXPECT_EQ(outbox.response->body, "body");
}

TEST(HttpExchange, DoesNotCallBackAfterACompleteAnswer) {
  Parts parts;
  parts.exchange->on_gone([&] { ++parts.gone; });
  parts.exchange->respond({200, {}, ""});
  parts.exchange->respond({500, {}, "too late"});
  parts.state->leave();
  EXPECT_EQ(parts.gone, 0);
}

TEST(HttpExchangeDeathTest, EndsTheProgramForAWrongOrder) {
  Parts parts;
  EXPECT_DEATH(parts.exchange->write("x"), "before start_stream");
  EXPECT_DEATH(parts.exchange->finish(), "before start_stream");
  parts.exchange->start_stream(200, {});
  EXPECT_DEATH(parts.exchange->respond({200, {}, ""}), "in a stream");
  EXPECT_DEATH(parts.exchange->start_stream(200, {}), "already");
}

}  // namespace
}  // namespace fathom
