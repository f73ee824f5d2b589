#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fathom::measure {
namespace {

using Values = std::vector<double>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whole degrees: printed tables. Fractional ones: the density integrated by Simpson's rule and bisected.
TEST(StudentT, IsTheTablesQuantile) {
  const std::pair<double, double> known[] = {{1, 12.706205},   {2, 4.302653},  {2.5, 3.574655}, {3.7, 2.867521},
                                             {4, 2.776445},    {10, 2.228139}, {30.5, 2.040869}, {1e12, 1.959964}};
  for (const auto& [degrees, quantile] : known) EXPECT_NEAR(student_t95(degrees), quantile, 2e-6) << degrees;
}

TEST(StudentT, HasNoQuantileWithoutDegrees) {
  for (const double degrees : {0.0, -1.0, kNaN, -kInfinity})
    EXPECT_TRUE(std::isnan(student_t95(degrees))) << degrees;
  EXPECT_NEAR(student_t95(kInfinity), 1.959964, 1e-6);
}

// The classical example of textbooks: mean 5, sum of squares 32.
TEST(Sample, OfEightValues) {
  const Sample sample = sample_of(Values{2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_EQ(sample.count, 8);
  EXPECT_DOUBLE_EQ(sample.mean, 5);
  EXPECT_DOUBLE_EQ(sample.deviation, std::sqrt(32.0 / 7));
  EXPECT_DOUBLE_EQ(sample.variation, std::sqrt(32.0 / 7) / 5);
  EXPECT_NEAR(sample.low, 3.212512, 1e-6);  // 5 - 2.364624 * 2.138090 / sqrt(8)
  EXPECT_NEAR(sample.high, 6.787488, 1e-6);
  EXPECT_EQ(sample.smallest, 2);
  EXPECT_EQ(sample.largest, 9);
}

TEST(Sample, OfOneValueHasNoSpread) {
  const Sample sample = sample_of(Values{37.03});
  EXPECT_EQ(sample.count, 1);
  EXPECT_EQ(sample.mean, 37.03);
  EXPECT_EQ(sample.smallest, 37.03);
  EXPECT_EQ(sample.largest, 37.03);
  EXPECT_TRUE(std::isnan(sample.deviation));
  EXPECT_TRUE(std::isnan(sample.variation));
  EXPECT_TRUE(std::isnan(sample.low));
  EXPECT_TRUE(std::isnan(sample.high));
}

TEST(Sample, OfNothingOrOfWhatIsNoNumberIsNaN) {
  for (const Values& values : {Values{}, Values{1, kNaN, 3}, Values{kInfinity, 1}}) {
    const Sample sample = sample_of(values);
    EXPECT_EQ(sample.count, static_cast<int64_t>(values.size()));
    for (const double figure : {sample.mean, sample.deviation, sample.variation, sample.low, sample.high,
                                sample.smallest, sample.largest})
      EXPECT_TRUE(std::isnan(figure));
  }
}

// 0.1 has no exact double: a sum of squares, or a mean that was rounded, would show a spread that is not there.
TEST(Sample, OfEqualValuesHasNoSpread) {
  const Sample sample = sample_of(Values{0.1, 0.1, 0.1});
  EXPECT_EQ(sample.deviation, 0);
  EXPECT_EQ(sample.low, sample.mean);
  EXPECT_EQ(sample.high, sample.mean);
  EXPECT_TRUE(std::isnan(sample_of(Values{0, 0}).variation));
}

TEST(Sample, SmallSpreadOfLargeValuesKeepsItsDigits) {
  EXPECT_DOUBLE_EQ(sample_of(Values{1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16}).deviation, std::sqrt(30.0));
}

// numpy.percentile and R's quantile(type = 7) of the same values.
TEST(Percentile, IsHyndmanAndFansType7) {
  const Values values = {15, 50, 20, 40, 35};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 15);
  EXPECT_DOUBLE_EQ(percentile(values, 0.05), 16);
  EXPECT_DOUBLE_EQ(percentile(values, 0.3), 23);
  EXPECT_DOUBLE_EQ(percentile(values, 0.4), 29);
  EXPECT_DOUBLE_EQ(percentile(values, 0.5), 35);
  EXPECT_DOUBLE_EQ(percentile(values, 1), 50);
  EXPECT_DOUBLE_EQ(percentile(Values{1, 2, 3, 4}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(percentile(Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9), 9.1);
}

TEST(Percentile, OfFewOrStrangeValues) {
  EXPECT_EQ(percentile(Values{7}, 0.99), 7);
  EXPECT_TRUE(std::isnan(percentile(Values{}, 0.5)));
  EXPECT_TRUE(std::isnan(percentile(Values{1, kNaN}, 0.5)));
  for (const double share : {-0.01, 1.01, kNaN}) EXPECT_TRUE(std::isnan(percentile(Values{1, 2}, share))) << share;
}

// a = 10, 11, 12 and b = 4, 5, 6: both variances of the mean are 1/3, Welch's degrees at r = 2.2 are
// (1 + 4.84)^2 / (1 / 2 + 4.84^2 / 2) = 2.79261 and t = 3.3204175. The ends of the interval solve
// (11 - 5 r)^2 = t^2 (1 + r^2) / 3.
TEST(Ratio, HasFiellersInterval) {
  const Ratio ratio = ratio_of(Values{10, 11, 12}, Values{4, 5, 6});
  EXPECT_DOUBLE_EQ(ratio.value, 2.2);
  EXPECT_NEAR(ratio.low, 1.506671, 1e-6);
  EXPECT_NEAR(ratio.high, 3.651608, 1e-6);
  for (const double end : {ratio.low, ratio.high}) {
    const double distance = 11 - 5 * end;
    EXPECT_NEAR(distance * distance, 3.3204175523 * 3.3204175523 * (1 + end * end) / 3, 1e-6);
  }
}

TEST(Ratio, OfNegativeMeansKeepsItsEndsInOrder) {
  const Ratio ratio = ratio_of(Values{-10, -11, -12}, Values{-4, -5, -6});
  EXPECT_NEAR(ratio.low, 1.506671, 1e-6);
  EXPECT_NEAR(ratio.high, 3.651608, 1e-6);
}

TEST(Ratio, OfConstantsIsExact) {
  const Ratio ratio = ratio_of(Values{6, 6}, Values{3, 3, 3});
  EXPECT_EQ(ratio.value, 2);
  EXPECT_EQ(ratio.low, 2);
  EXPECT_EQ(ratio.high, 2);
}

// With a constant divisor the interval is that of the mean, divided.
TEST(Ratio, ToAConstantIsTheSampleScaled) {
  const Values values = {9.5, 10, 10.8, 10.1};
  const Ratio ratio = ratio_of(values, Values{4, 4, 4});
  const Sample sample = sample_of(values);
  EXPECT_NEAR(ratio.low, sample.low / 4, 1e-12);
  EXPECT_NEAR(ratio.high, sample.high / 4, 1e-12);
}

TEST(Ratio, HasNoIntervalOfSingleValuesOrOfADivisorNearZero) {
  for (const auto& [a, b] : {std::pair{Values{6}, Values{3, 3.1}}, std::pair{Values{6, 6.2}, Values{3}},
                             std::pair{Values{1, 2, 3}, Values{-1, 0, 2}}}) {
    const Ratio ratio = ratio_of(a, b);
    EXPECT_TRUE(std::isfinite(ratio.value));
    EXPECT_TRUE(std::isnan(ratio.low));
    EXPECT_TRUE(std::isnan(ratio.high));
  }
}

TEST(Ratio, OfNothingToZeroOrOfWhatIsNoNumberIsNaN) {
  for (const auto& [a, b] : {std::pair{Values{}, Values{1, 2}}, std::pair{Values{1, 2}, Values{}},
                             std::pair{Values{1, 2}, Values{0, 0}}, std::pair{Values{1, kNaN}, Values{1, 2}}})
    EXPECT_TRUE(std::isnan(ratio_of(a, b).value));
}

}  // namespace
}  // namespace fathom::measure
