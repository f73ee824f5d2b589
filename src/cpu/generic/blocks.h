// Decoders of 32 columns of the formats that are more than a conversion. Included after a vec.h; an instruction
// set that has better ones includes them before and defines FATHOM_HAS_BLOCKS.
#pragma once

#include "cpu/generic/scales.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

static const int kBlock = 32;
static const int kBlockVectors = kBlock / kLanes;

#ifndef FATHOM_HAS_BLOCKS

FATHOM_INLINE void bf16_block(const uint8_t* p, F* out) {
  for (int v = 0; v < kBlockVectors; ++v) out[v] = f_bits(i_left(i_widen_u16(p + 2 * kLanes * v), 16));
}

// e4m3 bits moved into a float32: the value times 2^-120.
FATHOM_INLINE F fp8_bits(const uint8_t* codes) {
  return f_bits(i_and(i_left(i_widen_i8(codes), 20), i_set((int32_t)0x87F00000u)));
}

// One factor undoes 2^-120 and applies the scale, unless their product is beyond float32.
FATHOM_INLINE void fp8_block(const uint8_t* codes, const uint8_t* scale, F* out) {
  const F factor = f_set(e8m0((uint8_t)(*scale + 120)));
  for (int v = 0; v < kBlockVectors; ++v) out[v] = f_mul(fp8_bits(codes + v * kLanes), factor);
  if (__builtin_expect(*scale > 134, 0)) {
    for (int v = 0; v < kBlockVectors; ++v)
      out[v] = f_mul(f_mul(fp8_bits(codes + v * kLanes), f_set(0x1p120f)), f_set(e8m0(*scale)));
  }
}

FATHOM_INLINE float half_at(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return half_to_float(half);
}

FATHOM_INLINE void q8_0_block(const uint8_t* block, F* out) {
  const F scale = f_set(half_at(block));
  for (int v = 0; v < kBlockVectors; ++v) out[v] = f_mul(f_from_i(i_widen_i8(block + 2 + v * kLanes)), scale);
}

// Columns [32 * part, 32 * part + 32) of a block of 256: 16 bytes of scales and minima for 16 columns each,
// 64 of codes, d, dmin.
FATHOM_INLINE void q2_k_block(const uint8_t* block, int part, F* out) {
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  const uint8_t* codes = block + 16 + 32 * (part / 4);
  for (int half = 0; half < 2; ++half) {
    const uint8_t scale = block[2 * part + half];
    const F step = f_set(d * (float)(scale & 15));
    const F floor = f_set(dmin * (float)(scale >> 4));
    for (int v = half * kBlockVectors / 2; v < (half + 1) * kBlockVectors / 2; ++v) {
      const I q = i_and(i_right(i_widen_i8(codes + v * kLanes), 2 * (part % 4)), i_set(3));
      out[v] = f_sub(f_mul(step, f_from_i(q)), floor);
    }
  }
}

// The same of d, dmin, 12 bytes of packed scales and minima for 32 columns each, 128 of codes.
FATHOM_INLINE void q4_k_block(const uint8_t* block, int part, F* out) {
  const uint8_t* scales = block + 4;
  int scale, min;
  if (part < 4) {
    scale = scales[part] & 63;
    min = scales[part + 4] & 63;
  } else {
    scale = (scales[part + 4] & 15) | (scales[part - 4] >> 6) << 4;
    min = (scales[part + 4] >> 4) | (scales[part] >> 6) << 4;
  }
  const F step = f_set(half_at(block) * (float)scale);
  const F floor = f_set(half_at(block + 2) * (float)min);
  const uint8_t* codes = block + 16 + 32 * (part / 2);
  for (int v = 0; v < kBlockVectors; ++v) {
    const I q = i_and(i_right(i_widen_i8(codes + v * kLanes), 4 * (part % 2)), i_set(15));
    out[v] = f_sub(f_mul(step, f_from_i(q)), floor);
  }
}

// Block `b` of a row of an encoding that is not generic.
FATHOM_INLINE void other_block(enum Encoding, const uint8_t*, int64_t, F*) {}

#endif  // FATHOM_HAS_BLOCKS

}  // namespace
}  // namespace fathom::cpu
