// The sixteen e2m1 values under every E8M0 scale.
#pragma once

#include <stdint.h>

namespace fathom::cpu {
namespace {

// The upper halves of the float32 numbers, which hold them exactly, subnormal ones included: sixteen lower
// bytes, then sixteen upper ones.
struct Fp4Tables {
  alignas(32) uint8_t byte[256][32];
};
constexpr uint32_t fp4_upper_half(int scale, int code) {
  constexpr int kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  const int doubled = kDoubled[code % 8];
  const uint32_t sign = code < 8 ? 0u : 0x8000u;
  if (scale == 255) return 0x7FC0u;
  if (doubled == 0) return sign;
  int power = 0;
  while (doubled >> (power + 1) != 0) ++power;
  const int exponent = scale - 1 + power;
  if (exponent >= 255) return sign | 0x7F80u;
  const uint32_t mantissa = ((uint32_t)doubled << 7) >> power;  // 128 to 255
  if (exponent < 1) return sign | mantissa >> (1 - exponent);
  return sign | (uint32_t)exponent << 7 | (mantissa & 127u);
}
constexpr Fp4Tables fp4_tables() {
  Fp4Tables tables{};
  for (int scale = 0; scale < 256; ++scale)
    for (int code = 0; code < 16; ++code) {
      const uint32_t half = fp4_upper_half(scale, code);
      tables.byte[scale][code] = (uint8_t)half;
      tables.byte[scale][16 + code] = (uint8_t)(half >> 8);
    }
  return tables;
}
constexpr Fp4Tables kFp4Tables = fp4_tables();

}  // namespace
}  // namespace fathom::cpu
