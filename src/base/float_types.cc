#include "base/float_types.h"

namespace fathom {

uint16_t f16_from_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = float_from_bits(bits & 0x7FFFFFFFu);
  if (std::isnan(magnitude)) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x1p-14f) {
    // Subnormal half: adding 0.5 lets the float adder round to multiples of 2^-24.
    return static_cast<uint16_t>(sign | (bits_of_float(magnitude + 0.5f) - bits_of_float(0.5f)));
  }
  uint32_t rounded = bits_of_float(magnitude);
  rounded += 0xFFFu + ((rounded >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

uint8_t e4m3_from_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint8_t sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const float magnitude = float_from_bits(bits & 0x7FFFFFFFu);
  if (std::isnan(magnitude)) return 0x7Fu;
  if (magnitude >= 448.0f) return static_cast<uint8_t>(sign | 0x7Eu);
  if (magnitude < 0x1p-6f) {
    // Subnormal: adding 2^14 makes the float's last bit worth 2^-9, the format's step.
    return static_cast<uint8_t>(sign | (bits_of_float(magnitude + 0x1p14f) - bits_of_float(0x1p14f)));
  }
  uint32_t rounded = bits_of_float(magnitude);
  rounded += 0x7FFFFu + ((rounded >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

uint8_t e2m1_from_float(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float magnitude = std::fabs(value);
  uint8_t code = 0;
  if (magnitude > 5.0f) code = 7;
  else if (magnitude >= 3.5f) code = 6;
  else if (magnitude > 2.5f) code = 5;
  else if (magnitude >= 1.75f) code = 4;
  else if (magnitude > 1.25f) code = 3;
  else if (magnitude >= 0.75f) code = 2;
  else if (magnitude > 0.25f) code = 1;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace fathom
