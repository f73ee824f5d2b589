// What the scheduler evaluates again and what it does not, and that nobody can tell from the answers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/disk_cache.h"
#include "engine/scheduler.h"
#include "scheduler_test_model.h"

namespace fathom {
namespace {

class SchedulerReuseTest : public SchedulerFixture {
 protected:
  struct Told {
    Ids prompt, answer;
    int64_t cached = 0;
    int64_t evaluated = 0;  // by the whole run, the answer's rows included
    /// The prompt that extends it.
    Ids then(const Ids& more) const {
      Ids next = prompt;
      next.insert(next.end(), answer.begin(), answer.end());
      next.insert(next.end(), more.begin(), more.end());
      return next;
    }
  };
  // Runs one request alone and checks its answer against a session's.
  Told tell(Scheduler& scheduler, const Ids& prompt, size_t count, std::vector<int64_t> branch_points = {},
            SamplerOptions sampling = {.temperature = 0}) {
    const int64_t before = scheduler.status().statistics.evaluated_tokens;
    GenerationRequest made = request(prompt, static_cast<int64_t>(count), sampling);
    made.branch_points = std::move(branch_points);
    auto recorder = submit(scheduler, std::move(made));
    const GenerationFinish finish = recorder->wait();
    EXPECT_EQ(finish.cause, FinishCause::kMaxTokens);
    EXPECT_EQ(recorder->answer(), session_answer(prompt, count, sampling)) << prompt.size();
    const GeneratorStatistics now = scheduler.status().statistics;
    EXPECT_LE(now.cache_bytes, now.cache_bytes_max);
    return {.prompt = prompt, .answer = recorder->answer(), .cached = finish.usage.cached_tokens,
            .evaluated = now.evaluated_tokens - before};
  }
  int64_t bytes_of(int64_t tokens) {
    auto scheduler = make(options(1));
    tell(*scheduler, ids(tokens), 0);
    return scheduler->status().statistics.cache_bytes;
  }
};

TEST_F(SchedulerReuseTest, AFollowUpEvaluatesWhatIsNewAndOneMore) {
  for (const int64_t cache_bytes : {int64_t{0}, int64_t{1} << 30}) {
    SchedulerOptions one = options(1);
    one.cache_bytes = cache_bytes;
    auto scheduler = make(one);
    const Told first = tell(*scheduler, ids(30), 12);
    EXPECT_EQ(first.cached, 0);
    EXPECT_EQ(first.evaluated, 30 + 11);
    const Told second = tell(*scheduler, first.then({1, 2, 3, 4, 5}), 10);
    EXPECT_EQ(second.cached, 41);
    EXPECT_EQ(second.evaluated, 5 + 1 + 9);
    const Told third = tell(*scheduler, second.then({}), 10);  // goes on without anything new
    EXPECT_EQ(third.cached, 56);
    EXPECT_EQ(third.evaluated, 1 + 9);
  }
}

TEST_F(SchedulerReuseTest, TheSamePromptAgain) {
  auto scheduler = make(options(1));
  tell(*scheduler, ids(40), 25);
  const Told again = tell(*scheduler, ids(40), 25);
  EXPECT_EQ(again.cached, 40);  // the end of the prompt is kept, with logits
  EXPECT_EQ(again.evaluated, 24);
  const Told other = tell(*scheduler, ids(40), 10, {}, {.temperature = 2, .seed = 4});
  EXPECT_EQ(other.cached, 40);
  tell(*scheduler, ids(50, 0), 0);
  EXPECT_EQ(tell(*scheduler, ids(50, 0), 0).evaluated, 0);
  const auto progress = [&] {
    auto recorder = submit(*scheduler, request(ids(50, 0), 0));
    recorder->wait();
    return recorder->progress();
  }();
  ASSERT_EQ(progress.size(), 1u);
  EXPECT_EQ(progress[0].done_tokens, 50);

  // Without a cache: all but one where the slot's rings reach back, nothing where they do not.
  SchedulerOptions bare = options(1);
  bare.cache_bytes = 0;
  auto frugal = make(bare);
  tell(*frugal, ids(40), 4);
  EXPECT_EQ(tell(*frugal, ids(40), 25).cached, 39);
  EXPECT_EQ(tell(*frugal, ids(40), 4).cached, 0);
}

TEST_F(SchedulerReuseTest, TenExtendingPromptsEvaluateOnlyWhatIsNew) {
  auto scheduler = make(options(2));
  Ids prompt = ids(20);
  Told told = tell(*scheduler, prompt, 3);
  for (int turn = 0; turn < 9; ++turn) {
    const int64_t held = static_cast<int64_t>(told.prompt.size() + told.answer.size()) - 1;
    told = tell(*scheduler, told.then(Ids(static_cast<size_t>(2 + turn % 3), 100 + turn)), 3);
    EXPECT_EQ(told.cached, held) << turn;
    EXPECT_EQ(told.evaluated, static_cast<int64_t>(told.prompt.size()) - held + 2) << turn;
  }
}

TEST_F(SchedulerReuseTest, TwoConversationsTakeTurnsInOneSlot) {
  auto scheduler = make(options(1));
  Told a = tell(*scheduler, ids(30), 8), b = tell(*scheduler, ids(30, 0), 8);
  for (int turn = 0; turn < 3; ++turn) {
    for (Told* told : {&a, &b}) {
      const int64_t held = static_cast<int64_t>(told->prompt.size() + told->answer.size()) - 1;
      *told = tell(*scheduler, told->then({5, 6, 7}), 6);
      EXPECT_EQ(told->cached, held);
    }
  }
  EXPECT_EQ(scheduler->status().statistics.cache_evictions, 0);

  // A budget that holds hardly more than one of them.
  SchedulerOptions small = options(1);
  small.cache_bytes = bytes_of(60) + bytes_of(30) / 2;
  auto frugal = make(small);
  a = tell(*frugal, ids(30), 8), b = tell(*frugal, ids(30, 0), 8);
  for (int turn = 0; turn < 3; ++turn)
    for (Told* told : {&a, &b}) *told = tell(*frugal, told->then({5, 6, 7}), 6);
  EXPECT_GT(frugal->status().statistics.cache_evictions, 0);
}

TEST_F(SchedulerReuseTest, ForksAndEditsGoBackToWhatIsKept) {
  auto scheduler = make(options(1));
  const Told first = tell(*scheduler, ids(40), 8, {16});
  EXPECT_EQ(tell(*scheduler, ids(60, 40), 5, {16}).cached, 40);  // a fork at the prompt's end
  EXPECT_EQ(tell(*scheduler, ids(60, 38), 5).cached, 38);        // a little before it
  EXPECT_EQ(tell(*scheduler, ids(50, 25), 5).cached, 16);        // an edit in the middle
  EXPECT_EQ(tell(*scheduler, ids(50, 16), 5).cached, 16);
  EXPECT_EQ(tell(*scheduler, ids(50, 9), 5).cached, 0);  // nothing is kept before
  EXPECT_EQ(tell(*scheduler, first.then({1, 2}), 5).cached, 47);
  const Told edited = tell(*scheduler, ids(50, 25), 5);
  EXPECT_EQ(edited.cached, 50);
}

// A prompt that shares only its beginning with a longer one must not inherit anything else.
TEST_F(SchedulerReuseTest, ADivergentPromptEqualsCold) {
  for (const int64_t shared : {1, 7, 8, 9, 15, 16, 17, 19, 20, 21, 24, 32, 33}) {
    auto scheduler = make(options(1));
    tell(*scheduler, ids(100), 8, {shared});
    const Told told = tell(*scheduler, ids(shared + 12, shared), 8);
    EXPECT_EQ(told.cached, shared >= 4 ? shared : 0);
  }
}

TEST_F(SchedulerReuseTest, StatesAreKeptEverySoManyTokens) {
  SchedulerOptions spaced = options(1);
  spaced.branch_spacing_tokens = 16;
  for (const int64_t parts : {20, 31, 40, 57, 74}) {
    auto scheduler = make(spaced);
    tell(*scheduler, ids(90), 2, {30});
    const Told told = tell(*scheduler, ids(parts + 5, parts), 1);
    EXPECT_EQ(told.cached, parts == 31 || parts == 40 ? 30 : parts / 16 * 16) << parts;
  }
}

TEST_F(SchedulerReuseTest, NothingIsReusedOrKeptWhereThatIsAsked) {
  auto scheduler = make(options(1));
  tell(*scheduler, ids(30), 5);
  GenerationRequest fresh = request(ids(30), 5);
  fresh.reuse_prefix = false;
  EXPECT_EQ(submit(*scheduler, std::move(fresh))->wait().usage.cached_tokens, 0);
  GenerationRequest scored = request(ids(30), 5);
  scored.prompt_logprobs = true;
  EXPECT_EQ(submit(*scheduler, std::move(scored))->wait().usage.cached_tokens, 0);
  GenerationRequest secret = request(ids(30, 0), 30);
  secret.reuse_prefix = false;
  submit(*scheduler, std::move(secret))->wait();
  EXPECT_EQ(tell(*scheduler, ids(30), 5).cached, 30);
  EXPECT_EQ(tell(*scheduler, ids(30, 0), 5).cached, 0);
}

// The same prompt several times at once is evaluated once.
TEST_F(SchedulerReuseTest, PromptsThatComeTogetherAreEvaluatedOnce) {
  auto scheduler = make(options(4));
  Gate gate;
  auto first = std::make_shared<Recorder>();
  first->at_prefill = [&](const PrefillProgress&) { gate.wait(); };
  submit(*scheduler, request(ids(60), 10), first);
  first->wait_for_prefill();
  std::vector<std::shared_ptr<Recorder>> same;
  for (uint64_t seed = 1; seed < 3; ++seed)
    same.push_back(submit(*scheduler, request(ids(60), 10, {.temperature = 2, .top_p = 1, .seed = seed})));
  auto parting = submit(*scheduler, request(ids(60, 30), 10));
  gate.open();
  for (uint64_t seed = 1; seed < 3; ++seed) {
    EXPECT_EQ(same[seed - 1]->wait().usage.cached_tokens, 60);
    EXPECT_EQ(same[seed - 1]->answer(), session_answer(ids(60), 10, {.temperature = 2, .top_p = 1, .seed = seed}));
  }
  EXPECT_EQ(parting->wait().usage.cached_tokens, 30);
  EXPECT_EQ(parting->answer(), session_answer(ids(60, 30), 10, {.temperature = 0}));
  EXPECT_EQ(first->answer(), session_answer(ids(60), 10, {.temperature = 0}));
  EXPECT_EQ(scheduler->status().statistics.evaluated_tokens, 60 + 30 + 4 * 9);
}

TEST_F(SchedulerReuseTest, WhoWaitsForAPromptGoesOnWhenItIsGivenUp) {
  auto scheduler = make(options(2));
  Gate gate;
  auto first = std::make_shared<Recorder>();
  first->at_prefill = [&](const PrefillProgress&) { gate.wait(); };
  const GenerationId id = submit_id(*scheduler, request(ids(60), 10), first);
  first->wait_for_prefill();
  auto second = submit(*scheduler, request(ids(60), 10));
  scheduler->cancel(id);
  gate.open();
  EXPECT_EQ(first->wait().cause, FinishCause::kCancelled);
  EXPECT_EQ(second->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(second->answer(), session_answer(ids(60), 10, {.temperature = 0}));
}

// Eight conversations at once, in fewer slots, each with words of its own.
TEST_F(SchedulerReuseTest, ConversationsNeverHearEachOther) {
  SchedulerOptions crowded = options(5);
  crowded.cache_bytes = 6 * bytes_of(60);
  auto scheduler = make(crowded);
  constexpr int kSessions = 8;
  std::vector<Ids> prompts;
  for (int session = 0; session < kSessions; ++session) {
    Ids prompt = ids(12);  // what all have in common
    prompt.insert(prompt.end(), static_cast<size_t>(3 + session), 200 + session);
    prompts.push_back(prompt);
  }
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::shared_ptr<Recorder>> recorders;
    for (const Ids& prompt : prompts) {
      GenerationRequest made = request(prompt, 8, {.temperature = 1.5f, .top_p = 1, .seed = prompt.size()});
      made.branch_points = {12};
      recorders.push_back(submit(*scheduler, std::move(made)));
    }
    for (int session = 0; session < kSessions; ++session) {
      Ids& prompt = prompts[static_cast<size_t>(session)];
      Recorder& recorder = *recorders[static_cast<size_t>(session)];
      EXPECT_EQ(recorder.wait().cause, FinishCause::kMaxTokens);
      const Ids answer = recorder.answer();
      EXPECT_EQ(answer, session_answer(prompt, 8, {.temperature = 1.5f, .top_p = 1, .seed = prompt.size()}))
          << session << " in turn " << turn;
      prompt.insert(prompt.end(), answer.begin(), answer.end());
      prompt.push_back(200 + session);
    }
    const GeneratorStatistics statistics = scheduler->status().statistics;
    EXPECT_LE(statistics.cache_bytes, statistics.cache_bytes_max);
  }
}

TEST_F(SchedulerReuseTest, StatusTellsWhatSlotsHold) {
  auto scheduler = make(options(2));
  tell(*scheduler, ids(30), 5);
  const GeneratorStatus status = scheduler->status();
  ASSERT_EQ(status.slots.size(), 2u);
  EXPECT_EQ(status.slots[0].held_tokens + status.slots[1].held_tokens, 34);
  EXPECT_EQ(status.slots[0].context_tokens, 110);
  EXPECT_EQ(status.statistics.cache_entries, 2);  // the end of the prompt and of the answer
  EXPECT_EQ(status.statistics.cache_misses, 1);
  tell(*scheduler, ids(30), 5);
  EXPECT_EQ(scheduler->status().statistics.cache_hits, 1);
}

// ---- The disk ----

class SchedulerDiskTest : public SchedulerReuseTest {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "scheduler_disk_test";
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // A process of its own, as far as the folder can tell.
  struct Run {
    std::unique_ptr<DiskCache> disk;
    std::unique_ptr<Scheduler> scheduler;
  };
  Run start() {
    Run run;
    run.disk = unwrap(DiskCache::open(
        {.folder = folder_, .owner = saved_state_owner(*model_, 110), .rewind_tokens = 4}));
    SchedulerOptions small = options(2);
    small.disk_tokens_min = 8;
    run.scheduler = unwrap(Scheduler::make(*model_, small, run.disk.get()));
    return run;
  }

  std::filesystem::path folder_;
};

TEST_F(SchedulerDiskTest, PrefixesOutliveTheProcess) {
  Told told;
  {
    Run run = start();
    told = tell(*run.scheduler, ids(40), 12);
    run.scheduler->shutdown(GenerationClock::now());
    EXPECT_GE(run.scheduler->status().statistics.disk_writes, 2);
  }
  Run run = start();
  const Told next = tell(*run.scheduler, told.then({1, 2, 3}), 6);
  EXPECT_EQ(next.cached, 51);
  EXPECT_EQ(next.evaluated, 3 + 1 + 5);
  EXPECT_EQ(tell(*run.scheduler, ids(40), 6).cached, 40);  // with logits
  EXPECT_EQ(tell(*run.scheduler, ids(60, 38), 6).cached, 38);
  EXPECT_GE(run.scheduler->status().statistics.disk_hits, 2);
  // Below the least that is worth a read.
  EXPECT_EQ(tell(*run.scheduler, ids(70, 7), 6).cached, 0);
}

TEST_F(SchedulerDiskTest, DamagedEntriesAreDroppedAndNotMissed) {
  {
    Run run = start();
    tell(*run.scheduler, ids(40), 2);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (!entry.is_regular_file() || entry.file_size() < 2000) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1000, std::ios::end);
    file.put('!');
  }
  Run run = start();
  const Told told = tell(*run.scheduler, ids(50), 6);
  EXPECT_EQ(told.cached, 0);
  EXPECT_GT(run.scheduler->status().statistics.disk_dropped, 0);
}

TEST_F(SchedulerDiskTest, ManyAtOnceAnswerAsAlone) {
  {
    Run run = start();
    for (const int64_t shared : {10, 20, 30}) tell(*run.scheduler, ids(45, shared), 4);
  }
  Run run = start();
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int64_t shared = 10; shared < 34; shared += 2) {
    GenerationRequest made = request(ids(60, shared), 6);
    auto recorder = std::make_shared<Recorder>();
    const GenerationId id = submit_id(*run.scheduler, std::move(made), recorder);
    if (shared % 6 == 0) run.scheduler->cancel(id);
    recorders.push_back(recorder);
  }
  for (int64_t shared = 10; shared < 34; shared += 2) {
    Recorder& recorder = *recorders[static_cast<size_t>(shared - 10) / 2];
    const GenerationFinish finish = recorder.wait();
    EXPECT_EQ(recorder.finishes(), 1);
    if (finish.cause == FinishCause::kCancelled) continue;
    EXPECT_EQ(recorder.answer(), session_answer(ids(60, shared), 6, {.temperature = 0})) << shared;
  }
  run.scheduler->shutdown(GenerationClock::now());
}

}  // namespace
}  // namespace fathom
