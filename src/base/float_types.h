// Scalar conversions between float32 and the small formats of weight files and caches.
// Rounding is to nearest, ties to even, unless a name says otherwise.
//
// Kernel files compiled for one instruction set must not include this header: an inline function
// compiled there could be the copy the linker keeps for everyone (docs/rooms.md).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fathom {

inline float float_from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t bits_of_float(float value) { return std::bit_cast<uint32_t>(value); }

// bfloat16: the upper half of a float32.
inline float float_from_bf16(uint16_t value) { return float_from_bits(uint32_t{value} << 16); }
inline uint16_t bf16_from_float(float value) {
  uint32_t bits = bits_of_float(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  bits += 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}
inline float round_to_bf16(float value) { return float_from_bf16(bf16_from_float(value)); }

// IEEE half.
inline float float_from_f16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) return float_from_bits(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  // Shift the exponent into place, then scale by 2^112: exact for normals and subnormals alike.
  return float_from_bits(sign | bits_of_float(float_from_bits(magnitude << 13) * 0x1p112f));
}
uint16_t f16_from_float(float value);

// OCP e4m3 (FN): sign 1, exponent 4 (bias 7), mantissa 3, no infinity, 0x7F and 0xFF are NaN.
inline float float_from_e4m3(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24;
  const uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7Fu) return std::numeric_limits<float>::quiet_NaN();
  return float_from_bits(sign | bits_of_float(float_from_bits(magnitude << 20) * 0x1p120f));
}
/// Saturates at +-448. NaN gives 0x7F.
uint8_t e4m3_from_float(float value);

// E8M0: a power of two, 2^(code-127). Code 0 is the subnormal 2^-127, code 255 is NaN.
inline float float_from_e8m0(uint8_t code) {
  if (code == 0) return 0x1p-127f;
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return float_from_bits(uint32_t{code} << 23);
}

// e2m1: magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign.
inline constexpr float kE2m1Magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
inline float float_from_e2m1(uint8_t code) {
  const float magnitude = kE2m1Magnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}
/// Saturates at +-6; ties go to the even code (0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2,
/// 3.5 -> 4, 5 -> 4). A negative value that rounds to zero keeps its sign bit.
uint8_t e2m1_from_float(float value);

/// Smallest power of two that is >= value, taken from the bits: exponent, plus one when the mantissa
/// is not zero. `value` must be positive, finite and normal.
inline float power_of_two_ceiling(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  return float_from_bits(exponent << 23);
}

}  // namespace fathom
