// Four lanes of float32 and roundings, the vocabulary of the block encoders.
//
// Loops over columns work on four lanes at a time, whatever the machine: their sums have one order, and so
// the encoded bytes are the same everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/float_types.h"

namespace fathom {

using Lanes = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline Lanes load_lanes(const float* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof lanes);
  return lanes;
}
inline Lanes all_lanes(float value) { return Lanes{value, value, value, value}; }
inline float sum_of(Lanes lanes) { return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]); }

/// Hides a constant from the compiler: GCC makes a minimum with a constant it knows four instructions, and
/// with one it does not know a single one.
inline float opaque(float value) {
  volatile float hidden = value;
  return hidden;
}

/// Nearest integers, ties to even; |value| < 2^22. Unlike std::nearbyint() one addition and one subtraction
/// on every machine.
template <class Number>
Number nearest_integer(Number value) {
  return (value + 12582912.0f) - 12582912.0f;
}

/// Nearest integers within bounds, which are whole numbers.
template <class Number>
struct CodeRange {
  Number low;
  Number high;
  Number nearest(Number value) const {
    const Number code = nearest_integer(value < high ? value : high);
    return code > low ? code : low;
  }
};
inline CodeRange<Lanes> lane_range(float low, float high) {
  return {all_lanes(opaque(low)), all_lanes(opaque(high))};
}
inline float nearest_code(float value, float low, float high) {
  return CodeRange<float>{low, high}.nearest(value);
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

}  // namespace fathom
