// What the service does around its endpoints.
#include "server/service.h"

#include <gtest/gtest.h>

#include <latch>

#include "server/test_exchange.h"

namespace fathom {
namespace {

// Has ended. To ask how it is takes until the test lets go: as long as some grammar takes to compile.
class EndedGenerator : public Generator {
 public:
  Result<GenerationId> submit(GenerationRequest) override { return Error::state("the engine is being closed"); }
  void cancel(GenerationId) override {}
  GeneratorStatus status() const override {
    if (!asked.try_wait()) asked.count_down();
    go_on.wait();
    GeneratorStatus status;
    status.slots.resize(1);
    status.vocab_size = 1000;
    return status;
  }
  void shutdown(GenerationClock::time_point) override {}

  mutable std::latch asked{1}, go_on{1};
};

std::shared_ptr<TestExchange> send(Service& service, const std::string& path, const Json& body) {
  auto request = std::make_shared<HttpRequest>();
  request->method = "POST";
  request->path = path;
  request->body = body.dump();
  auto exchange = std::make_shared<TestExchange>();
  service.handle(std::move(request), exchange);
  return exchange;
}

TEST(Service, AnswersEverybodyWhenItEnds) {
  EndedGenerator generator;
  ModelCard card;
  card.context_tokens = 100;
  ServiceOptions options;
  options.workers = 1;
  Service service(generator, test_tokenizer(), card, options);
  const Json prompt{{"prompt", "x"}, {"max_tokens", 1}};
  const auto at_work = send(service, "/v1/completions", prompt);
  generator.asked.wait();
  const auto queued = send(service, "/v1/messages", {{"max_tokens", 1}});
  EXPECT_EQ(at_work->status(), 0);
  EXPECT_EQ(queued->status(), 0);

  service.end();
  const auto late = send(service, "/v1/completions", prompt);
  for (const auto& exchange : {at_work, queued, late}) {
    EXPECT_EQ(exchange->status(), 503);
    EXPECT_TRUE(exchange->whole());
    EXPECT_NE(exchange->body().find("the server is ending"), std::string::npos) << exchange->body();
    EXPECT_NE(exchange->header("Retry-After"), "");
  }
  EXPECT_EQ(queued->json()["error"]["type"], "overloaded_error") << "in the shape of its API";
  generator.go_on.count_down();
}

}  // namespace
}  // namespace fathom
