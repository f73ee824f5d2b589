#include "quantize/quality.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom {
namespace {

TEST(JudgeToken, IsTheDefinition) {
  const float logits[] = {1.0f, 2.0f, -1.0f}, reference[] = {0.5f, 0.0f, 3.0f};
  const TokenQuality quality = judge_token(logits, reference, 1);
  double p[3], q[3], sum_p = 0, sum_q = 0;
  for (int id = 0; id < 3; ++id) {
    sum_p += p[id] = std::exp(static_cast<double>(reference[id]));
    sum_q += q[id] = std::exp(static_cast<double>(logits[id]));
  }
  double divergence = 0;
  for (int id = 0; id < 3; ++id) divergence += p[id] / sum_p * std::log(p[id] / sum_p / (q[id] / sum_q));
  EXPECT_NEAR(quality.divergence, divergence, 1e-12);
  EXPECT_NEAR(quality.nll, -std::log(q[1] / sum_q), 1e-12);
  EXPECT_NEAR(quality.reference_nll, -std::log(p[1] / sum_p), 1e-12);
  EXPECT_FALSE(quality.same_top);
  EXPECT_GT(divergence, 1);
}

TEST(JudgeToken, OfItselfIsZeroAlsoWhenShifted) {
  const float logits[] = {300.0f, 200.0f, 300.0f}, shifted[] = {0.0f, -100.0f, 0.0f};
  const TokenQuality quality = judge_token(logits, shifted, 2);
  EXPECT_NEAR(quality.divergence, 0, 1e-12);
  EXPECT_TRUE(quality.same_top);
  EXPECT_NEAR(quality.nll, std::log(2.0), 1e-12);
  EXPECT_NEAR(quality.reference_nll, std::log(2.0), 1e-12);
}

TEST(QualityMeter, GivesMeansQuantilesAndErrors) {
  QualityMeter meter(true);
  // Two windows of 3 and 1 tokens.
  meter.begin_window();
  meter.add({.nll = 1, .reference_nll = 1, .divergence = 0.1, .same_top = true});
  meter.add({.nll = 2, .reference_nll = 1, .divergence = 0.4, .same_top = true});
  meter.add({.nll = 3, .reference_nll = 1, .divergence = 0.2, .same_top = false});
  meter.begin_window();
  meter.add({.nll = 6, .reference_nll = 1, .divergence = 0.3, .same_top = true});
  const Quality quality = meter.summary();
  EXPECT_EQ(quality.tokens, 4);
  EXPECT_EQ(quality.windows, 2);
  EXPECT_DOUBLE_EQ(quality.nll.value, 3);
  EXPECT_DOUBLE_EQ(quality.nll.error, std::sqrt((4 + 1 + 0 + 9) / 3.0 / 4.0));
  EXPECT_DOUBLE_EQ(quality.perplexity.value, std::exp(3.0));
  EXPECT_DOUBLE_EQ(quality.perplexity.error, std::exp(3.0) * quality.nll.error);
  EXPECT_DOUBLE_EQ(quality.nll_difference.value, 2);
  EXPECT_DOUBLE_EQ(quality.same_top.value, 0.75);
  EXPECT_DOUBLE_EQ(quality.divergence.value, 0.25);
  EXPECT_DOUBLE_EQ(quality.divergence_median, 0.25);
  EXPECT_DOUBLE_EQ(quality.divergence_p99, 0.397);
  EXPECT_DOUBLE_EQ(quality.divergence_max, 0.4);
  EXPECT_DOUBLE_EQ(quality.probability_difference.value,
                   (std::exp(-1) + std::exp(-2) + std::exp(-3) + std::exp(-6)) / 4 - std::exp(-1));
  // A draw of two windows has mean 2, 3 or 6 with probability 1/4, 1/2, 1/4: variance 2.25.
  EXPECT_NEAR(quality.nll.window_error, 1.5, 0.15);
}

TEST(QualityMeter, SaysWhatItCannotKnow) {
  QualityMeter meter(false);
  meter.begin_window();
  meter.add({.nll = 1});
  const Quality quality = meter.summary();
  EXPECT_FALSE(quality.has_reference);
  EXPECT_TRUE(std::isnan(quality.nll.error));
  EXPECT_TRUE(std::isnan(quality.nll.window_error));
  EXPECT_TRUE(std::isnan(QualityMeter(true).summary().nll.value));
}

}  // namespace
}  // namespace fathom
