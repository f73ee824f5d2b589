#include "measure/campaign.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "measure/folder_lock.h"
#include "measure/testing.h"

namespace fathom::measure {
namespace {

namespace fs = std::filesystem;

class CampaignTest : public ::testing::Test {
 protected:
  CampaignTest() {
    folder_ = fs::temp_directory_path() /
              fmt::format("fathom-campaign-{}-{}", getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    settings_.name = "test";
    settings_.folder = folder_;
    settings_.target = "scripted";
    settings_.protocol.plan.step_tokens = {64, 128};
    settings_.protocol.plan.generated_tokens = 8;
    settings_.protocol.plan.runs = 2;
    settings_.protocol.greeting_ids = {901};
    settings_.sources = {scripted_source("novel", 200), scripted_source("code", 200)};
  }
  ~CampaignTest() override { fs::remove_all(folder_); }

  Result<BenchResult> run() {
    const CampaignTools tools = {
        {.observer = observer_,
         .interrupted = [this] { return interrupted_after_ >= 0 && journal_.requests >= interrupted_after_; },
         .say = [](const std::string&) {}},
        [this] { return std::make_unique<ScriptedTarget>(behaviour_, journal_); },
        [] { return Environment{.machine = "a machine"}; }};
    return run_campaign(settings_, tools);
  }

  fs::path folder_;
  CampaignSettings settings_;
  ScriptedTarget::Behaviour behaviour_;
  ScriptedTarget::Journal journal_;
  ScriptedObserver observer_;
  int interrupted_after_ = -1;  // requests
};

TEST_F(CampaignTest, TakesSourcesInTurnAndKeepsEverything) {
  const Result<BenchResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->runs.size(), 4u);
  EXPECT_EQ(result->runs[0].source + result->runs[1].source + result->runs[2].source, "novelcodenovel");
  EXPECT_EQ(result->runs[2].number, 2);
  EXPECT_EQ(*result->variant, Variant::kHttpIdsExact);
  EXPECT_EQ(result->target.engine, "scripted 1");
  EXPECT_EQ(result->environment.machine, "a machine");
  EXPECT_TRUE(result->divergences.empty());
  ASSERT_EQ(result->remarks.size(), 1u);
  EXPECT_EQ(result->remarks[0], "The server ran already: its runs are not those of fresh processes.");
  const Result<BenchResult> read = read_result(folder_ / "result.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_csv(*read), to_csv(*result));
  EXPECT_TRUE(fs::exists(folder_ / "result.csv"));
}

TEST_F(CampaignTest, AnInterruptedOneGoesOnWhereItWas) {
  interrupted_after_ = 5;  // in the second run, which has a greeting and two stages: it is not kept
  const Result<BenchResult> first = run();
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(journal_.starts, 2);
  EXPECT_FALSE(fs::exists(folder_ / "result.json"));

  interrupted_after_ = -1;
  const Result<BenchResult> second = run();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->runs.size(), 4u);
  EXPECT_EQ(journal_.starts, 2 + 3);

  const Result<BenchResult> third = run();
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(journal_.starts, 5);
  EXPECT_EQ(third->target.engine, "scripted 1");
  EXPECT_EQ(third->runs[3].stages[1].output_sha256, second->runs[3].stages[1].output_sha256);
}

TEST_F(CampaignTest, RefusesAFolderOfAnotherCampaign) {
  ASSERT_TRUE(run().ok());
  settings_.protocol.plan.generated_tokens = 9;
  const Result<BenchResult> other = run();
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("generated_tokens is 8 there and 9 here"), std::string::npos)
      << other.error().message;
  settings_.protocol.plan.generated_tokens = 8;
  // More runs are the same campaign, longer.
  settings_.protocol.plan.runs = 3;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(journal_.starts, 6);
}

TEST_F(CampaignTest, FailedRunsAreMadeAgainAndStayCounted) {
  behaviour_.spoil = [](Generation& seen, int request) { if (request == 2) seen.error = "stream cut"; };
  const Result<BenchResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->runs.size(), 5u);
  EXPECT_TRUE(result->runs[0].is_excluded);
  EXPECT_EQ(result->runs[0].stages[1].error, "stream cut");
  EXPECT_FALSE(result->runs[1].is_excluded);
  EXPECT_EQ(result->runs[1].source, "novel");
}

TEST_F(CampaignTest, WhateverBytesAFaultSaysTheRunIsKept) {
  settings_.attempts = 1;
  settings_.target = "command \xEC\x95";
  behaviour_.spoil = [](Generation& seen, int) { seen.error = "\xEC\x95 cut \xFF"; };
  ASSERT_TRUE(run().ok());
  // What failed is tried again by the next call, and stays counted.
  const Result<BenchResult> again = run();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->runs.size(), 8u);
  EXPECT_NE(again->runs[0].error.find(" cut "), std::string::npos);
}

TEST_F(CampaignTest, OneCampaignAtATimeAndOneSourceAName) {
  settings_.sources[1].source.name = "novel";
  const Result<BenchResult> twice = run();
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("found \"novel\" again"), std::string::npos);

  settings_.sources[1].source.name = "code";
  fs::create_directories(folder_);
  const Result<FolderLock> lock = FolderLock::take(folder_);
  ASSERT_TRUE(lock.ok());
  const Result<BenchResult> second = run();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
}

TEST_F(CampaignTest, RefusesRunsOfAnotherTarget) {
  settings_.protocol.plan.runs = 1;
  ASSERT_TRUE(run().ok());
  settings_.protocol.plan.runs = 2;
  behaviour_.engine = "scripted 2";
  const Result<BenchResult> other = run();
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("engine: \"scripted 1\" there, \"scripted 2\" now"), std::string::npos)
      << other.error().message;
}

TEST_F(CampaignTest, ARunThatAlwaysFailsIsExcludedAfterTheLastAttempt) {
  behaviour_.start_error = "no such server";
  settings_.attempts = 2;
  const Result<BenchResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->runs.size(), 8u);
  for (const auto& failed : result->runs) EXPECT_TRUE(failed.is_excluded);
  EXPECT_FALSE(result->variant.has_value());
}

TEST_F(CampaignTest, DisturbedRunsAreMarkedAndRepeatedOnlyByRule) {
  observer_.disturbed_stages = {1};
  const Result<BenchResult> marked = run();
  ASSERT_TRUE(marked.ok());
  ASSERT_EQ(marked->runs.size(), 4u);
  EXPECT_TRUE(marked->runs[0].is_disturbed);
  EXPECT_FALSE(marked->runs[0].is_excluded);

  settings_.repeats_disturbed = true;
  const Result<BenchResult> repeated = run();
  ASSERT_TRUE(repeated.ok());
  ASSERT_EQ(repeated->runs.size(), 5u);
  EXPECT_TRUE(repeated->runs[0].is_excluded);
  EXPECT_FALSE(repeated->runs[1].is_disturbed);
}

TEST_F(CampaignTest, AsksForTheMarginWhereRunsPart) {
  // The third run, the second of the novel, answers token 5 of its second stage otherwise.
  behaviour_.spoil = [](Generation& seen, int request) {
    if (request == 8) seen.ids[5] = (seen.ids[5] + 7) % 1000;
  };
  const Result<BenchResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->divergences.size(), 1u);
  const Divergence& divergence = result->divergences[0];
  EXPECT_EQ(divergence.source, "novel");
  EXPECT_EQ(divergence.stage, "128");
  EXPECT_EQ(divergence.run_b, 2);
  EXPECT_EQ(divergence.token, 5);
  EXPECT_EQ(divergence.id_b, (divergence.id_a + 7) % 1000);
  EXPECT_DOUBLE_EQ(divergence.logprob_a.value_or(0), -0.25);
  EXPECT_DOUBLE_EQ(divergence.logprob_b.value_or(0), -0.5);
  // It was asked after the very prompt, and the answer so far.
  EXPECT_EQ(journal_.prompts.back().size(), 128u + 8 + 5);
}

TEST_F(CampaignTest, AFolderThatCannotBeWrittenIsAnErrorThatNamesIt) {
  settings_.folder = "/proc/fathom-campaign";
  const Result<BenchResult> result = run();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("/proc/fathom-campaign"), std::string::npos);
}

TEST_F(CampaignTest, ARunOfSomethingElseIsRefused) {
  ASSERT_TRUE(run().ok());
  fs::copy_file(folder_ / "runs" / "code-1-1.json", folder_ / "runs" / "novel-1-1.json",
                fs::copy_options::overwrite_existing);
  const Result<BenchResult> result = run();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("expected run 1 of novel"), std::string::npos) << result.error().message;
}

TEST_F(CampaignTest, ADamagedRunIsAnErrorThatNamesIt) {
  ASSERT_TRUE(run().ok());
  std::ofstream(folder_ / "runs" / "code-1-1.json") << "{\"run\": 3";
  const Result<BenchResult> result = run();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("runs/code-1-1.json"), std::string::npos) << result.error().message;
}

}  // namespace
}  // namespace fathom::measure
