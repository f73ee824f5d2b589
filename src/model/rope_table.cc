#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fathom {

std::vector<float> rope_frequencies(double base, int rope_dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < rope_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    frequencies.push_back(1.0f / std::pow(static_cast<float>(base), exponent));
  }
  return frequencies;
}

std::vector<float> yarn_frequencies(double base, int rope_dim, const YarnConfig& yarn) {
  // The pair whose wavelength makes `rotations` turns within the original context.
  const auto pair_of = [&](double rotations) {
    return rope_dim *
           std::log(static_cast<double>(yarn.original_max_position_embeddings) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_of(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(yarn.beta_slow)), static_cast<double>(rope_dim - 1));
  if (high == low) high += 0.001;  // no division by zero in the ramp
  const float factor = static_cast<float>(yarn.factor);
  std::vector<float> frequencies = rope_frequencies(base, rope_dim);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    frequencies[i] = frequencies[i] / factor * (1.0f - keep) + frequencies[i] * keep;
  }
  return frequencies;
}

}  // namespace fathom
