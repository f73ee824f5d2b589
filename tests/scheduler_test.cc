// The scheduler on a small random model: answers, endings, limits, failures. Reuse is in scheduler_reuse_test.cc.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "engine/session.h"
#include "scheduler_test_model.h"

namespace fathom {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class SchedulerTest : public SchedulerFixture {};

TEST_F(SchedulerTest, AnswersAsASessionDoes) {
  const SamplerOptions seeded{.temperature = 2, .top_p = 1, .repeat_penalty = 1.2f, .seed = 7};
  auto scheduler = make(options());
  auto a = submit(*scheduler, request(ids(30), 20));
  auto b = submit(*scheduler, request(ids(17, 3), 20, seeded));
  EXPECT_EQ(a->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(b->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(a->answer(), session_answer(ids(30), 20, {.temperature = 0}));
  EXPECT_EQ(b->answer(), session_answer(ids(17, 3), 20, seeded));
  const GenerationUsage usage = a->wait().usage;
  EXPECT_EQ(usage.prompt_tokens, 30);
  EXPECT_EQ(usage.cached_tokens, 0);
  EXPECT_EQ(usage.generated_tokens, 20);
  EXPECT_GT(usage.prefill_us, 0);
  EXPECT_GT(usage.decode_us, 0);
  EXPECT_GT(usage.prefill_tokens_per_second(), 0);
  EXPECT_EQ(a->progress().back().done_tokens, 30);
  const GeneratorStatus status = scheduler->status();
  EXPECT_EQ(status.statistics.requests_finished[static_cast<int>(FinishCause::kMaxTokens)], 2);
  EXPECT_EQ(status.statistics.prompt_tokens, 47);
  EXPECT_EQ(status.statistics.generated_tokens, 40);
  EXPECT_EQ(status.statistics.evaluated_tokens, 47 + 2 * 19);
  EXPECT_EQ(status.vocab_size, 320);
}

// Allows a third of the ids, another third with each token.
class EveryThird : public TokenMask {
 public:
  explicit EveryThird(int32_t start) : next_(start) {}
  void restrict(std::span<uint64_t> bits) override {
    for (int32_t id = 0; id < static_cast<int32_t>(bits.size() * 64); ++id)
      if (id % 3 != next_ % 3) bits[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64));
  }
  void accept(int32_t id) override {
    EXPECT_EQ(id % 3, next_ % 3);
    ++next_;
  }

 private:
  int32_t next_;
};

GenerationRequest mixed_request(int which) {
  std::mt19937 random(static_cast<uint32_t>(which));
  const auto below = [&](uint32_t limit) { return static_cast<int64_t>(random() % limit); };
  GenerationRequest made = request(ids(1 + below(70), below(60)), 5 + below(30));
  if (which % 3 != 0)
    made.sampling = {.temperature = 1.5f, .top_k = which % 4 * 20, .top_p = 0.98f,
                     .repeat_penalty = 1.1f, .frequency_penalty = 0.3f, .seed = static_cast<uint64_t>(which)};
  if (which % 4 == 1) made.mask = std::make_unique<EveryThird>(which);
  if (which % 4 == 2) made.top_logprobs = which % 3;
  if (which % 5 == 3) made.prompt_logprobs = true;
  if (which % 5 == 4) made.stop_ids = {7, 19, 200}, made.min_tokens = 8;
  if (which % 2 == 0) made.branch_points = {static_cast<int64_t>(made.prompt.size()) / 2};
  return made;
}

struct Heard {
  FinishCause cause = FinishCause::kError;
  Ids answer;
  std::vector<double> logprobs, prompt_logprobs;
  bool operator==(const Heard&) const = default;
};

Heard heard(Recorder& recorder) {
  return {.cause = recorder.wait().cause, .answer = recorder.answer(), .logprobs = recorder.logprobs(),
          .prompt_logprobs = recorder.prompt_logprobs()};
}

TEST_F(SchedulerTest, SixteenMixedRequestsAnswerAsTheyDoAlone) {
  constexpr int kRequests = 16;
  std::vector<Heard> alone;
  {
    SchedulerOptions cold = options(1);
    cold.cache_bytes = 0;
    auto scheduler = make(cold);
    for (int which = 0; which < kRequests; ++which) {
      GenerationRequest made = mixed_request(which);
      made.reuse_prefix = false;
      alone.push_back(heard(*submit(*scheduler, std::move(made))));
    }
  }
  for (uint32_t round = 0; round < 3; ++round) {
    SchedulerOptions warm = options(round == 0 ? 8 : 5);
    if (round == 1) warm.step_target_us = 1;  // the smallest chunks
    if (round == 2) warm.cache_bytes = 60'000;
    auto scheduler = make(warm);
    std::mt19937 random(round);
    std::vector<std::shared_ptr<Recorder>> heard_now(kRequests), leavers;
    for (int which = 0; which < kRequests; ++which) {
      heard_now[static_cast<size_t>(which)] = submit(*scheduler, mixed_request(which));
      if (random() % 3 == 0) heard_now[random() % static_cast<size_t>(which + 1)]->wait_for_tokens(3);
      // Somebody who comes and soon leaves.
      leavers.push_back(std::make_shared<Recorder>());
      GenerationRequest brief = request(ids(40, which), 40);
      brief.sink = leavers.back();
      const GenerationId id = unwrap(scheduler->submit(std::move(brief)));
      if (random() % 2 == 0) leavers.back()->wait_for_tokens(2);
      scheduler->cancel(id);
    }
    for (int which = 0; which < kRequests; ++which)
      EXPECT_EQ(heard(*heard_now[static_cast<size_t>(which)]), alone[static_cast<size_t>(which)])
          << which << " in round " << round;
    for (const auto& leaver : leavers) {
      EXPECT_EQ(leaver->wait().cause, FinishCause::kCancelled);
      EXPECT_EQ(leaver->finishes(), 1);
    }
    const GeneratorStatistics statistics = scheduler->status().statistics;
    EXPECT_LE(statistics.cache_bytes, statistics.cache_bytes_max);
  }
}

// ---- What a request may ask for ----

// Takes longer than the masks of a step may.
class SlowMask : public EveryThird {
 public:
  SlowMask(int32_t start, std::function<void()> at_mask) : EveryThird(start), at_mask_(std::move(at_mask)) {}
  void restrict(std::span<uint64_t> bits) override {
    std::this_thread::sleep_for(milliseconds(3));
    at_mask_();
    EveryThird::restrict(bits);
  }

 private:
  std::function<void()> at_mask_;
};

TEST_F(SchedulerTest, SlowMasksHoldUpNobodyButEachOther) {
  constexpr int kMasked = 4;
  const auto masked = [](int which, std::function<void()> at_mask) {
    GenerationRequest made = request(ids(10, which), 12, {.temperature = 1.5f, .seed = 5});
    made.mask = std::make_unique<SlowMask>(which, std::move(at_mask));
    return made;
  };
  std::vector<Ids> alone;
  Ids plain_alone;
  {
    auto scheduler = make(options(1));
    for (int which = 0; which < kMasked; ++which) {
      auto recorder = submit(*scheduler, masked(which, [] {}));
      EXPECT_EQ(recorder->wait().cause, FinishCause::kMaxTokens);
      alone.push_back(recorder->answer());
    }
    auto recorder = submit(*scheduler, request(ids(12, 7), 60));
    recorder->wait();
    plain_alone = recorder->answer();
  }
  SchedulerOptions options = this->options(kMasked + 1);
  options.step_target_us = 4000;
  auto scheduler = make(options);
  // All on the engine's thread, and read when everything has ended.
  int masks_since = 0, masks_most = 0, masks_all = 0, plain_tokens = 0;
  auto plain = std::make_shared<Recorder>();
  Gate gate;
  plain->at_token = [&](const GeneratedToken&) {
    if (plain_tokens++ == 0) gate.wait();  // until all have been submitted
    masks_most = std::max(masks_most, masks_since);
    masks_since = 0;
    return true;
  };
  submit(*scheduler, request(ids(12, 7), 60), plain);
  plain->wait_for_tokens(1);
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int which = 0; which < kMasked; ++which)
    recorders.push_back(submit(*scheduler, masked(which, [&] { ++masks_since, ++masks_all; })));
  gate.open();
  for (int which = 0; which < kMasked; ++which) {
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->wait().cause, FinishCause::kMaxTokens) << which;
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->answer(), alone[static_cast<size_t>(which)]) << which;
  }
  plain->wait();
  scheduler.reset();
  EXPECT_EQ(plain->answer(), plain_alone);
  EXPECT_EQ(masks_all, kMasked * 12);
  EXPECT_LE(masks_most, 2) << "one in a step: at the end of one, at the beginning of the next";
}

TEST_F(SchedulerTest, EndsAtStopIdsUnlessTheyAreBanned) {
  auto scheduler = make(options());
  const Ids free = session_answer(ids(30), 12, {.temperature = 0});
  const auto ask = [&](auto change) {
    GenerationRequest made = request(ids(30), 12);
    made.stop_ids = {free[4]};
    change(made);
    return submit(*scheduler, std::move(made));
  };
  const auto first = static_cast<size_t>(std::find(free.begin(), free.end(), free[4]) - free.begin());
  auto plain = ask([](GenerationRequest&) {});
  EXPECT_EQ(plain->wait().cause, FinishCause::kStopId);
  EXPECT_EQ(plain->wait().stop_id, free[4]);
  EXPECT_EQ(plain->answer(), Ids(free.begin(), free.begin() + static_cast<ptrdiff_t>(first) + 1));
  EXPECT_EQ(plain->wait().usage.generated_tokens, static_cast<int64_t>(first) + 1);
  auto ignored = ask([](GenerationRequest& made) { made.ignore_stop_ids = true; });
  EXPECT_EQ(ignored->wait().cause, FinishCause::kMaxTokens);
  const Ids answer = ignored->answer();
  EXPECT_EQ(std::count(answer.begin(), answer.end(), free[4]), 0);
  auto late = ask([&](GenerationRequest& made) { made.min_tokens = static_cast<int64_t>(first) + 2; });
  EXPECT_GT(late->wait().usage.generated_tokens, static_cast<int64_t>(first) + 1);
}

TEST_F(SchedulerTest, EndsAtItsLimits) {
  auto scheduler = make(options());
  auto nothing = submit(*scheduler, request(ids(30), 0));
  EXPECT_EQ(nothing->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(nothing->wait().usage.generated_tokens, 0);
  auto full = submit(*scheduler, request(ids(100), -1));
  EXPECT_EQ(full->wait().cause, FinishCause::kContextFull);
  EXPECT_EQ(full->answer(), session_answer(ids(100), 10, {.temperature = 0}));
  auto exact = submit(*scheduler, request(ids(100), 10));
  EXPECT_EQ(exact->wait().cause, FinishCause::kMaxTokens);
  auto whole = submit(*scheduler, request(ids(110), 0));
  EXPECT_EQ(whole->wait().cause, FinishCause::kMaxTokens);
  auto sink = std::make_shared<Recorder>();
  sink->at_token = [](const GeneratedToken& token) { return token.index < 4; };
  submit(*scheduler, request(ids(20), 50), sink);
  EXPECT_EQ(sink->wait().cause, FinishCause::kSink);
  EXPECT_EQ(sink->answer().size(), 5u);
}

TEST_F(SchedulerTest, AFormThatLeavesNothingIsAnError) {
  auto scheduler = make(options());
  class OnlyNine : public TokenMask {
   public:
    void restrict(std::span<uint64_t> bits) override {
      for (uint64_t& word : bits) word &= &word == bits.data() ? uint64_t{1} << 9 : 0;
    }
    void accept(int32_t) override {}
  };
  GenerationRequest nine = request(ids(20), 3);
  nine.mask = std::make_unique<OnlyNine>();
  auto nines = submit(*scheduler, std::move(nine));
  EXPECT_EQ(nines->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(nines->answer(), (Ids{9, 9, 9}));
  GenerationRequest none = request(ids(20), 5);
  none.mask = std::make_unique<OnlyNine>();
  none.stop_ids = {9};
  none.min_tokens = 2;
  auto error = submit(*scheduler, std::move(none));
  EXPECT_EQ(error->wait().cause, FinishCause::kError);
  EXPECT_EQ(error->wait().error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error->wait().error.message.find("no token may come next"), std::string::npos);
}

TEST_F(SchedulerTest, TellsLogprobsOfTheModel) {
  auto scheduler = make(options());
  GenerationRequest made = request(ids(40), 6, {.temperature = 3, .top_p = 1, .seed = 3});
  made.top_logprobs = 2;
  made.prompt_logprobs = true;
  auto recorder = submit(*scheduler, std::move(made));
  EXPECT_EQ(recorder->wait().cause, FinishCause::kMaxTokens);
  auto session = unwrap(Session::make(*session_model_, {.context_tokens = 110}));
  EXPECT_EQ(recorder->prompt_logprobs(), unwrap(session->score(ids(40))));
  for (size_t at = 0; at < 6; ++at) {
    const int32_t id = recorder->answer()[at];
    EXPECT_EQ(recorder->logprobs()[at], unwrap(token_logprob(unwrap(session->logits()), id)));
    const auto top = unwrap(top_logprobs(unwrap(session->logits()), 2));
    ASSERT_EQ(recorder->tops()[at].size(), 2u);
    EXPECT_EQ(recorder->tops()[at][0].id, top[0].id);
    unwrap(session->eval(id));
  }
}

TEST_F(SchedulerTest, TheLoopGuardStopsOrObserves) {
  auto scheduler = make(options());
  const auto ask = [&](LoopGuardMode mode) {
    GenerationRequest made = request(ids(20), 60);
    made.sampling.bias = {{.id = 5, .bias = 1000}};  // says the same token for ever
    made.loop_guard = {.mode = mode, .repeats_min = 4, .repeated_tokens_min = 16};
    return submit(*scheduler, std::move(made));
  };
  auto stopped = ask(LoopGuardMode::kStop);
  EXPECT_EQ(stopped->wait().cause, FinishCause::kLoop);
  EXPECT_TRUE(stopped->wait().loop.found);
  EXPECT_EQ(stopped->wait().loop.period_tokens, 1);
  EXPECT_LT(stopped->wait().usage.generated_tokens, 60);
  auto observed = ask(LoopGuardMode::kObserve);
  EXPECT_EQ(observed->wait().cause, FinishCause::kMaxTokens);
  EXPECT_TRUE(observed->wait().loop.found);
  EXPECT_EQ(scheduler->status().statistics.loops_seen, 2);
  auto off = ask(LoopGuardMode::kOff);
  EXPECT_FALSE(off->wait().loop.found);
}

TEST_F(SchedulerTest, RefusesWhatCannotRun) {
  auto scheduler = make(options());
  const auto refused = [&](auto change) {
    GenerationRequest made = request(ids(20), 5);
    made.sink = std::make_shared<Recorder>();
    change(made);
    const auto result = scheduler->submit(std::move(made));
    return result.ok() ? Error{} : result.error();
  };
  EXPECT_EQ(refused([](auto& made) { made.prompt.clear(); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& made) { made.prompt[3] = 320; }).message,
            "token 320 at position 3: expected 0 to 319");
  EXPECT_EQ(refused([](auto& made) { made.prompt[3] = 306; }).code, ErrorCode::kUnsupported);
  const Error full = refused([](auto& made) { made.prompt = ids(111); });
  EXPECT_EQ(full.code, ErrorCode::kContextFull);
  EXPECT_EQ(full.message, "the prompt has 111 tokens, the context holds 110");
  EXPECT_EQ(refused([](auto& made) { made.prompt = ids(110); }).code, ErrorCode::kContextFull);
  EXPECT_EQ(refused([](auto& made) { made.sampling.temperature = NAN; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& made) { made.stop_ids = {-1}; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& made) { made.max_tokens = -2; }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& made) { made.sink = nullptr; }).code, ErrorCode::kInvalidArgument);
  for (const SchedulerOptions& wrong : {SchedulerOptions{.slots = 9, .context_tokens = 110},
                                        SchedulerOptions{.slots = 0, .context_tokens = 110},
                                        SchedulerOptions{.slots = 1, .context_tokens = 115}})
    EXPECT_EQ(Scheduler::make(*model_, wrong).error().code, ErrorCode::kInvalidArgument);
}

// ---- Leaving ----

TEST_F(SchedulerTest, CancelsWhoeverWaitsReadsOrSpeaks) {
  auto scheduler = make(options(1));
  Gate gate;
  auto speaking = std::make_shared<Recorder>();
  speaking->at_token = [&](const GeneratedToken& token) {
    if (token.index == 2) gate.wait();
    return true;
  };
  const GenerationId first = submit_id(*scheduler, request(ids(20), 60), speaking);
  auto waiting = std::make_shared<Recorder>();
  const GenerationId second = submit_id(*scheduler, request(ids(20), 60), waiting);
  speaking->wait_for_tokens(3);
  scheduler->cancel(second);
  scheduler->cancel(first);
  gate.open();
  EXPECT_EQ(speaking->wait().cause, FinishCause::kCancelled);
  EXPECT_EQ(speaking->answer().size(), 3u);  // not one more
  EXPECT_EQ(waiting->wait().cause, FinishCause::kCancelled);
  EXPECT_TRUE(waiting->progress().empty());
  EXPECT_EQ(waiting->wait().usage.prefill_us, 0);

  auto reading = std::make_shared<Recorder>();
  std::atomic<GenerationId> third = 0;
  reading->at_prefill = [&](const PrefillProgress& progress) {
    third.wait(0);
    if (progress.done_tokens >= 16) scheduler->cancel(third);
  };
  third = submit_id(*scheduler, request(ids(90, 0), 60), reading);
  third.notify_all();
  EXPECT_EQ(reading->wait().cause, FinishCause::kCancelled);
  const std::vector<PrefillProgress> progress = reading->progress();
  const int64_t done = progress.back().done_tokens;
  EXPECT_GE(done, 16);
  EXPECT_LT(progress[progress.size() - 2].done_tokens, 16);  // no chunk after the one that was running
  EXPECT_TRUE(reading->answer().empty());
  scheduler->cancel(first);
  scheduler->cancel(999);

  // What was read is not lost.
  auto again = submit(*scheduler, request(ids(90, 0), 5));
  EXPECT_EQ(again->wait().usage.cached_tokens, done);
  EXPECT_EQ(again->answer(), session_answer(ids(90, 0), 5, {.temperature = 0}));
}

// A long chunk of somebody who has left ends before its next layer.
TEST_F(SchedulerTest, LeavingEndsAStepOfOnesOwn) {
  auto recorder = std::make_shared<Recorder>();
  std::atomic<GenerationId> id = 0;
  std::atomic<int> layers_after = 0;
  Scheduler* running = nullptr;
  bool cancelled = false;
  model_->set_probe([&](const ProbeEvent& event) {
    if (event.name != "layer_out" || event.first_position < 40) return;
    id.wait(0);
    if (cancelled) ++layers_after;
    running->cancel(id);
    cancelled = true;
  });
  {
    auto scheduler = make(options(1));
    running = scheduler.get();
    id = submit_id(*scheduler, request(ids(90), 60), recorder);
    id.notify_all();
    EXPECT_EQ(recorder->wait().cause, FinishCause::kCancelled);
    EXPECT_EQ(layers_after, 0);
    EXPECT_EQ(scheduler->status().slots[0].held_tokens, 0);
  }
  model_->set_probe({});
  auto scheduler = make(options(1));
  EXPECT_EQ(submit(*scheduler, request(ids(90), 5))->wait().cause, FinishCause::kMaxTokens);
}

TEST_F(SchedulerTest, DeadlinesEndWaitingReadingAndSpeaking) {
  auto scheduler = make(options(1));
  const auto now = GenerationClock::now();
  auto speaking = std::make_shared<Recorder>();
  speaking->at_token = [&](const GeneratedToken& token) {
    while (token.index == 1 && GenerationClock::now() < now + milliseconds(60)) std::this_thread::yield();
    return true;
  };
  GenerationRequest made = request(ids(20), 80);
  made.deadline = now + milliseconds(50);
  // It may not even begin in time on a slow machine; it ends for the same reason.
  submit(*scheduler, std::move(made), speaking);
  GenerationRequest late = request(ids(20), 80);
  late.deadline = now - hours(1);
  auto queued = submit(*scheduler, std::move(late));
  EXPECT_EQ(speaking->wait().cause, FinishCause::kDeadline);
  EXPECT_LE(speaking->answer().size(), 2u);
  EXPECT_EQ(queued->wait().cause, FinishCause::kDeadline);
  EXPECT_TRUE(queued->progress().empty());
}

TEST_F(SchedulerTest, RefusesMoreThanItsQueueHolds) {
  SchedulerOptions few = options(1);
  few.queue_limit = 2;
  auto scheduler = make(few);
  Gate gate;
  auto first = std::make_shared<Recorder>();
  first->at_token = [&](const GeneratedToken&) { return gate.wait(), true; };
  submit(*scheduler, request(ids(20), 2), first);
  first->wait_for_tokens(1);
  auto second = submit(*scheduler, request(ids(20), 2)), third = submit(*scheduler, request(ids(20), 2));
  GenerationRequest made = request(ids(20), 2);
  auto unheard = std::make_shared<Recorder>();
  made.sink = unheard;
  EXPECT_EQ(scheduler->submit(std::move(made)).error().code, ErrorCode::kBusy);
  const GeneratorStatus status = scheduler->status();
  EXPECT_EQ(status.queued_requests, 2);
  EXPECT_EQ(status.queue_limit, 2);
  EXPECT_EQ(status.statistics.requests_refused, 1);
  EXPECT_EQ(status.slots[0].phase, SlotStatus::Phase::kPrefill);
  gate.open();
  for (const auto& recorder : {first, second, third}) EXPECT_EQ(recorder->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(unheard->finishes(), 0);
  EXPECT_EQ(scheduler->status().queued_requests, 0);
}

TEST_F(SchedulerTest, ShutdownEndsAllOnce) {
  auto scheduler = make(options(2));
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int which = 0; which < 6; ++which) recorders.push_back(submit(*scheduler, request(ids(20, which), 80)));
  recorders[0]->wait_for_tokens(1);
  scheduler->shutdown(GenerationClock::now());
  for (const auto& recorder : recorders) {
    EXPECT_EQ(recorder->finishes(), 1);
    EXPECT_EQ(recorder->wait().cause, FinishCause::kShutdown);
  }
  GenerationRequest made = request(ids(20), 2);
  made.sink = std::make_shared<Recorder>();
  EXPECT_EQ(scheduler->submit(std::move(made)).error().code, ErrorCode::kState);
  EXPECT_FALSE(scheduler->status().accepts_requests);

  // With time left, what runs and waits is finished.
  auto patient = make(options(1));
  auto one = submit(*patient, request(ids(20), 5)), two = submit(*patient, request(ids(20, 1), 5));
  patient->shutdown(GenerationClock::now() + hours(1));
  EXPECT_EQ(one->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(two->wait().cause, FinishCause::kMaxTokens);
}

// ---- Failing steps ----

TEST_F(SchedulerTest, AStepThatFailsOnceHurtsNobody) {
  std::atomic<int> failures_left = 0;
  model_->set_probe([&](const ProbeEvent& event) {
    if (event.name == "final_norm" && failures_left > 0) {
      --failures_left;
      static_cast<float*>(event.data)[0] = std::nanf("");
    }
  });
  auto scheduler = make(options(3));
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int which = 0; which < 3; ++which) {
    recorders.push_back(std::make_shared<Recorder>());
    recorders.back()->at_token = [&, which](const GeneratedToken& token) {
      if (which == 2 && token.index == 4) failures_left = 1;
      return true;
    };
    GenerationRequest made = request(ids(30, 5 * which), 12);
    made.prompt_logprobs = which == 1;
    submit(*scheduler, std::move(made), recorders.back());
  }
  for (int which = 0; which < 3; ++which) {
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->wait().cause, FinishCause::kMaxTokens);
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->wait().usage.prompt_tokens, 30);
  }
  EXPECT_EQ(failures_left, 0);
  scheduler->shutdown(GenerationClock::now());
  model_->set_probe({});
  for (int which = 0; which < 3; ++which)
    EXPECT_EQ(recorders[static_cast<size_t>(which)]->answer(),
              session_answer(ids(30, 5 * which), 12, {.temperature = 0}));
}

// Another request has evaluated and kept the same prompt meanwhile.
TEST_F(SchedulerTest, APromptWhoseStepFailedMayFindMoreThanItHad) {
  std::atomic<int> failures_left = 0;
  model_->set_probe([&](const ProbeEvent& event) {
    if (event.name == "final_norm" && failures_left > 0) {
      --failures_left;
      static_cast<float*>(event.data)[0] = std::nanf("");
    }
  });
  auto scheduler = make(options(3));
  // Its rows fail the step that both are in.
  auto speaker = submit(*scheduler, request(ids(20, 0), 88));
  auto reader = std::make_shared<Recorder>(), scorer = std::make_shared<Recorder>();
  bool has_come = false;
  scorer->at_prefill = [&](const PrefillProgress& progress) {
    if (progress.done_tokens < 50 || std::exchange(has_come, true)) return;
    GenerationRequest made = request(ids(90), 3);
    made.branch_points = {85};
    submit(*scheduler, std::move(made), reader);
  };
  scorer->at_token = [&](const GeneratedToken&) {
    failures_left = 1;
    return true;
  };
  GenerationRequest scored = request(ids(90), 1);
  scored.prompt_logprobs = true;  // nobody waits for such a prompt
  submit(*scheduler, std::move(scored), scorer);
  for (const auto& recorder : {speaker, reader, scorer})
    EXPECT_EQ(recorder->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(failures_left, 0);
  scheduler->shutdown(GenerationClock::now());
  model_->set_probe({});
  EXPECT_EQ(reader->answer(), session_answer(ids(90), 3, {.temperature = 0}));
  EXPECT_EQ(speaker->answer(), session_answer(ids(20, 0), 88, {.temperature = 0}));
}

TEST_F(SchedulerTest, OnlyTheRequestAtFaultFails) {
  // Whoever gets as far as position 80 in the first rows of a step cannot be evaluated.
  model_->set_probe([&](const ProbeEvent& event) {
    if (event.name == "final_norm" && event.first_position >= 80)
      static_cast<float*>(event.data)[0] = std::nanf("");
  });
  auto scheduler = make(options(3));
  auto good = submit(*scheduler, request(ids(30), 40));
  good->wait_for_tokens(2);
  auto bad = submit(*scheduler, request(ids(100, 0), 5));
  auto other = submit(*scheduler, request(ids(35, 9), 20));
  EXPECT_EQ(bad->wait().cause, FinishCause::kError);
  EXPECT_EQ(bad->wait().error.code, ErrorCode::kBadPack);
  EXPECT_TRUE(bad->answer().empty());
  EXPECT_EQ(good->wait().cause, FinishCause::kMaxTokens);
  EXPECT_EQ(other->wait().cause, FinishCause::kMaxTokens);
  auto next = submit(*scheduler, request(ids(30), 5));
  EXPECT_EQ(next->wait().cause, FinishCause::kMaxTokens);
  scheduler->shutdown(GenerationClock::now());
  model_->set_probe({});
  EXPECT_EQ(good->answer(), session_answer(ids(30), 40, {.temperature = 0}));
  EXPECT_EQ(other->answer(), session_answer(ids(35, 9), 20, {.temperature = 0}));
}

}  // namespace
}  // namespace fathom
