// Fits of x = scale * level without an offset, the levels being integers or the sixteen levels of IQ4.
#pragma once

#include <cstdint>

#include "quantize/formats/fit.h"
#include "tensor/formats/codebooks.h"

namespace fathom {

/// Integers kLow..kHigh as levels.
template <int kLow, int kHigh>
class IntegerLevels {
 public:
  Lanes nearest(Lanes value) const { return range_.nearest(value); }

 private:
  CodeRange<Lanes> range_ = lane_range(kLow, kHigh);
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

class Iq4Levels {
 public:
  Lanes nearest(Lanes value) const {
    const auto at = __builtin_convertvector(range_.nearest(value * 2.0f - 0.5f) + 254.0f, IntLanes);
    const float* level = kIq4Table.level;
    return Lanes{level[at[0]], level[at[1]], level[at[2]], level[at[3]]};
  }

 private:
  using IntLanes = int __attribute__((vector_size(16)));
  CodeRange<Lanes> range_ = lane_range(-254.0f, Iq4Table::kIntervals - 255.0f);
};

/// The nearest levels of x * inverse as integers.
template <class Levels>
void write_levels(const float* x, int count, float inverse, int* out) {
  const Levels levels;
  for (int column = 0; column < count; column += kLanes) {
    const Lanes level = levels.nearest(load_lanes(x + column) * inverse);
    for (int lane = 0; lane < kLanes; ++lane) out[column + lane] = static_cast<int>(level[lane]);
  }
}

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
  const Levels levels;
  Lanes qq{};
  Lanes xq{};
  for (int column = 0; column < kCount; column += kLanes) {
    const Lanes x = load_lanes(run.x + column);
    const Lanes level = levels.nearest(x * inverse);
    const Lanes weighted = load_lanes(run.w + column) * level;
    qq += weighted * level;
    xq += weighted * x;
  }
  return {sum_of(qq), sum_of(xq)};
}

/// Weighted squared error of x against scale * nearest level.
template <class Levels, int kCount>
float level_error(Run run, float scale) {
  const Levels levels;
  const float inverse = inverse_or_zero(scale);
  Lanes error{};
  for (int column = 0; column < kCount; column += kLanes) {
    const Lanes x = load_lanes(run.x + column);
    const Lanes off = x - levels.nearest(x * inverse) * scale;
    error += load_lanes(run.w + column) * (off * off);
  }
  return sum_of(error);
}

/// The value of largest magnitude, with its sign.
template <int kCount>
float peak(const float* x) {
  const auto [min, max] = extremes<kCount>(x);
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
