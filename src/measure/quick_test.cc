#include "measure/quick.h"

#include <gtest/gtest.h>

#include "measure/testing.h"

namespace fathom::measure {
namespace {

class QuickTest : public ::testing::Test {
 protected:
  QuickTest() : source_(scripted_source("novel", 600)) {
    settings_.context_tokens = {100, 500};
    settings_.generated_tokens = 16;
    settings_.interrupted = [] { return false; };
  }
  TargetInfo start(ScriptedTarget& target) { return target.start().value(); }

  SourceText source_;
  QuickSettings settings_;
  ScriptedTarget::Journal journal_;
};

TEST_F(QuickTest, DecodeIsTheRateBetweenTokens) {
  ScriptedTarget target({}, journal_);
  const auto lines = measure_decode(target, start(target), source_, settings_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].context_tokens, 500);
  ASSERT_EQ(lines[1].values.size(), 3u);
  for (const double value : lines[1].values) EXPECT_NEAR(value, 100, 1e-9);
  EXPECT_EQ(journal_.prompts[3].size(), 500u);
}

TEST_F(QuickTest, PrefillNeverGetsWhatTheTargetHasKept) {
  ScriptedTarget target({.is_silent = true, .can_clear = false}, journal_);
  const auto lines = measure_prefill(target, start(target), source_, settings_);
  ASSERT_EQ(lines[0].values.size(), 3u);
  // At most BOS was there already: one token of 100, or of 500.
  for (const double value : lines[0].values) EXPECT_NEAR(value, 1000, 1000.0 / 99 + 1e-9);
  for (const double value : lines[1].values) EXPECT_NEAR(value, 1000, 1000.0 / 499 + 1e-9);
  // BOS, and then another place of the text each time.
  EXPECT_EQ(journal_.prompts[0][0], journal_.prompts[1][0]);
  EXPECT_EQ(journal_.prompts[0][2], journal_.prompts[1][1]);
  EXPECT_EQ(journal_.prompts[2].size(), 100u);
}

TEST_F(QuickTest, WhatFailsIsNoFigure) {
  ScriptedTarget target({.spoil =
                             [](Generation& seen, int request) {
                               if (request != 1) seen.error = "silence";
                             }},
                        journal_);
  const auto lines = measure_decode(target, start(target), source_, settings_);
  EXPECT_EQ(lines[0].values.size(), 1u);
  EXPECT_EQ(lines[0].error, "silence");
  EXPECT_TRUE(lines[1].values.empty());
}

TEST_F(QuickTest, LoadTakesAFreshProcessEachTime) {
  const auto make = [&] { return std::make_unique<ScriptedTarget>(ScriptedTarget::Behaviour(), journal_); };
  const LoadFigures figures = measure_load(make, source_, settings_);
  EXPECT_EQ(figures.ready_s.size(), 3u);
  EXPECT_EQ(figures.error, "");
  ASSERT_EQ(figures.first_token_s.size(), 3u);
  EXPECT_NEAR(figures.first_token_s[2], 0.016, 1e-12);
  EXPECT_EQ(journal_.starts, 3);
  EXPECT_EQ(journal_.stops, 3);
  EXPECT_EQ(measure_load(
                [&] {
                  return std::make_unique<ScriptedTarget>(ScriptedTarget::Behaviour{.start_error = "no"},
                                                          journal_);
                },
                source_, settings_)
                .error,
            "no");
}

}  // namespace
}  // namespace fathom::measure
