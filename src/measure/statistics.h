// Statistics of a few runs. All of them take unordered samples and give NaN where there are too few.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::measure {

struct Sample {
  int64_t count = 0;
  double mean = 0;
  double deviation = 0;  // standard deviation with count - 1; NaN for one
  double variation = 0;  // deviation / mean
  double low = 0, high = 0;  // 95 % confidence interval of the mean (Student's t)
  double smallest = 0, largest = 0;
};
Sample sample_of(std::span<const double> values);

/// Linear interpolation between order statistics (type 7 of Hyndman and Fan 1996, the default of R and NumPy).
double percentile(std::span<const double> values, double share);

/// Ratio of two means, a / b, with its 95 % interval by Fieller's theorem with Welch's degrees of freedom; the
/// interval is NaN where b's mean cannot be told from 0, or where there are fewer than two values on a side.
struct Ratio {
  double value = 0, low = 0, high = 0;
};
Ratio ratio_of(std::span<const double> a, std::span<const double> b);

/// Quantile of Student's t, two-sided 95 %: 4.303 for 2 degrees of freedom.
double student_t95(double degrees);

}  // namespace fathom::measure
