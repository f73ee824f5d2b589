// Unaligned little-endian loads for the block decoders.
#pragma once

#include <cstdint>

#include "base/float_types.h"

namespace fathom {

inline uint16_t load_u16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}
inline uint32_t load_u32(const uint8_t* bytes) {
  return load_u16(bytes) | uint32_t{load_u16(bytes + 2)} << 16;
}
inline uint64_t load_u64(const uint8_t* bytes) {
  return load_u32(bytes) | uint64_t{load_u32(bytes + 4)} << 32;
}
inline float load_f16(const uint8_t* bytes) { return float_from_f16(load_u16(bytes)); }
inline float load_bf16(const uint8_t* bytes) { return float_from_bf16(load_u16(bytes)); }
inline float load_f32(const uint8_t* bytes) { return float_from_bits(load_u32(bytes)); }

/// Nibble `index` of a byte: 0 the low one, 1 the high one.
inline int nibble(uint8_t byte, int index) { return (byte >> (4 * index)) & 15; }

}  // namespace fathom
