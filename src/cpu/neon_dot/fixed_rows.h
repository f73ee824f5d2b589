// Activation rows as fixed-point numbers, for products with the integer codes of weights.
//
// A block of activations (as many columns as a block of the weights has: 256 or 32) is q * 2^e, q a signed
// integer of 16 or 24 bits and 2^e the power of two that brings the largest one to the range's upper half. A
// bfloat16 number has eight bits, so with 16 it is exact down to 2^-7 of the block's largest and below that
// rounded to 2^-16 of it; with 24 these are 2^-15 and 2^-24. q is split into signed bytes (planes), q = 256 *
// high + low, as the dot product instruction takes them. Products with codes and integer scales are summed in
// 32-bit integers, exactly; one float32 fused multiply-add a block collects them. So no cut of the rows can
// change a result.
#pragma once

#include "cpu/kernels.h"
#include "cpu/neon/vec.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int is_block256(enum Encoding encoding) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ4K || encoding == kEncodingIq2Xxs;
}
FATHOM_INLINE int is_block32(enum Encoding encoding) {
  return encoding == kEncodingQ8_0 || encoding == kEncodingMxfp4 || encoding == kEncodingFp4;
}
FATHOM_INLINE int block_columns(enum Encoding encoding) { return is_block256(encoding) ? 256 : 32; }
// Numbers subtracted from a block of 256: one for each of so many equal runs of columns.
FATHOM_INLINE int floor_count(enum Encoding encoding) {
  return encoding == kEncodingQ2K ? 16 : encoding == kEncodingQ4K ? 8 : 0;
}

// Bytes of q. The official weights are FP4: with 16 bits their layers would round to bfloat16 the other way more
// often than other orders of summation do. The block formats lose more than that in their own quantisation.
enum { kMostPlanes = 3 };
FATHOM_INLINE int plane_count(enum Encoding encoding) {
  return encoding == kEncodingMxfp4 || encoding == kEncodingFp4 ? 3 : 2;
}

// A prepared row: of every 32 columns the 32 highest bytes, and so on down, in the order of the encoding's codes;
// the scale of each block; floor_count sums of activations for each block.
struct FixedRow {
  const int8_t* q;
  const float* scales;
  const float* sums;
};
FATHOM_INLINE struct FixedRow fixed_row(enum Encoding encoding, const uint8_t* row, int64_t cols) {
  struct FixedRow result;
  result.q = (const int8_t*)row;
  result.scales = (const float*)(row + plane_count(encoding) * cols);
  result.sums = result.scales + cols / block_columns(encoding);
  return result;
}

static int64_t fixed_row_bytes(const struct EncodedMatrix* m) {
  const enum Encoding encoding = m->encoding;
  if (!is_block256(encoding) && !is_block32(encoding)) return 0;
  const int64_t blocks = m->cols / block_columns(encoding);
  return (plane_count(encoding) * m->cols + 4 * blocks * (1 + floor_count(encoding)) + 63) / 64 * 64;
}

FATHOM_INLINE float largest_magnitude(const float* in, int count) {
  F largest = f_zero();
  for (int k = 0; k < count; k += kLanes) largest = vmaxq_f32(largest, vabsq_f32(f_load(in + k)));
  return vmaxvq_f32(largest);  // NaN if one of them is
}

// Bits of the power of two that a block is divided by; NaN where an infinity or a NaN is among it.
FATHOM_INLINE uint32_t block_scale_bits(float largest, int planes) {
  const uint32_t places = (uint32_t)(8 * planes - 2);
  uint32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  // The scale is not below 2^-121: what is smaller than that becomes zero.
  const uint32_t exponent = bits >> 23 < places + 6 ? places + 6 : bits >> 23;
  if (exponent == 255) return 0x7FC00000u;
  // All eight bits set would need a highest byte of 128.
  const uint32_t is_beyond = (bits & 0x7FFFFFu) > 0x7E0000u;
  return (exponent + is_beyond - places) << 23;
}

// The lowest bytes of 16 numbers, which lose them.
FATHOM_INLINE int8x16_t take_bytes(I* q) {
  const int16x8_t first = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
  const int16x8_t second = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
  for (int v = 0; v < 4; ++v) q[v] = vrshrq_n_s32(q[v], 8);
  return vcombine_s8(vmovn_s16(first), vmovn_s16(second));
}
FATHOM_INLINE int sum_of(const I* q) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
}
// 32 columns. Stores the sums of both halves.
FATHOM_INLINE void fix_columns(enum Encoding encoding, const float* in, float inverse, int8_t* out, int* sums) {
  I q[8];
  for (int v = 0; v < 8; ++v) q[v] = i_nearest(vmulq_n_f32(f_load(in + kLanes * v), inverse));
  sums[0] = sum_of(q);
  sums[1] = sum_of(q + 4);
  for (int plane = plane_count(encoding) - 1; plane >= 0; --plane) {
    const int8x16_t first = take_bytes(q), second = take_bytes(q + 4);
    const int is_paired = encoding == kEncodingFp4;  // the even columns, then the odd ones
    vst1q_s8(out + 32 * plane, is_paired ? vuzp1q_s8(first, second) : first);
    vst1q_s8(out + 32 * plane + 16, is_paired ? vuzp2q_s8(first, second) : second);
  }
}

static void fixed_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const enum Encoding encoding = m->encoding;
  const int columns = block_columns(encoding), floors = floor_count(encoding), planes = plane_count(encoding);
  float* scales = (float*)(out + planes * m->cols);
  float* sums = scales + m->cols / columns;
  for (int64_t k = 0; k < m->cols; k += columns, ++scales, sums += floors) {
    const uint32_t scale_bits = block_scale_bits(largest_magnitude(in + k, columns), planes);
    const uint32_t inverse_bits = (254u << 23) - scale_bits;
    float inverse;
    memcpy(scales, &scale_bits, sizeof *scales);
    memcpy(&inverse, &inverse_bits, sizeof inverse);
    for (int part = 0; part < columns / 32; ++part) {
      int halves[2];
      const int64_t at = k + 32 * part;
      fix_columns(encoding, in + at, inverse, (int8_t*)out + planes * at, halves);
      if (floors == 16) {
        sums[2 * part] = *scales * (float)halves[0];
        sums[2 * part + 1] = *scales * (float)halves[1];
      } else if (floors == 8) {
        sums[part] = *scales * (float)(halves[0] + halves[1]);
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
