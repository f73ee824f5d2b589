// Least-squares fits of a run of columns, on which the block encoders are built.
#pragma once

#include <algorithm>

#include "quantize/formats/lanes.h"

namespace fathom {

/// A run of columns with their weights.
struct Run {
  const float* x;
  const float* w;
};

struct Extremes {
  float min;
  float max;
};
template <int kCount>
Extremes extremes(const float* x) {
  Lanes min = load_lanes(x);
  Lanes max = min;
  for (int column = kLanes; column < kCount; column += kLanes) {
    const Lanes next = load_lanes(x + column);
    min = next < min ? next : min;
    max = next > max ? next : max;
  }
  return {std::min(std::min(min[0], min[1]), std::min(min[2], min[3])),
          std::max(std::max(max[0], max[1]), std::max(max[2], max[3]))};
}

/// Sums over a run that do not depend on its codes.
struct RunSums {
  float w = 0.0f;
  float wx = 0.0f;
};
template <int kCount>
RunSums run_sums(Run run) {
  Lanes w{};
  Lanes wx{};
  for (int column = 0; column < kCount; column += kLanes) {
    const Lanes weight = load_lanes(run.w + column);
    w += weight;
    wx += weight * load_lanes(run.x + column);
  }
  return {sum_of(w), sum_of(wx)};
}

/// Sums over a run with codes q.
struct CodeSums {
  float q = 0.0f;   // sum of w*q
  float qq = 0.0f;  // sum of w*q*q
  float xq = 0.0f;  // sum of w*x*q
};

/// Codes nearest to (x - low) * inverse, in 0..kTop.
template <int kCount, int kTop>
CodeSums code_sums(Run run, float low, float inverse) {
  const CodeRange<Lanes> range = lane_range(0.0f, kTop);
  Lanes q{};
  Lanes qq{};
  Lanes xq{};
  for (int column = 0; column < kCount; column += kLanes) {
    const Lanes x = load_lanes(run.x + column);
    const Lanes code = range.nearest((x - low) * inverse);
    const Lanes weighted = load_lanes(run.w + column) * code;
    q += weighted;
    qq += weighted * code;
    xq += weighted * x;
  }
  return {sum_of(q), sum_of(qq), sum_of(xq)};
}

/// Weighted squared error of x against scale * code + low with the nearest codes in 0..kTop.
template <int kCount, int kTop>
float affine_error(Run run, float scale, float low) {
  const CodeRange<Lanes> range = lane_range(0.0f, kTop);
  const float inverse = inverse_or_zero(scale);
  Lanes error{};
  for (int column = 0; column < kCount; column += kLanes) {
    const Lanes above = load_lanes(run.x + column) - low;
    const Lanes off = above - range.nearest(above * inverse) * scale;
    error += load_lanes(run.w + column) * (off * off);
  }
  return sum_of(error);
}

/// x = scale * q + low. `gain` is what the fit takes from sum(w*x*x): the error is the rest.
struct AffineFit {
  float scale = 0.0f;
  float low = 0.0f;
  float gain = -1.0f;
};

/// Best scale and offset for given codes. With `low_at_most_zero` the offset may not be positive, as the K
/// formats store it as a minimum that is subtracted.
inline AffineFit fit_affine(const RunSums& run, const CodeSums& code, bool low_at_most_zero) {
  const float determinant = run.w * code.qq - code.q * code.q;
  if (determinant > 1e-6f * run.w * code.qq) {
    const float scale = (run.w * code.xq - code.q * run.wx) / determinant;
    const float low = (code.qq * run.wx - code.q * code.xq) / determinant;
    if (scale >= 0.0f && (low <= 0.0f || !low_at_most_zero))
      return {scale, low, scale * code.xq + low * run.wx};
  }
  // One of the two alone.
  const float only_scale = std::max(0.0f, code.xq * inverse_or_zero(code.qq));
  float only_low = run.wx * inverse_or_zero(run.w);
  if (low_at_most_zero) only_low = std::min(0.0f, only_low);
  if (only_scale * code.xq > only_low * run.wx) return {only_scale, 0.0f, only_scale * code.xq};
  return {0.0f, only_low, only_low * run.wx};
}

/// How far the ends of the range of codes lie inside the range of values, in parts of it.
struct Inset {
  float low;
  float high;
};

/// Searches codes in 0..kTop for a run: nearest codes for each inset of [min, max], each fitted, and the best
/// fit repeated with the codes nearest to it, as in Lloyd's iteration.
template <int kCount, int kTop, int kInsets>
AffineFit search_affine(Run run, const RunSums& sums, const Inset (&insets)[kInsets], bool low_at_most_zero) {
  auto [min, max] = extremes<kCount>(run.x);
  if (low_at_most_zero) min = std::min(min, 0.0f);
  const float range = max - min;
  if (!(range > 0.0f)) return {0.0f, min, sums.wx * min};
  AffineFit best;
  for (const Inset& inset : insets) {
    const float low = min + inset.low * range;
    const float inverse = static_cast<float>(kTop) / ((1.0f - inset.low - inset.high) * range);
    const AffineFit fit = fit_affine(sums, code_sums<kCount, kTop>(run, low, inverse), low_at_most_zero);
    if (fit.gain > best.gain) best = fit;
  }
  for (int round = 0; round < 2; ++round) {
    const CodeSums code = code_sums<kCount, kTop>(run, best.low, inverse_or_zero(best.scale));
    const AffineFit fit = fit_affine(sums, code, low_at_most_zero);
    if (!(fit.gain > best.gain)) break;
    best = fit;
  }
  return best;
}

}  // namespace fathom
