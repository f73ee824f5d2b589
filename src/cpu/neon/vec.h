// The vector vocabulary of cpu/generic/ in NEON, as every 64-bit ARM processor has it: 4 lanes, 32 registers.
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "cpu/neon/fp4_tables.h"

namespace fathom::cpu {
namespace {

#define FATHOM_INLINE static inline __attribute__((always_inline))

// Four weight rows times six activation rows: 24 sums, 6 activations and a weight are 31 registers.
#define FATHOM_TILE_ROWS 6
#define FATHOM_FUSED_ROWS 2
static const int kLanes = 4;
static const int kTileRows = FATHOM_TILE_ROWS;
static const int kFusedRows = FATHOM_FUSED_ROWS;
typedef float32x4_t F;
typedef int32x4_t I;

FATHOM_INLINE F f_zero() { return vdupq_n_f32(0.0f); }
FATHOM_INLINE F f_set(float x) { return vdupq_n_f32(x); }
FATHOM_INLINE F f_load(const float* p) { return vld1q_f32(p); }
FATHOM_INLINE void f_store(float* p, F x) { vst1q_f32(p, x); }
// The first `count` lanes; the others are zero.
FATHOM_INLINE F f_load_part(const float* p, int64_t count) {
  if (count >= 4) return vld1q_f32(p);
  F x = f_zero();
  if (count > 0) x = vld1q_lane_f32(p, x, 0);
  if (count > 1) x = vld1q_lane_f32(p + 1, x, 1);
  if (count > 2) x = vld1q_lane_f32(p + 2, x, 2);
  return x;
}
FATHOM_INLINE void f_store_part(float* p, F x, int64_t count) {
  if (count >= 4) return vst1q_f32(p, x);
  if (count > 0) vst1q_lane_f32(p, x, 0);
  if (count > 1) vst1q_lane_f32(p + 1, x, 1);
  if (count > 2) vst1q_lane_f32(p + 2, x, 2);
}
FATHOM_INLINE F f_add(F a, F b) { return vaddq_f32(a, b); }
FATHOM_INLINE F f_sub(F a, F b) { return vsubq_f32(a, b); }
FATHOM_INLINE F f_mul(F a, F b) { return vmulq_f32(a, b); }
FATHOM_INLINE F f_div(F a, F b) { return vdivq_f32(a, b); }
FATHOM_INLINE F f_fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
// a < b ? yes : no
FATHOM_INLINE F f_select_less(F a, F b, F yes, F no) { return vbslq_f32(vcltq_f32(a, b), yes, no); }
// b if one of them is NaN, as the other instruction sets have it; vminq_f32 would return NaN.
FATHOM_INLINE F f_min(F a, F b) { return f_select_less(a, b, a, b); }
FATHOM_INLINE F f_max(F a, F b) { return f_select_less(b, a, a, b); }

FATHOM_INLINE I i_set(int32_t x) { return vdupq_n_s32(x); }
FATHOM_INLINE I i_add(I a, I b) { return vaddq_s32(a, b); }
FATHOM_INLINE I i_sub(I a, I b) { return vsubq_s32(a, b); }
FATHOM_INLINE I i_and(I a, I b) { return vandq_s32(a, b); }
FATHOM_INLINE I i_or(I a, I b) { return vorrq_s32(a, b); }
FATHOM_INLINE I i_left(I a, int bits) { return vshlq_s32(a, vdupq_n_s32(bits)); }
FATHOM_INLINE I i_right(I a, int bits) {
  return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-bits)));
}
FATHOM_INLINE I i_right_signed(I a, int bits) { return vshlq_s32(a, vdupq_n_s32(-bits)); }
FATHOM_INLINE F f_bits(I a) { return vreinterpretq_f32_s32(a); }
FATHOM_INLINE I i_bits(F a) { return vreinterpretq_s32_f32(a); }
FATHOM_INLINE F f_from_i(I a) { return vcvtq_f32_s32(a); }
FATHOM_INLINE I i_nearest(F a) { return vcvtnq_s32_f32(a); }

FATHOM_INLINE F f_widen_f16(const uint8_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
FATHOM_INLINE float half_to_float(uint16_t half) {
  __fp16 value;
  memcpy(&value, &half, sizeof value);
  return value;
}
FATHOM_INLINE float half_at(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return half_to_float(half);
}

// Sum in the fixed tree: lane i takes lane i + 1, then i + 2.
FATHOM_INLINE float f_sum(F x) {
  const F two = vpaddq_f32(x, x);
  return vgetq_lane_f32(vpaddq_f32(two, two), 0);
}
FATHOM_INLINE float f_largest(F x) { return vmaxnmvq_f32(x); }
// f_sum of each of the four, stored to out[0..3].
FATHOM_INLINE void store_sums4(float* out, F a, F b, F c, F d) {
  vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

// Bytes 4 * quarter to 4 * quarter + 3 as the highest bytes of four words: signed integers times 2^24.
FATHOM_INLINE I high_bytes(uint8x16_t bytes, int quarter) {
  static const uint8_t kTo[4][16] = {
      {255, 255, 255, 0, 255, 255, 255, 1, 255, 255, 255, 2, 255, 255, 255, 3},
      {255, 255, 255, 4, 255, 255, 255, 5, 255, 255, 255, 6, 255, 255, 255, 7},
      {255, 255, 255, 8, 255, 255, 255, 9, 255, 255, 255, 10, 255, 255, 255, 11},
      {255, 255, 255, 12, 255, 255, 255, 13, 255, 255, 255, 14, 255, 255, 255, 15}};
  return vreinterpretq_s32_u8(vqtbl1q_u8(bytes, vld1q_u8(kTo[quarter])));
}
// Signed bytes as float32; the conversion divides by 2^24.
FATHOM_INLINE F f_from_bytes(uint8x16_t bytes, int quarter) {
  return vcvtq_n_f32_s32(high_bytes(bytes, quarter), 24);
}
// Eight bfloat16 numbers as float32.
FATHOM_INLINE void widen_bf16(uint16x8_t x, F* out) {
  const uint16x8_t zero = vdupq_n_u16(0);
  out[0] = vreinterpretq_f32_u16(vzip1q_u16(zero, x));
  out[1] = vreinterpretq_f32_u16(vzip2q_u16(zero, x));
}

// The scale itself. A power of two, which is what the blocks of 32 have, finds its sixteen values in a table.
typedef float Fp4Table;
FATHOM_INLINE Fp4Table fp4_table(float scale) { return scale; }
FATHOM_INLINE uint8x16_t low_nibbles(uint8x16_t bytes) { return vandq_u8(bytes, vdupq_n_u8(15)); }
FATHOM_INLINE uint8x16_t high_nibbles(uint8x16_t bytes) { return vshrq_n_u8(bytes, 4); }
// 16 columns of each of two vectors of codes: the upper halves of the float32 are looked up byte by byte.
FATHOM_INLINE void fp4_columns32(uint8x16_t first, uint8x16_t second, Fp4Table scale, F* out) {
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  const uint8_t* table = kFp4Tables.byte[bits >> 23];
  const uint8x16_t low = vld1q_u8(table), high = vld1q_u8(table + 16);
  const uint8x16_t code[2] = {first, second};
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const uint8x16_t low_bytes = vqtbl1q_u8(low, code[half]), upper_bytes = vqtbl1q_u8(high, code[half]);
    widen_bf16(vreinterpretq_u16_u8(vzip1q_u8(low_bytes, upper_bytes)), out + 4 * half);
    widen_bf16(vreinterpretq_u16_u8(vzip2q_u8(low_bytes, upper_bytes)), out + 4 * half + 2);
  }
}
// 32 columns of 16 bytes, the even column in the low nibble.
FATHOM_INLINE void fp4_pairs32(const uint8_t* p, Fp4Table scale, F* out) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint8x16_t even = low_nibbles(bytes), odd = high_nibbles(bytes);
  fp4_columns32(vzip1q_u8(even, odd), vzip2q_u8(even, odd), scale, out);
}
// 32 columns of 16 bytes: the low nibbles, then the high nibbles.
FATHOM_INLINE void fp4_halves32(const uint8_t* p, Fp4Table scale, F* out) {
  const uint8x16_t bytes = vld1q_u8(p);
  fp4_columns32(low_nibbles(bytes), high_nibbles(bytes), scale, out);
}
// 16 columns of 8 bytes, under any scale.
FATHOM_INLINE void fp4_pairs16(const uint8_t* p, Fp4Table scale, float* out) {
  static const uint8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, 255, 254, 253, 252, 250, 248, 244};
  const uint8x16_t bytes = vcombine_u8(vld1_u8(p), vdup_n_u8(0));
  const uint8x16_t codes = vzip1q_u8(low_nibbles(bytes), high_nibbles(bytes));
  const uint8x16_t doubled = vqtbl1q_u8(vld1q_u8(kDoubled), codes);
#pragma GCC unroll 4
  for (int quarter = 0; quarter < 4; ++quarter)
    f_store(out + 4 * quarter, vmulq_n_f32(vcvtq_n_f32_s32(high_bytes(doubled, quarter), 25), scale));
}

}  // namespace
}  // namespace fathom::cpu
