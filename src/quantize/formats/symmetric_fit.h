// Fits of x = scale * level without an offset, the levels being integers or the sixteen levels of IQ4.
#pragma once

#include <cstdint>

#include "quantize/formats/fit.h"
#include "tensor/formats/codebooks.h"

namespace fathom {

/// Integers kLow..kHigh as levels.
template <int kLow, int kHigh>
struct IntegerLevels {
  static float nearest(float value) {
    return nearest_code(value, static_cast<float>(kLow), static_cast<float>(kHigh));
  }
};

/// Nearest levels of IQ4. All points midway between two levels are multiples of a half, so that the half-open
/// interval between such multiples tells the level.
struct Iq4Table {
  static constexpr int kIntervals = 2 * (113 + 127);
  float level[kIntervals];  // of values from (at - 254) / 2 up
};
constexpr Iq4Table make_iq4_table() {
  Iq4Table table{};
  int code = 0;
  for (int at = 0; at < Iq4Table::kIntervals; ++at) {
    while (code < 15 && at - 254 >= kIq4Levels[code] + kIq4Levels[code + 1]) ++code;
    table.level[at] = kIq4Levels[code];
  }
  return table;
}
inline constexpr Iq4Table kIq4Table = make_iq4_table();

struct Iq4Levels {
  static float nearest(float value) {
    const float interval = nearest_code(2.0f * value - 0.5f, -254.0f, Iq4Table::kIntervals - 255.0f);
    return kIq4Table.level[static_cast<int>(interval) + 254];
  }
};

/// 32 levels as their numbers in 16 bytes; low nibbles are the first half.
inline void pack_iq4_levels(const int* levels, uint8_t* out) {
  const auto number = [](int level) {
    return static_cast<int>(std::lower_bound(kIq4Levels, kIq4Levels + 16, level) - kIq4Levels);
  };
  for (int byte = 0; byte < 16; ++byte)
    out[byte] = static_cast<uint8_t>(number(levels[byte]) | number(levels[byte + 16]) << 4);
}

/// Sums over a run with levels q.
struct LevelSums {
  float qq = 0.0f;  // sum of w*q*q
  float xq = 0.0f;  // sum of w*x*q
};
template <class Levels, int kCount>
LevelSums level_sums(Run run, float inverse) {
  float qq[kSums] = {};
  float xq[kSums] = {};
  for (int start = 0; start < kCount; start += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const float x = run.x[start + lane];
      const float level = Levels::nearest(x * inverse);
      const float weighted = run.w[start + lane] * level;
      qq[lane] += weighted * level;
      xq[lane] += weighted * x;
    }
  }
  return {total(qq), total(xq)};
}

/// Weighted squared error of x against scale * nearest level.
template <class Levels, int kCount>
float level_error(Run run, float scale) {
  const float inverse = inverse_or_zero(scale);
  float error[kSums] = {};
  for (int start = 0; start < kCount; start += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const float x = run.x[start + lane];
      const float off = x - scale * Levels::nearest(x * inverse);
      error[lane] += run.w[start + lane] * (off * off);
    }
  }
  return total(error);
}

/// The value of largest magnitude, with its sign.
template <int kCount>
float peak(const float* x) {
  float min = x[0];
  float max = x[0];
  for (int column = 1; column < kCount; ++column) {
    min = x[column] < min ? x[column] : min;
    max = x[column] > max ? x[column] : max;
  }
  return -min > max ? min : max;
}

/// Scale of least error among those that give the peak one of the levels in `targets` (of either sign, not
/// necessarily a level itself), each fitted to its codes.
template <class Levels, int kCount, int kTargets>
float search_scale(Run run, const float (&targets)[kTargets]) {
  const float largest = peak<kCount>(run.x);
  if (largest == 0.0f) return 0.0f;
  float best_scale = 0.0f;
  float best_gain = 0.0f;
  for (const float target : targets) {
    const LevelSums sums = level_sums<Levels, kCount>(run, target / largest);
    // gain = xq^2 / qq is what the fit takes from sum(w*x*x).
    const float scale = sums.xq * inverse_or_zero(sums.qq);
    if (!(scale * sums.xq > best_gain)) continue;
    best_gain = scale * sums.xq;
    best_scale = scale;
  }
  const LevelSums sums = level_sums<Levels, kCount>(run, inverse_or_zero(best_scale));
  const float scale = sums.xq * inverse_or_zero(sums.qq);
  return scale * sums.xq > best_gain ? scale : best_scale;
}

}  // namespace fathom
