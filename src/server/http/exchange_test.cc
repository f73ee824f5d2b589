#include "server/http/exchange.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

struct Parts {
  int wakes = 0, gone = 0;
  std::shared_ptr<HttpExchangeState> state =
      std::make_shared<HttpExchangeState>(160, [this] { ++wakes; });
  std::shared_ptr<HttpExchange> exchange = make_http_exchange(state);
};

TEST(HttpExchange, WakesTheConnectionOnceForWhatItHasNotTaken) {
  Parts parts;
  parts.exchange->start_stream(200, {{"a", "b"}});
  parts.exchange->write("one");
  parts.exchange->write("two");
  EXPECT_EQ(parts.wakes, 1);
  EXPECT_EQ(parts.exchange->pending_bytes(), 6u);
  const HttpOutbox outbox = parts.state->take(0);
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
  EXPECT_EQ(parts.state->take(0).bytes, "three");
  EXPECT_TRUE(parts.state->complete());
}

TEST(HttpExchange, GivesUpBeyondItsLimit) {
  Parts parts;
  parts.exchange->on_gone([&] { ++parts.gone; });
  parts.exchange->start_stream(200, {});
  for (int piece = 0; piece < 16; ++piece) parts.exchange->write(std::string(10, 'x'));
  EXPECT_FALSE(parts.exchange->gone());
  parts.exchange->write("x");
  EXPECT_TRUE(parts.exchange->gone());
  parts.exchange->finish();
  EXPECT_TRUE(parts.state->take(0).too_slow);
  EXPECT_EQ(parts.gone, 0) << "it is the connection's thread that calls";
  parts.state->leave();
  parts.state->leave();
  EXPECT_EQ(parts.gone, 1);
}

TEST(HttpExchange, GivesAConnectionThatIsFullNoMore) {
  Parts parts;
  parts.exchange->start_stream(200, {});
  parts.exchange->write("one");
  EXPECT_EQ(parts.state->take(10).bytes, "") << "a sixteenth of what a client may owe";
  EXPECT_FALSE(parts.state->has_more());
  EXPECT_EQ(parts.exchange->pending_bytes(), 13u);
  parts.state->set_unsent(9);
  EXPECT_TRUE(parts.state->has_more());
  EXPECT_EQ(parts.state->take(9).bytes, "one");
  EXPECT_FALSE(parts.state->has_more());
}

// However much comes at a moment, and whatever follows it.
TEST(HttpExchange, CountsNothingThatIsLargeByItself) {
  Parts parts;
  parts.exchange->start_stream(200, {});
  const std::string large(1000, 'x');
  parts.exchange->write(large);
  parts.exchange->write("one");
  parts.exchange->write(large);
  parts.exchange->write(std::string(10, 'y'));
  EXPECT_FALSE(parts.exchange->gone());
  EXPECT_EQ(parts.exchange->pending_bytes(), 2013u);
  EXPECT_EQ(parts.state->take(0).bytes, large);
  EXPECT_EQ(parts.state->take(0).bytes, "one" + large);
  EXPECT_EQ(parts.state->take(0).bytes, std::string(10, 'y'));
  EXPECT_EQ(parts.exchange->pending_bytes(), 10u);
}

TEST(HttpExchange, MakesTheBytesOfASourceAsTheyAreTaken) {
  Parts parts;
  int made = 0;
  const auto held = std::make_shared<int>(0);
  parts.exchange->start_stream(200, {});
  parts.exchange->write("before ");
  parts.exchange->write_from([&made, held] {
    return ++made <= 3 ? std::string(100, static_cast<char>('a' + made)) : std::string();
  });
  parts.exchange->write("behind");
  parts.exchange->finish();
  EXPECT_EQ(made, 0);
  const HttpOutbox first = parts.state->take(0);
  EXPECT_EQ(first.bytes, "before " + std::string(100, 'b'));
  EXPECT_FALSE(first.finished);
  EXPECT_EQ(parts.state->take(50).bytes, "");
  EXPECT_EQ(made, 1) << "the connection is full";
  EXPECT_EQ(parts.state->take(0).bytes, std::string(100, 'c'));
  EXPECT_EQ(parts.state->take(0).bytes, std::string(100, 'd'));
  EXPECT_EQ(held.use_count(), 2);
  const HttpOutbox last = parts.state->take(0);
  EXPECT_EQ(last.bytes, "behind");
  EXPECT_TRUE(last.finished);
  EXPECT_EQ(held.use_count(), 1) << "an ended source is let go";
}

TEST(HttpExchange, LetsGoOfASourceWhoseClientLeft) {
  Parts parts;
  parts.exchange->start_stream(200, {});
  parts.exchange->write_from([exchange = parts.exchange] { return std::string(exchange->gone() ? "" : "x"); });
  parts.exchange->finish();
  EXPECT_EQ(parts.exchange.use_count(), 2);
  parts.state->leave();
  EXPECT_EQ(parts.exchange.use_count(), 1);
  EXPECT_EQ(parts.exchange->pending_bytes(), 0u);
  parts.exchange->write_from([exchange = parts.exchange] { return std::string("x"); });
  EXPECT_EQ(parts.exchange.use_count(), 1);
}

TEST(HttpExchange, SaysThatItWasDropped) {
  Parts before, within, after;
  before.exchange.reset();
  EXPECT_TRUE(before.state->take(0).dropped);
  within.exchange->start_stream(200, {});
  within.exchange.reset();
  EXPECT_TRUE(within.state->take(0).aborted);
  after.exchange->respond({200, {}, "body"});
  after.exchange.reset();
  const HttpOutbox outbox = after.state->take(0);
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

TEST(HttpExchange, RespondsForOthersUnlessAnAnswerHasBegun) {
  Parts silent, streaming, complete;
  EXPECT_TRUE(silent.exchange->try_respond({503, {}, "the end"}));
  EXPECT_FALSE(silent.exchange->try_respond({503, {}, "twice"}));
  silent.exchange->start_stream(200, {});
  silent.exchange->write("too late");
  const HttpOutbox outbox = silent.state->take(0);
  EXPECT_EQ(outbox.response->status, 503);
  EXPECT_EQ(outbox.response->body, "the end");
  EXPECT_FALSE(outbox.stream.has_value());
  streaming.exchange->start_stream(200, {});
  EXPECT_FALSE(streaming.exchange->try_respond({503, {}, ""}));
  EXPECT_FALSE(streaming.state->take(0).response.has_value());
  complete.exchange->respond({200, {}, ""});
  EXPECT_FALSE(complete.exchange->try_respond({503, {}, ""}));
  EXPECT_EQ(complete.state->take(0).response->status, 200);
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
