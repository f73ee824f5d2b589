// Activation rows as fixed-point numbers, for products with the integer codes of weights.
//
// A block of activations (as many columns as a block of the weights has: 256 or 32) is q * 2^e, q a signed
// integer of 16 bits and 2^e the power of two that brings the largest one to [2^14, 2^15). A bfloat16 number has
// eight bits, so it is exact down to 2^-7 of the block's largest; below that it is rounded to 2^-16 of it.
// q = 256 * high + low in signed bytes, as the dot product instruction takes them. Products with codes and
// integer scales are summed in 32-bit integers, exactly; one float32 fused multiply-add a block collects them.
// So no cut of the rows can change a result.
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

// A prepared row: of every 32 columns the 32 high bytes, then the 32 low ones, in the order of the encoding's
// codes; the scale of each block; floor_count sums of activations for each block.
struct FixedRow {
  const int8_t* q;
  const float* scales;
  const float* sums;
};
FATHOM_INLINE struct FixedRow fixed_row(enum Encoding encoding, const uint8_t* row, int64_t cols) {
  struct FixedRow result;
  result.q = (const int8_t*)row;
  result.scales = (const float*)(row + 2 * cols);
  result.sums = result.scales + cols / block_columns(encoding);
  return result;
}

static int64_t fixed_row_bytes(const struct EncodedMatrix* m) {
  const enum Encoding encoding = m->encoding;
  if (!is_block256(encoding) && !is_block32(encoding)) return 0;
  const int64_t blocks = m->cols / block_columns(encoding);
  return (2 * m->cols + 4 * blocks * (1 + floor_count(encoding)) + 63) / 64 * 64;
}

FATHOM_INLINE float largest_magnitude(const float* in, int count) {
  F largest = f_zero();
  for (int k = 0; k < count; k += kLanes) largest = vmaxq_f32(largest, vabsq_f32(f_load(in + k)));
  return vmaxvq_f32(largest);  // NaN if one of them is
}

// Bits of the power of two that a block is divided by; NaN where an infinity or a NaN is among it.
FATHOM_INLINE uint32_t block_scale_bits(float largest) {
  uint32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  // Not below 2^-107: what is smaller than 2^-122 becomes zero.
  const uint32_t exponent = bits >> 23 < 20 ? 20 : bits >> 23;
  if (exponent == 255) return 0x7FC00000u;
  // 255 * 2^7 would need a high byte of 128.
  const uint32_t is_beyond = (bits & 0x7FFFFFu) > 0x7E0000u;
  return (exponent + is_beyond - 14) << 23;
}

FATHOM_INLINE int16x8_t fixed8(const float* in, F inverse) {
  const I first = i_nearest(f_mul(f_load(in), inverse)), second = i_nearest(f_mul(f_load(in + 4), inverse));
  return vcombine_s16(vmovn_s32(first), vmovn_s32(second));
}
// 16 columns in their order. Returns their sum.
FATHOM_INLINE int fix_columns16(const float* in, F inverse, int8x16_t* high, int8x16_t* low) {
  const int16x8_t a = fixed8(in, inverse), b = fixed8(in + 8, inverse), half = vdupq_n_s16(128);
  *low = vcombine_s8(vmovn_s16(a), vmovn_s16(b));
  *high = vcombine_s8(vshrn_n_s16(vaddq_s16(a, half), 8), vshrn_n_s16(vaddq_s16(b, half), 8));
  return vaddlvq_s16(a) + vaddlvq_s16(b);
}

static void fixed_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const enum Encoding encoding = m->encoding;
  const int columns = block_columns(encoding), floors = floor_count(encoding);
  float* scales = (float*)(out + 2 * m->cols);
  float* sums = scales + m->cols / columns;
  for (int64_t k = 0; k < m->cols; k += columns, ++scales, sums += floors) {
    const uint32_t scale_bits = block_scale_bits(largest_magnitude(in + k, columns));
    const uint32_t inverse_bits = (254u << 23) - scale_bits;
    float inverse;
    memcpy(scales, &scale_bits, sizeof *scales);
    memcpy(&inverse, &inverse_bits, sizeof inverse);
    for (int part = 0; part < columns / 32; ++part) {
      const float* x = in + k + 32 * part;
      int8_t* q = (int8_t*)out + 2 * (k + 32 * part);
      int8x16_t high[2], low[2];
      const int first = fix_columns16(x, f_set(inverse), &high[0], &low[0]);
      const int second = fix_columns16(x + 16, f_set(inverse), &high[1], &low[1]);
      const int is_paired = encoding == kEncodingFp4;  // the even columns, then the odd ones
      vst1q_s8(q, is_paired ? vuzp1q_s8(high[0], high[1]) : high[0]);
      vst1q_s8(q + 16, is_paired ? vuzp2q_s8(high[0], high[1]) : high[1]);
      vst1q_s8(q + 32, is_paired ? vuzp1q_s8(low[0], low[1]) : low[0]);
      vst1q_s8(q + 48, is_paired ? vuzp2q_s8(low[0], low[1]) : low[1]);
      if (floors == 16) {
        sums[2 * part] = *scales * (float)first;
        sums[2 * part + 1] = *scales * (float)second;
      } else if (floors == 8) {
        sums[part] = *scales * (float)(first + second);
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
