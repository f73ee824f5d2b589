#include "measure/agreement.h"

#include <cmath>
#include <limits>
#include <map>

namespace fathom::measure {

JudgeAgreement ordinal_agreement(const std::vector<std::vector<int32_t>>& values_of_texts) {
  JudgeAgreement agreement{.alpha = std::numeric_limits<double>::quiet_NaN()};
  std::map<int32_t, double> counts;  // of each value, in texts of two values or more
  for (const auto& values : values_of_texts) {
    if (values.size() < 2) continue;
    ++agreement.texts;
    agreement.values += static_cast<int64_t>(values.size());
    for (const int32_t value : values) counts[value] += 1;
  }
  if (counts.size() < 2) return agreement;

  // Ranks lie in the middle of all equal values; the distance of two values is that of their ranks, squared.
  std::map<int32_t, double> ranks;
  double below = 0;
  for (const auto& [value, count] : counts) {
    ranks[value] = below + count / 2;
    below += count;
  }
  const auto distance = [&](int32_t a, int32_t b) {
    const double steps = ranks[a] - ranks[b];
    return steps * steps;
  };
  double observed = 0;
  for (const auto& values : values_of_texts) {
    if (values.size() < 2) continue;
    std::map<int32_t, double> of_text;
    for (const int32_t value : values) of_text[value] += 1;
    double sum = 0;  // over ordered pairs
    for (const auto& [a, count_a] : of_text)
      for (const auto& [b, count_b] : of_text) sum += count_a * count_b * distance(a, b);
    observed += sum / static_cast<double>(values.size() - 1);
  }
  double expected = 0;
  for (const auto& [a, count_a] : counts)
    for (const auto& [b, count_b] : counts) expected += count_a * count_b * distance(a, b);
  expected /= static_cast<double>(agreement.values - 1);
  agreement.alpha = 1 - observed / expected;
  return agreement;
}

}  // namespace fathom::measure
