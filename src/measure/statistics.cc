#include "measure/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

namespace fathom::measure {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool all_finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

struct Moments {
  double mean = kNaN;
  double variance = kNaN;       // of one value, with count - 1
  double mean_variance = kNaN;  // of the mean
};

Moments moments_of(std::span<const double> values) {
  Moments moments;
  if (values.empty() || !all_finite(values)) return moments;
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  moments.mean = sum / count;
  if (values.size() < 2) return moments;
  // A second pass instead of a sum of squares, which would lose the digits that equal values share. Equal values
  // have no variance at all, whatever the rounding of their mean.
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  double squares = 0;
  for (const double value : values) squares += (value - moments.mean) * (value - moments.mean);
  moments.variance = *smallest == *largest ? 0 : squares / (count - 1);
  moments.mean_variance = moments.variance / count;
  return moments;
}

}  // namespace

double student_t95(double degrees) {
  if (std::isnan(degrees) || degrees <= 0) return kNaN;
  using namespace boost::math::policies;  // NaN instead of exceptions
  using NoThrow = policy<domain_error<ignore_error>, overflow_error<ignore_error>, evaluation_error<ignore_error>>;
  const boost::math::students_t_distribution<double, NoThrow> distribution(degrees);
  return boost::math::quantile(distribution, 0.975);
}

Sample sample_of(std::span<const double> values) {
  Sample sample{.count = static_cast<int64_t>(values.size()), .mean = kNaN, .deviation = kNaN, .variation = kNaN,
                .low = kNaN, .high = kNaN, .smallest = kNaN, .largest = kNaN};
  if (values.empty() || !all_finite(values)) return sample;
  const Moments moments = moments_of(values);
  sample.mean = moments.mean;
  sample.smallest = *std::min_element(values.begin(), values.end());
  sample.largest = *std::max_element(values.begin(), values.end());
  if (values.size() < 2) return sample;
  sample.deviation = std::sqrt(moments.variance);
  if (sample.mean != 0) sample.variation = sample.deviation / sample.mean;
  const double reach = student_t95(static_cast<double>(values.size() - 1)) * std::sqrt(moments.mean_variance);
  sample.low = sample.mean - reach;
  sample.high = sample.mean + reach;
  return sample;
}

double percentile(std::span<const double> values, double share) {
  if (values.empty() || !all_finite(values) || !(share >= 0 && share <= 1)) return kNaN;
  std::vector<double> ordered(values.begin(), values.end());
  std::sort(ordered.begin(), ordered.end());
  const double position = share * static_cast<double>(ordered.size() - 1);
  const auto below = static_cast<size_t>(position);
  if (below + 1 >= ordered.size()) return ordered.back();
  return std::lerp(ordered[below], ordered[below + 1], position - static_cast<double>(below));
}

Ratio ratio_of(std::span<const double> a, std::span<const double> b) {
  Ratio ratio{.value = kNaN, .low = kNaN, .high = kNaN};
  const Moments above = moments_of(a);
  const Moments below = moments_of(b);
  if (std::isnan(above.mean) || std::isnan(below.mean) || below.mean == 0) return ratio;
  ratio.value = above.mean / below.mean;
  if (a.size() < 2 || b.size() < 2) return ratio;

  // The ratio r is in the interval when a - r b is within t standard errors of 0: a quadratic in r.
  const double scaled = ratio.value * ratio.value * below.mean_variance;
  const double variance = above.mean_variance + scaled;
  if (variance == 0) {
    ratio.low = ratio.high = ratio.value;
    return ratio;
  }
  const double degrees = variance * variance /
                         (above.mean_variance * above.mean_variance / static_cast<double>(a.size() - 1) +
                          scaled * scaled / static_cast<double>(b.size() - 1));
  const double t = student_t95(degrees);
  const double g = t * t * below.mean_variance / (below.mean * below.mean);
  if (!(g < 1)) return ratio;
  const double reach = t / std::abs(below.mean) * std::sqrt(above.mean_variance * (1 - g) + scaled);
  ratio.low = (ratio.value - reach) / (1 - g);
  ratio.high = (ratio.value + reach) / (1 - g);
  return ratio;
}

}  // namespace fathom::measure
