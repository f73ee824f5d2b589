// The scheduler on the embedded model: long prompts, Engram tables, and cuts around every size that matters.
#include <gtest/gtest.h>

#include "cpu/backend.h"
#include "engine/scheduler.h"
#include "scheduler_test_model.h"
#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

constexpr int64_t kWindow = 64, kStepRows = 96;

class SchedulerMiniTest : public testing::Test {
 protected:
  std::unique_ptr<Scheduler> make(int slots, int64_t cache_bytes) {
    return unwrap(Scheduler::make(*model_, {.slots = slots, .context_tokens = 700, .chunk_rows_min = 3,
                                            .cache_bytes = cache_bytes, .branch_spacing_tokens = 200,
                                            .branch_gap_tokens = 16, .keep_tokens_min = 16,
                                            .share_tokens_min = 64}));
  }
  static Ids prompt(int64_t count, int64_t same_until = 10'000) {
    Ids tokens;
    for (int64_t at = 0; at < count; ++at)
      tokens.push_back(
          static_cast<int32_t>((at * 7919 + (at < same_until ? 0 : same_until * 31 + 1)) % 7000 + 100));
    return tokens;
  }
  static std::shared_ptr<Recorder> submit(Scheduler& scheduler, GenerationRequest made) {
    auto recorder = std::make_shared<Recorder>();
    made.sink = recorder;
    unwrap(scheduler.submit(std::move(made)));
    return recorder;
  }
  static std::unique_ptr<Model> load(Backend& backend) {
    const std::string path = std::string(FATHOM_SOURCE_DIR) + "/models/mini";
    const Tokenizer tokenizer = unwrap(Tokenizer::load(path + "/tokenizer.json"));
    return unwrap(Model::load(unwrap(open_pack(path)), backend,
                              {.step_rows = kStepRows,
                               .engram_token_map = build_engram_token_map(tokenizer, 8192).ids,
                               .engram = {}}));
  }
  Ids cold(const Ids& tokens, int64_t count, const SamplerOptions& sampling) {
    auto scheduler = make(1, 0);
    auto recorder = submit(*scheduler, request(tokens, count, sampling));
    EXPECT_EQ(recorder->wait().cause, FinishCause::kMaxTokens);
    return recorder->answer();
  }

  std::unique_ptr<Backend> backend_ = unwrap(make_cpu_backend({.thread_count = 2}));
  std::unique_ptr<Model> model_ = load(*backend_);
};

TEST_F(SchedulerMiniTest, RestoresAroundEveryBoundaryEqualCold) {
  const SamplerOptions sampling{.temperature = 1, .top_p = 1, .seed = 11};
  for (const int64_t size : {kWindow, 2 * kWindow, kStepRows, int64_t{200}})
    for (const int64_t parts : {size - 1, size, size + 1}) {
      const Ids tokens = prompt(parts + 70, parts);
      const Ids expected = cold(tokens, 6, sampling);
      auto scheduler = make(1, int64_t{64} << 20);
      GenerationRequest first = request(prompt(300), 3);
      first.branch_points = {parts};
      submit(*scheduler, std::move(first))->wait();
      auto again = submit(*scheduler, request(tokens, 6, sampling));
      EXPECT_EQ(again->wait().usage.cached_tokens, parts);
      EXPECT_EQ(again->answer(), expected) << parts;
    }
}

TEST_F(SchedulerMiniTest, LongPromptsInCompanyAnswerAsAlone) {
  std::vector<Ids> expected;
  const auto nth = [](int which) {
    GenerationRequest made = request(prompt(150 + 97 * which % 450, which % 2 == 0 ? 120 : 10 * which), 10,
                                     {.temperature = which % 3 == 0 ? 0.0f : 1.0f, .seed = uint64_t(which)});
    if (which % 2 == 0) made.branch_points = {120};
    return made;
  };
  for (int which = 0; which < 7; ++which) expected.push_back(cold(nth(which).prompt, 10, nth(which).sampling));
  auto scheduler = make(4, int64_t{8} << 20);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int which = 0; which < 7; ++which) {
    recorders.push_back(submit(*scheduler, nth(which)));
    if (which == 2) recorders[0]->wait_for_tokens(2);
  }
  for (int which = 0; which < 7; ++which) {
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->wait().cause, FinishCause::kMaxTokens);
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->answer(), expected[static_cast<size_t>(which)]) << which;
  }
  const GeneratorStatistics statistics = scheduler->status().statistics;
  EXPECT_LE(statistics.cache_bytes, statistics.cache_bytes_max);
}

}  // namespace
}  // namespace fathom
