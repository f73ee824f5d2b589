#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "engine/scheduler_test_model.h"
#include "engine/session.h"

namespace fathom {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  std::unique_ptr<Scheduler> make(SchedulerOptions options) {
    return unwrap(Scheduler::make(*model_, options));
  }
  static SchedulerOptions options(int slots = 4) {
    return {.slots = slots, .context_tokens = 110, .queue_limit = 64, .branch_gap_tokens = 4, .keep_tokens_min = 4,
            .share_tokens_min = 12};
  }
  // What a session says, one token at a time.
  Ids expected(const Ids& prompt, int64_t count, SamplerOptions sampling) {
    auto session = unwrap(Session::make(*model_, {.context_tokens = 110}));
    unwrap(session->sync(prompt));
    sampling.prompt_tokens = static_cast<int64_t>(prompt.size());
    auto sampler = unwrap(Sampler::make(sampling, model_->config().vocab_size));
    Ids answer;
    while (true) {
      answer.push_back(unwrap(sampler.sample(unwrap(session->logits()), [&] {
        static Ids all;
        all = prompt;
        all.insert(all.end(), answer.begin(), answer.end());
        return std::span<const int32_t>(all);
      }())));
      if (static_cast<int64_t>(answer.size()) == count) return answer;
      unwrap(session->eval(answer.back()));
    }
  }

  reference::ReferenceBackend backend_;
  std::unique_ptr<Model> model_ = load_model(backend_);
};

TEST_F(SchedulerTest, AnswersAsASessionDoes) {
  const Ids greedy = expected(ids(30), 20, {.temperature = 0});
  const Ids seeded = expected(ids(17, 3), 20, {.temperature = 2, .top_p = 1, .repeat_penalty = 1.2f, .seed = 7});
  auto scheduler = make(options());
  auto a = std::make_shared<Recorder>(), b = std::make_shared<Recorder>();
  unwrap(scheduler->submit(request(ids(30), a, 20, {.temperature = 0})));
  unwrap(scheduler->submit(
      request(ids(17, 3), b, 20, {.temperature = 2, .top_p = 1, .repeat_penalty = 1.2f, .seed = 7})));
  EXPECT_EQ(a->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(b->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(a->answer(), greedy);
  EXPECT_EQ(b->answer(), seeded);
  EXPECT_EQ(a->wait().usage.prompt_tokens, 30);
  EXPECT_EQ(a->wait().usage.generated_tokens, 20);
}

}  // namespace
}  // namespace fathom
