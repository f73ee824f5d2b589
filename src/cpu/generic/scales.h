// The scales of weight and cache blocks as float32. Included after a vec.h.
#pragma once

#include <stdint.h>
#include <string.h>

namespace fathom::cpu {
namespace {

FATHOM_INLINE float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
// clang-format off
#define FATHOM_POWERS4(n) (n) << 23, ((n) + 1u) << 23, ((n) + 2u) << 23, ((n) + 3u) << 23
#define FATHOM_POWERS16(n) \
  FATHOM_POWERS4(n), FATHOM_POWERS4((n) + 4u), FATHOM_POWERS4((n) + 8u), FATHOM_POWERS4((n) + 12u)
// Bits of 2^(code - 127): a load and broadcast where arithmetic would take six scalar instructions a block.
static const uint32_t kPowerBits[256] = {
    0x00400000u, 1u << 23, 2u << 23, 3u << 23, FATHOM_POWERS4(4u), FATHOM_POWERS4(8u), FATHOM_POWERS4(12u),
    FATHOM_POWERS16(16u), FATHOM_POWERS16(32u), FATHOM_POWERS16(48u), FATHOM_POWERS16(64u),
    FATHOM_POWERS16(80u), FATHOM_POWERS16(96u), FATHOM_POWERS16(112u), FATHOM_POWERS16(128u),
    FATHOM_POWERS16(144u), FATHOM_POWERS16(160u), FATHOM_POWERS16(176u), FATHOM_POWERS16(192u),
    FATHOM_POWERS16(208u), FATHOM_POWERS16(224u), FATHOM_POWERS4(240u), FATHOM_POWERS4(244u),
    FATHOM_POWERS4(248u), 252u << 23, 253u << 23, 254u << 23, 0x7FC00000u,
};
#undef FATHOM_POWERS16
#undef FATHOM_POWERS4
// clang-format on

FATHOM_INLINE float e8m0(uint8_t code) { return float_of_bits(kPowerBits[code]); }
FATHOM_INLINE float e4m3(uint8_t code) {
  const float magnitude = float_of_bits((uint32_t)(code & 0x7F) << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace
}  // namespace fathom::cpu
