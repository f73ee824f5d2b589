// Decoders of 32 columns for NEON, in the place of cpu/generic/blocks.h. Included after vec.h.
//
// A byte costs little to place anywhere in a word (a table look-up), so bytes become float32 by one look-up and
// one conversion from fixed point for four of them, without a chain of widening.
#pragma once

#include "cpu/generic/scales.h"
#include "cpu/kernels.h"

#define FATHOM_HAS_BLOCKS

namespace fathom::cpu {
namespace {

FATHOM_INLINE void bf16_block(const uint8_t* p, F* out) {
#pragma GCC unroll 4
  for (int v = 0; v < 8; v += 2) widen_bf16(vreinterpretq_u16_u8(vld1q_u8(p + 8 * v)), out + v);
}

// e4m3 bits at the places of a bfloat16's: the value times 2^-120.
FATHOM_INLINE void fp8_columns16(const uint8_t* codes, F* out) {
  const int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(codes));
  const uint16x8_t copies_of_sign = vdupq_n_u16(0x7800);
  widen_bf16(vbicq_u16(vreinterpretq_u16_s16(vshll_n_s8(vget_low_s8(x), 4)), copies_of_sign), out);
  widen_bf16(vbicq_u16(vreinterpretq_u16_s16(vshll_high_n_s8(x, 4)), copies_of_sign), out + 2);
}
// One factor undoes 2^-120 and applies the scale, unless their product is beyond float32.
FATHOM_INLINE void fp8_block(const uint8_t* codes, const uint8_t* scale, F* out) {
  const float factor = e8m0((uint8_t)(*scale + 120));
  fp8_columns16(codes, out);
  fp8_columns16(codes + 16, out + 4);
  if (__builtin_expect(*scale > 134, 0)) {
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) out[v] = vmulq_n_f32(vmulq_n_f32(out[v], 0x1p120f), e8m0(*scale));
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) out[v] = vmulq_n_f32(out[v], factor);
}

FATHOM_INLINE void q8_0_block(const uint8_t* block, F* out) {
  const float scale = half_at(block);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const uint8x16_t codes = vld1q_u8(block + 2 + 16 * half);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) out[4 * half + v] = vmulq_n_f32(f_from_bytes(codes, v), scale);
  }
}

// Columns [32 * part, 32 * part + 32) of a block of 256: 16 bytes of scales and minima for 16 columns each,
// 64 of codes, d, dmin. The four values of a run are a register, in which a code finds its four bytes.
FATHOM_INLINE void q2_k_block(const uint8_t* block, int part, F* out) {
  static const float kCodes[4] = {0.0f, 1.0f, 2.0f, 3.0f};
  static const uint8_t kFour[4][16] = {{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
                                       {4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7},
                                       {8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 11, 11, 11, 11},
                                       {12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15}};
  static const uint8_t kByteOfFloat[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
  // Two scale bytes to the low bytes of four words; the nibbles of the last two are their minima.
  static const uint8_t kScaleBytes[16] = {0, 255, 255, 255, 1, 255, 255, 255, 0, 255, 255, 255, 1, 255, 255, 255};
  static const int32_t kNibbleShift[4] = {0, 0, -4, -4};
  const uint8x16_t pair = vcombine_u8(vld1_u8(block + 2 * part), vdup_n_u8(0));
  const uint32x4_t shifted =
      vshlq_u32(vreinterpretq_u32_u8(vqtbl1q_u8(pair, vld1q_u8(kScaleBytes))), vld1q_s32(kNibbleShift));
  // d and dmin are the last two of these four halves.
  const F factors = f_widen_f16(block + 76);
  // Steps of both runs, then their minima.
  const F steps = f_mul(vcvtq_f32_u32(vandq_u32(shifted, vdupq_n_u32(15))), vzip2q_f32(factors, factors));
  const uint8_t* codes = block + 16 + 32 * (part / 4);
  const int8x16_t shift = vdupq_n_s8((int8_t)(2 - 2 * (part % 4)));  // to the place of 4 * code
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const F step = half == 0 ? vdupq_laneq_f32(steps, 0) : vdupq_laneq_f32(steps, 1);
    const F floor = half == 0 ? vdupq_laneq_f32(steps, 2) : vdupq_laneq_f32(steps, 3);
    const uint8x16_t values = vreinterpretq_u8_f32(f_sub(f_mul(vld1q_f32(kCodes), step), floor));
    const uint8x16_t first = vandq_u8(vshlq_u8(vld1q_u8(codes + 16 * half), shift), vdupq_n_u8(12));
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const uint8x16_t place = vorrq_u8(vqtbl1q_u8(first, vld1q_u8(kFour[v])), vld1q_u8(kByteOfFloat));
      out[4 * half + v] = vreinterpretq_f32_u8(vqtbl1q_u8(values, place));
    }
  }
}

// Where part `p` of a block of Q4_K has its scale (first word) and minimum (second): bytes of the first sixteen,
// shifts and masks of the lower bits; then of the two upper bits of the parts from 4 on.
struct Q4KPlaces {
  uint8_t low[16], high[16];
  int32_t low_shift[4];
  uint32_t low_mask[4], high_mask[4];
};
constexpr struct Q4KPlaces q4_k_places(int part) {
  struct Q4KPlaces places = {};
  for (int byte = 0; byte < 16; ++byte) places.low[byte] = places.high[byte] = 255;
  places.low[0] = (uint8_t)(4 + (part < 4 ? part : part + 4));
  places.low[4] = (uint8_t)(4 + part + 4);
  places.low_shift[1] = part < 4 ? 0 : -4;
  places.low_mask[0] = places.low_mask[1] = part < 4 ? 63 : 15;
  if (part >= 4) {
    places.high[0] = (uint8_t)(4 + part - 4);
    places.high[4] = (uint8_t)(4 + part);
    places.high_mask[0] = places.high_mask[1] = 0x30;
  }
  return places;
}
constexpr struct Q4KPlaces kQ4KPlaces[8] = {q4_k_places(0), q4_k_places(1), q4_k_places(2), q4_k_places(3),
                                            q4_k_places(4), q4_k_places(5), q4_k_places(6), q4_k_places(7)};

// The same of d, dmin, 12 bytes of packed scales and minima for 32 columns each, 128 of codes.
FATHOM_INLINE void q4_k_block(const uint8_t* block, int part, F* out) {
  const struct Q4KPlaces* places = &kQ4KPlaces[part];
  const uint8x16_t head = vld1q_u8(block);
  const uint32x4_t low = vshlq_u32(vreinterpretq_u32_u8(vqtbl1q_u8(head, vld1q_u8(places->low))),
                                   vld1q_s32(places->low_shift));
  const uint32x4_t high = vshrq_n_u32(vreinterpretq_u32_u8(vqtbl1q_u8(head, vld1q_u8(places->high))), 2);
  const uint32x4_t scales =
      vorrq_u32(vandq_u32(low, vld1q_u32(places->low_mask)), vandq_u32(high, vld1q_u32(places->high_mask)));
  const F steps =
      f_mul(vcvtq_f32_u32(scales), vcvt_f32_f16(vreinterpret_f16_u8(vget_low_u8(head))));
  const F floor = vdupq_laneq_f32(steps, 1);
  const uint8_t* codes = block + 16 + 32 * (part / 2);
  const int8x16_t shift = vdupq_n_s8((int8_t)(-4 * (part % 2)));
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const uint8x16_t q = low_nibbles(vshlq_u8(vld1q_u8(codes + 16 * half), shift));
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      out[4 * half + v] = f_sub(vmulq_laneq_f32(f_from_bytes(q, v), steps, 0), floor);
  }
}

// IQ2_XXS as bfloat16: a quarter of the grid's runs of eight, and where their signs are minus.
struct Iq2XxsTables {
  alignas(16) uint8_t run[256][16];
  alignas(16) uint8_t minus[128][16];
};
static struct Iq2XxsTables iq2_xxs_tables;

static void make_iq2_xxs_tables() {
  const struct IqTables tables = iq_tables();
  for (int entry = 0; entry < 256; ++entry)
    for (int j = 0; j < 8; ++j) {
      const float value = 0.25f * (float)tables.iq2_xxs[8 * entry + j];
      memcpy(&iq2_xxs_tables.run[entry][2 * j], (const uint8_t*)&value + 2, 2);
    }
  for (int code = 0; code < 128; ++code)
    for (int j = 0; j < 8; ++j)
      iq2_xxs_tables.minus[code][2 * j + 1] = (uint8_t)((tables.even_signs[code] >> j & 1) << 7);
}

// Columns [32 * part, 32 * part + 32) of a block of 256: d, then eight times four indices of runs, four times
// seven bits of signs and four bits of scale.
FATHOM_INLINE void iq2_xxs_block(const uint8_t* block, int part, F* out) {
  uint64_t group;
  memcpy(&group, block + 2 + 8 * part, sizeof group);
  const float scale = half_at(block) * (0.5f + (float)(int)(group >> 60));
#pragma GCC unroll 4
  for (int run = 0; run < 4; ++run) {
    const uint8x16_t magnitude = vld1q_u8(iq2_xxs_tables.run[group >> (8 * run) & 255]);
    const uint8x16_t minus = vld1q_u8(iq2_xxs_tables.minus[group >> (32 + 7 * run) & 127]);
    widen_bf16(vreinterpretq_u16_u8(veorq_u8(magnitude, minus)), out + 2 * run);
  }
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) out[v] = vmulq_n_f32(out[v], scale);
}

// Block `b` of a row of an encoding that is not generic.
FATHOM_INLINE void other_block(enum Encoding encoding, const uint8_t* row, int64_t b, F* out) {
  if (encoding == kEncodingIq2Xxs) iq2_xxs_block(row + b / 8 * 66, (int)(b % 8), out);
}

}  // namespace
}  // namespace fathom::cpu
