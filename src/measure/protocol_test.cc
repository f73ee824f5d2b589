#include "measure/protocol.h"

#include <gtest/gtest.h>

#include "measure/testing.h"

namespace fathom::measure {
namespace {

using Journal = ScriptedTarget::Journal;

ProtocolSettings settings() {
  ProtocolSettings settings;
  settings.plan.alone_tokens = {64};
  settings.plan.step_tokens = {256, 512, 768};
  settings.plan.generated_tokens = 16;
  settings.greeting_ids = {901, 902};
  return settings;
}

struct Outcome {
  RunOutcome run;
  Journal journal;
  std::vector<std::string> lines;
};

Outcome run_with(ScriptedTarget::Behaviour behaviour, std::vector<int> disturbed = {},
                 int interrupted_after = 1000) {
  Outcome outcome;
  ScriptedTarget target(std::move(behaviour), outcome.journal);
  ScriptedObserver observer;
  observer.disturbed_stages = std::move(disturbed);
  outcome.run = run_protocol(target, scripted_source("novel", 1000), 1, settings(),
                             {.observer = observer,
                              .interrupted = [&] { return outcome.journal.requests >= interrupted_after; },
                              .say = [&](const std::string& line) { outcome.lines.push_back(line); }});
  return outcome;
}

TEST(Protocol, SendsPromptsThatGoOnFromTheAnswers) {
  const Outcome outcome = run_with({});
  const SourceText source = scripted_source("novel", 1000);
  const auto& prompts = outcome.journal.prompts;
  // Two processes, each greeted: the one alone and the series.
  EXPECT_EQ(outcome.journal.starts, 2);
  EXPECT_EQ(outcome.journal.stops, 2);
  ASSERT_EQ(prompts.size(), 6u);
  EXPECT_EQ(prompts[0], (std::vector<int32_t>{901, 902}));
  EXPECT_EQ(prompts[2], (std::vector<int32_t>{901, 902}));
  EXPECT_EQ(prompts[1], std::vector<int32_t>(source.ids.begin(), source.ids.begin() + 64));
  EXPECT_EQ(prompts[3], std::vector<int32_t>(source.ids.begin(), source.ids.begin() + 256));

  ASSERT_EQ(outcome.run.run.stages.size(), 4u);
  std::vector<int32_t> expected = prompts[3];
  const std::vector<int32_t>& answer = outcome.run.run.stages[1].output_ids;
  ASSERT_EQ(answer.size(), 16u);
  expected.insert(expected.end(), answer.begin(), answer.end());
  expected.insert(expected.end(), source.ids.begin() + 256, source.ids.begin() + 512);
  EXPECT_EQ(prompts[4], expected);
  EXPECT_EQ(prompts[5].size(), 768u + 2 * 16);
}

TEST(Protocol, FiguresAreThoseOfTheTimes) {
  const Outcome outcome = run_with({});
  const std::vector<Stage>& stages = outcome.run.run.stages;
  // 64 tokens at 1 ms; 16 tokens at 10 ms.
  EXPECT_EQ(stages[0].name, "64");
  EXPECT_DOUBLE_EQ(stages[0].first_token_s, 0.064);
  EXPECT_NEAR(*stages[0].prefill_tokens_per_s, 1000, 1e-9);
  EXPECT_NEAR(*stages[0].generation_f1_tokens_per_s, 16 / 0.150, 1e-9);
  EXPECT_NEAR(*stages[0].generation_f2_tokens_per_s, 100, 1e-9);
  EXPECT_NEAR(stages[0].total_s, 0.214, 1e-12);
  EXPECT_EQ(stages[0].first_gaps_ms, (std::vector<double>{0, 10, 10, 10}));
  EXPECT_NEAR(*stages[0].gap_p99_ms, 10, 1e-9);
  // Exact continuation: the new tokens and one.
  EXPECT_EQ(*stages[1].evaluated_tokens, 256);
  EXPECT_EQ(*stages[2].evaluated_tokens, 257);
  EXPECT_EQ(*stages[3].evaluated_tokens, 257);
  EXPECT_EQ(stages[3].prompt_tokens, 768 + 2 * 16);
  EXPECT_EQ(stages[3].new_tokens, 256);
  // The same is seen in the times, with the rate of the first stage.
  EXPECT_EQ(*stages[3].cached_tokens_implied, *stages[3].cached_tokens_claimed);
  EXPECT_EQ(outcome.lines.size(), 4u);
}

TEST(Protocol, NamesHowATargetContinues) {
  const auto variant = [](ScriptedTarget::Behaviour behaviour) {
    const Outcome outcome = run_with(std::move(behaviour));
    return variant_name(variant_of(outcome.run.info, settings().plan, {outcome.run.run}));
  };
  EXPECT_STREQ(variant({}), "http_ids_exact");
  EXPECT_STREQ(variant({.keeps = Keeps::kPrompts}), "http_ids_reprocessed");
  EXPECT_STREQ(variant({.keeps = Keeps::kNothing}), "http_ids_cold");
  EXPECT_STREQ(variant({.is_http = false}), "session");
  EXPECT_STREQ(variant({.has_ids = false}), "http_text");
  // Without a claim, the driver's word counts.
  EXPECT_STREQ(variant({.is_silent = true}), "http_ids_exact");
  EXPECT_STREQ(variant({.keeps = Keeps::kPrompts, .is_silent = true}), "http_ids_reprocessed");
  // A cache that works sometimes.
  EXPECT_STREQ(variant({.spoil =
                            [](Generation& seen, int request) {
                              if (request == 5) seen.claimed_cached_tokens = 0;
                            }}),
               "mixed");
}

TEST(Protocol, ReprocessedAnswersAreCountedAsEvaluated) {
  const Outcome outcome = run_with({.keeps = Keeps::kPrompts});
  // 256 new ones, 16 generated, and the prompt's last: the articles' 33,025 in small.
  EXPECT_EQ(*outcome.run.run.stages[2].evaluated_tokens, 256 + 16 + 1);
  EXPECT_NEAR(*outcome.run.run.stages[2].prefill_tokens_per_s, 1000, 1e-9);
}

TEST(Protocol, AFalseClaimShowsInTheTimes) {
  // It evaluates everything and claims to have kept everything.
  const Outcome outcome = run_with({.keeps = Keeps::kNothing, .spoil = [](Generation& seen, int request) {
                                      if (request == 5)
                                        seen.claimed_cached_tokens = *seen.claimed_prompt_tokens - 257;
                                    }});
  const Stage& stage = outcome.run.run.stages[3];
  EXPECT_EQ(*stage.cached_tokens_claimed, 543);
  EXPECT_EQ(*stage.cached_tokens_implied, 0);
}

TEST(Protocol, TextTargetsGetTheSameTextInPieces) {
  const Outcome outcome = run_with({.has_ids = false});
  const SourceText source = scripted_source("novel", 1000);
  const std::vector<std::string>& texts = outcome.journal.texts;
  ASSERT_EQ(texts.size(), 6u);
  EXPECT_EQ(texts[3], source.text.substr(0, 255));  // the first id is BOS, of no text
  EXPECT_EQ(texts[4].substr(0, 255), texts[3]);
  EXPECT_EQ(texts[4].size(), 511u + 16);
  EXPECT_EQ(texts[4].substr(271), source.text.substr(255, 256));
  EXPECT_EQ(outcome.run.run.stages[2].status, StageStatus::kOk);
}

struct Fault {
  const char* name;
  void (*spoil)(Generation& seen);
  const char* says;
};

class ProtocolFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(ProtocolFaults, EndInAMarkedStageWithoutFigures) {
  const Fault& fault = GetParam();
  const Outcome outcome = run_with({.spoil = [&](Generation& seen, int request) {
    if (request == 4) fault.spoil(seen);
  }});
  const std::vector<Stage>& stages = outcome.run.run.stages;
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[1].status, StageStatus::kOk);
  EXPECT_EQ(stages[2].status, StageStatus::kFailed);
  EXPECT_NE(stages[2].error.find(fault.says), std::string::npos) << stages[2].error;
  EXPECT_FALSE(stages[2].prefill_tokens_per_s.has_value());
  EXPECT_FALSE(stages[2].generation_f1_tokens_per_s.has_value());
  EXPECT_TRUE(stages[2].output_sha256.empty());
  EXPECT_EQ(stages[3].status, StageStatus::kNotRun);
  EXPECT_EQ(outcome.journal.stops, 2);
}

INSTANTIATE_TEST_SUITE_P(
    All, ProtocolFaults,
    ::testing::Values(
        Fault{"killed", [](Generation& seen) { seen.error = "stream cut"; }, "stream cut"},
        Fault{"short",
              [](Generation& seen) {
                seen.ids.pop_back();
                seen.token_ns.pop_back();
              },
              "expected 16 tokens, found 15"},
        Fault{"long",
              [](Generation& seen) {
                seen.ids.push_back(1);
                seen.token_ns.push_back(seen.ended_ns);
              },
              "found 17"},
        Fault{"empty",
              [](Generation& seen) {
                seen.ids.clear();
                seen.token_ns.clear();
                seen.claimed_output_tokens = 0;
              },
              "found 0"},
        Fault{"untimed", [](Generation& seen) { seen.token_ns.pop_back(); }, "one time for each of the 16 ids"},
        Fault{"backwards", [](Generation& seen) { std::swap(seen.token_ns[3], seen.token_ns[9]); },
              "times that rise"},
        Fault{"before", [](Generation& seen) { seen.token_ns[0] = seen.sent_ns - 1; }, "times that rise"},
        Fault{"miscounted", [](Generation& seen) { seen.claimed_prompt_tokens = 5; }, "the target counted 5"},
        Fault{"overcached", [](Generation& seen) { seen.claimed_cached_tokens = 100'000; }, "claimed 100000"},
        Fault{"allcached", [](Generation& seen) { seen.claimed_cached_tokens = *seen.claimed_prompt_tokens; },
              "expected fewer cached"},
        Fault{"negative", [](Generation& seen) { seen.claimed_cached_tokens = -1; }, "claimed -1"},
        Fault{"lateprefill", [](Generation& seen) { seen.prefill_end_ns = seen.token_ns[1]; },
              "end of prefill"}),
    [](const auto& fault) { return std::string(fault.param.name); });

TEST(Protocol, ATargetThatDoesNotStartOrGreetLeavesMarkedStages) {
  const Outcome dead = run_with({.start_error = "no such file"});
  EXPECT_EQ(dead.run.run.error, "no such file");
  ASSERT_EQ(dead.run.run.stages.size(), 4u);
  for (const Stage& stage : dead.run.run.stages) EXPECT_EQ(stage.status, StageStatus::kNotRun);

  const Outcome rude = run_with({.spoil = [](Generation& seen, int request) {
    if (request == 0) seen.error = "status 500";
  }});
  EXPECT_EQ(rude.run.run.error, "greeting: status 500");
  EXPECT_EQ(rude.run.run.stages[0].status, StageStatus::kNotRun);
  EXPECT_EQ(rude.run.run.stages[3].status, StageStatus::kOk);
}

TEST(Protocol, DisturbancesAreMarkedWithTheirStage) {
  const Outcome outcome = run_with({}, {2});
  EXPECT_TRUE(outcome.run.run.is_disturbed);
  EXPECT_EQ(outcome.run.run.disturbances, (std::vector<std::string>{"256: another program took 50 %"}));
  // What stays within the limits is told, too.
  EXPECT_EQ(outcome.run.run.stages[0].observed, (std::vector<std::string>{"another program took 1 %"}));
  EXPECT_FALSE(run_with({}).run.run.is_disturbed);
}

TEST(Protocol, AnInterruptionStartsNothingMore) {
  // After the greeting and the stage of the first process.
  const Outcome outcome = run_with({}, {}, 2);
  EXPECT_EQ(outcome.journal.starts, 1);
  ASSERT_EQ(outcome.run.run.stages.size(), 4u);
  EXPECT_EQ(outcome.run.run.stages[0].status, StageStatus::kOk);
  EXPECT_EQ(outcome.run.run.stages[1].error, "interrupted");
  EXPECT_EQ(outcome.run.run.stages[3].status, StageStatus::kNotRun);
  // In the middle of a series.
  EXPECT_EQ(run_with({}, {}, 4).run.run.stages[2].error, "interrupted");
}

TEST(Protocol, StagesAreNamedByTheirLength) {
  EXPECT_EQ(stage_name(131072), "128K");
  EXPECT_EQ(stage_name(1024), "1K");
  EXPECT_EQ(stage_name(1000), "1000");
  EXPECT_EQ(stage_name(512), "512");
}

}  // namespace
}  // namespace fathom::measure
