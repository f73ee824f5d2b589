// Weights as signed bytes and integer scales: weight = factor * scale * code - floor.
#pragma once

#include "cpu/neon_dot/fixed_rows.h"
#include "cpu/generic/scales.h"

namespace fathom::cpu {
namespace {

// 32 columns in the order of FixedRow's.
typedef struct {
  int8x16_t first, second;
} Codes;
FATHOM_INLINE Codes codes_of(uint8x16_t first, uint8x16_t second) {
  Codes codes;
  codes.first = vreinterpretq_s8_u8(first);
  codes.second = vreinterpretq_s8_u8(second);
  return codes;
}

FATHOM_INLINE uint32_t u32_at(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

// Of a block of 256.
struct BlockHead {
  int32_t scale[8];  // of 32 columns each; not Q2_K
  float floor[16];   // floor_count of them
  uint8_t run[16];   // Q2_K: scales of 16 columns each, which bytes hold together with the codes
  float factor;
};

FATHOM_INLINE void q2_k_head(const uint8_t* block, struct BlockHead* head) {
  const uint8x16_t scales = vld1q_u8(block);
  const float dmin = half_at(block + 82);
  head->factor = half_at(block + 80);
  vst1q_u8(head->run, low_nibbles(scales));
  const uint8x16_t floors = high_nibbles(scales);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) f_store(head->floor + 4 * k, vmulq_n_f32(f_from_bytes(floors, k), dmin));
}
// Eight scales and eight minima of six bits in twelve bytes.
FATHOM_INLINE void q4_k_head(const uint8_t* block, struct BlockHead* head) {
  const uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
  const uint32_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6) & 0x03030303) << 4;
  const uint32_t floor_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6) & 0x03030303) << 4;
  const uint16x8_t scales = vmovl_u8(vcreate_u8((a & 0x3F3F3F3F) | (uint64_t)scale_high << 32));
  const uint8x8_t floors = vcreate_u8((b & 0x3F3F3F3F) | (uint64_t)floor_high << 32);
  const float dmin = half_at(block + 2);
  head->factor = half_at(block);
  vst1q_s32(head->scale, vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(scales))));
  vst1q_s32(head->scale + 4, vreinterpretq_s32_u32(vmovl_high_u16(scales)));
  const uint8x16_t wide = vcombine_u8(floors, floors);
  f_store(head->floor, vmulq_n_f32(f_from_bytes(wide, 0), dmin));
  f_store(head->floor + 4, vmulq_n_f32(f_from_bytes(wide, 1), dmin));
}
// The highest four bits of every second word, as odd numbers.
FATHOM_INLINE void iq2_xxs_head(const uint8_t* block, struct BlockHead* head) {
  head->factor = 0.125f * half_at(block);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(block + 2 + 32 * half));
    const uint32x4_t second = vreinterpretq_u32_u8(vld1q_u8(block + 18 + 32 * half));
    const uint32x4_t code = vshrq_n_u32(vuzp2q_u32(first, second), 28);
    vst1q_s32(head->scale + 4 * half,
              vreinterpretq_s32_u32(vorrq_u32(vaddq_u32(code, code), vdupq_n_u32(1))));
  }
}
FATHOM_INLINE void block_head(enum Encoding encoding, const uint8_t* block, struct BlockHead* head) {
  switch (encoding) {
    case kEncodingQ2K: return q2_k_head(block, head);
    case kEncodingQ4K: return q4_k_head(block, head);
    default: return iq2_xxs_head(block, head);
  }
}

// Code times scale, at most 45. `part` is a constant where this is inlined.
FATHOM_INLINE uint8x16_t q2_k_run(const uint8_t* block, const struct BlockHead* head, int part, int half) {
  const uint8x16_t x = vld1q_u8(block + 16 + 32 * (part / 4) + 16 * half);
  const uint8x16_t codes = vandq_u8(vshlq_u8(x, vdupq_n_s8((int8_t)(-2 * (part % 4)))), vdupq_n_u8(3));
  return vmulq_u8(codes, vdupq_n_u8(head->run[2 * part + half]));
}
FATHOM_INLINE uint8x16_t q4_k_run(const uint8_t* block, int part, int half) {
  const uint8x16_t x = vld1q_u8(block + 16 + 32 * (part / 2) + 16 * half);
  return part % 2 == 0 ? low_nibbles(x) : high_nibbles(x);
}

struct Iq2XxsTables {
  const int8_t* grid;
  alignas(8) int8_t sign[128][8];  // 1 or -1
};
static struct Iq2XxsTables iq2_xxs_tables;

static void make_iq2_xxs_tables() {
  const struct IqTables tables = iq_tables();
  iq2_xxs_tables.grid = tables.iq2_xxs;
  for (int code = 0; code < 128; ++code)
    for (int j = 0; j < 8; ++j)
      iq2_xxs_tables.sign[code][j] = (int8_t)((tables.even_signs[code] >> j & 1) != 0 ? -1 : 1);
}

// Four indices of runs of eight and four times seven bits of signs.
FATHOM_INLINE Codes iq2_xxs_part(const uint8_t* p) {
  uint64_t group;
  memcpy(&group, p, sizeof group);
  int8x8_t run[4], sign[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    run[k] = vld1_s8(iq2_xxs_tables.grid + 8 * (group >> (8 * k) & 255));
    sign[k] = vld1_s8(iq2_xxs_tables.sign[group >> (32 + 7 * k) & 127]);
  }
  Codes codes;
  codes.first = vmulq_s8(vcombine_s8(run[0], run[1]), vcombine_s8(sign[0], sign[1]));
  codes.second = vmulq_s8(vcombine_s8(run[2], run[3]), vcombine_s8(sign[2], sign[3]));
  return codes;
}

FATHOM_INLINE Codes part_codes(enum Encoding encoding, const uint8_t* block, const struct BlockHead* head,
                               int part) {
  switch (encoding) {
    case kEncodingQ2K: return codes_of(q2_k_run(block, head, part, 0), q2_k_run(block, head, part, 1));
    case kEncodingQ4K: return codes_of(q4_k_run(block, part, 0), q4_k_run(block, part, 1));
    default: return iq2_xxs_part(block + 2 + 8 * part);
  }
}
FATHOM_INLINE int block256_bytes(enum Encoding encoding) {
  return encoding == kEncodingQ2K ? 84 : encoding == kEncodingQ4K ? 144 : 66;
}

// Twice the e2m1 values of the nibbles; the even columns of FP4, the first half of MXFP4 are the low ones.
FATHOM_INLINE Codes fp4_codes(const uint8_t* p) {
  static const uint8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, 255, 254, 253, 252, 250, 248, 244};
  const uint8x16_t x = vld1q_u8(p), values = vld1q_u8(kDoubled);
  return codes_of(vqtbl1q_u8(values, low_nibbles(x)), vqtbl1q_u8(values, high_nibbles(x)));
}
FATHOM_INLINE Codes run_codes(enum Encoding encoding, const uint8_t* p) {
  switch (encoding) {
    case kEncodingQ8_0: return codes_of(vld1q_u8(p + 2), vld1q_u8(p + 18));
    case kEncodingMxfp4: return fp4_codes(p + 1);
    default: return fp4_codes(p);
  }
}
FATHOM_INLINE float run_scale(enum Encoding encoding, const uint8_t* p, const uint8_t* scales, int64_t block) {
  switch (encoding) {
    case kEncodingQ8_0: return half_at(p);
    case kEncodingMxfp4: return 0.5f * e8m0(*p);
    default: return 0.5f * e8m0(scales[block]);
  }
}
FATHOM_INLINE int run_bytes(enum Encoding encoding) {
  return encoding == kEncodingQ8_0 ? 34 : encoding == kEncodingMxfp4 ? 17 : 16;
}

}  // namespace
}  // namespace fathom::cpu
