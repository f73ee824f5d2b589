// Least-squares fits of a run of columns, on which the block encoders are built.
//
// All loops are plain, of a length known at compile time, with eight partial sums that are added in a fixed
// order: a compiler can use vectors of any width for them without changing a bit of the result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/float_types.h"

namespace fathom {

/// Nearest integer, ties to even; |value| < 2^22. Unlike std::nearbyint() it vectorises everywhere.
inline float nearest_integer(float value) { return (value + 12582912.0f) - 12582912.0f; }

/// Nearest integer in [low, high]. The bounds are applied on two sides of the rounding, because together
/// they become one select that compilers turn into five instructions instead of two.
inline float nearest_code(float value, float low, float high) {
  const float code = nearest_integer(value < high ? value : high);
  return code > low ? code : low;
}

/// The half nearest to a scale; finite, whatever the scale.
inline uint16_t half_of_scale(float scale) {
  return f16_from_float(std::clamp(scale, -65504.0f, 65504.0f));
}
/// The scale as it will be read.
inline float as_half(float scale) { return float_from_f16(half_of_scale(scale)); }

inline void store_half(float scale, uint8_t* out) {
  const uint16_t half = half_of_scale(scale);
  out[0] = static_cast<uint8_t>(half);
  out[1] = static_cast<uint8_t>(half >> 8);
}

/// 0 where the divisor is: a scale of 0 has codes of 0.
inline float inverse_or_zero(float value) { return value != 0.0f ? 1.0f / value : 0.0f; }

inline constexpr int kSums = 8;
inline float total(const float (&sums)[kSums]) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/// A run of columns with their weights.
struct Run {
  const float* x;
  const float* w;
};

/// Sums over a run that do not depend on its codes.
struct RunSums {
  float w = 0.0f;
  float wx = 0.0f;
};
template <int kCount>
RunSums run_sums(Run run) {
  float w[kSums] = {};
  float wx[kSums] = {};
  for (int start = 0; start < kCount; start += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      w[lane] += run.w[start + lane];
      wx[lane] += run.w[start + lane] * run.x[start + lane];
    }
  }
  return {total(w), total(wx)};
}

/// Sums over a run with codes q.
struct CodeSums {
  float q = 0.0f;   // sum of w*q
  float qq = 0.0f;  // sum of w*q*q
  float xq = 0.0f;  // sum of w*x*q
};

/// Codes of (x - low) * inverse, in 0..kTop.
template <int kCount, int kTop>
CodeSums code_sums(Run run, float low, float inverse) {
  float q[kSums] = {};
  float qq[kSums] = {};
  float xq[kSums] = {};
  for (int start = 0; start < kCount; start += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const float x = run.x[start + lane];
      const float code = nearest_code((x - low) * inverse, 0.0f, static_cast<float>(kTop));
      const float weighted = run.w[start + lane] * code;
      q[lane] += weighted;
      qq[lane] += weighted * code;
      xq[lane] += weighted * x;
    }
  }
  return {total(q), total(qq), total(xq)};
}

/// Weighted squared error of x against scale * code + low with the nearest codes in 0..kTop.
template <int kCount, int kTop>
float affine_error(Run run, float scale, float low) {
  const float inverse = inverse_or_zero(scale);
  float error[kSums] = {};
  for (int start = 0; start < kCount; start += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const float above = run.x[start + lane] - low;
      const float off = above - scale * nearest_code(above * inverse, 0.0f, static_cast<float>(kTop));
      error[lane] += run.w[start + lane] * (off * off);
    }
  }
  return total(error);
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
  float min = run.x[0];
  float max = run.x[0];
  for (int column = 1; column < kCount; ++column) {
    min = std::min(min, run.x[column]);
    max = std::max(max, run.x[column]);
  }
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
