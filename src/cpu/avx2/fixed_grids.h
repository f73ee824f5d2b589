// The IQ formats with grids as signed bytes and integer scales (fixed_blocks.h): weight = factor * scale *
// code.
#pragma once

#include "cpu/avx2/fixed_rows.h"

namespace fathom::cpu {
namespace {

static struct IqTables grids;

FATHOM_INLINE uint32_t u32_at(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}
FATHOM_INLINE uint16_t u16_at(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, sizeof value);
  return value;
}
FATHOM_INLINE int64_t run8(const int8_t* grid, uint32_t entry) {
  int64_t value;
  memcpy(&value, grid + 8 * entry, sizeof value);
  return value;
}
FATHOM_INLINE int run4(const int8_t* grid, uint32_t entry) {
  int value;
  memcpy(&value, grid + 4 * entry, sizeof value);
  return value;
}
// Minus where the bit of a column is set.
FATHOM_INLINE I with_signs(I codes, uint32_t signs) {
  const I byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                  3, 3, 3, 3, 3, 3);
  const I bit = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
  const I spread = _mm256_shuffle_epi8(i_set((int32_t)signs), byte);
  const I minus = _mm256_cmpeq_epi8(i_and(spread, bit), bit);
  return _mm256_sub_epi8(_mm256_xor_si256(codes, minus), minus);
}
// Four times seven bits become eight each with even parity.
FATHOM_INLINE uint32_t even_signs(uint32_t sevens) {
  const uint32_t spread = _pdep_u32(sevens, 0x7F7F7F7Fu);
  uint32_t parity = spread ^ spread >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return spread | (parity & 0x01010101u) << 7;
}

FATHOM_INLINE I iq2_codes(const int8_t* grid, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t signs) {
  return with_signs(_mm256_setr_epi64x(run8(grid, a), run8(grid, b), run8(grid, c), run8(grid, d)), signs);
}
FATHOM_INLINE I iq2_xxs_codes(const uint8_t* p) {
  return iq2_codes(grids.iq2_xxs, p[0], p[1], p[2], p[3], even_signs(u32_at(p + 4) & 0x0FFFFFFFu));
}
FATHOM_INLINE I iq2_xs_codes(const uint8_t* p) {
  const uint32_t a = u16_at(p), b = u16_at(p + 2), c = u16_at(p + 4), d = u16_at(p + 6);
  const uint32_t sevens = a >> 9 | b >> 9 << 7 | c >> 9 << 14 | d >> 9 << 21;
  return iq2_codes(grids.iq2_xs, a & 511, b & 511, c & 511, d & 511, even_signs(sevens));
}
FATHOM_INLINE I iq2_s_codes(const uint8_t* block, int part) {
  const uint32_t high = block[66 + part];
  const uint8_t* low = block + 2 + 4 * part;
  return iq2_codes(grids.iq2_s, low[0] | (high << 8 & 0x300), low[1] | (high << 6 & 0x300),
                   low[2] | (high << 4 & 0x300), low[3] | (high << 2 & 0x300), u32_at(block + 34 + 4 * part));
}
FATHOM_INLINE I iq3_xxs_codes(const uint8_t* block, int part) {
  const uint8_t* p = block + 2 + 8 * part;
  const int8_t* grid = grids.iq3_xxs;
  return with_signs(_mm256_setr_epi32(run4(grid, p[0]), run4(grid, p[1]), run4(grid, p[2]), run4(grid, p[3]),
                                      run4(grid, p[4]), run4(grid, p[5]), run4(grid, p[6]), run4(grid, p[7])),
                    even_signs(u32_at(block + 66 + 4 * part) & 0x0FFFFFFFu));
}
FATHOM_INLINE I iq3_s_codes(const uint8_t* block, int part) {
  const uint8_t* p = block + 2 + 8 * part;
  const uint32_t high = block[66 + part];
  const int8_t* grid = grids.iq3_s;
#define FATHOM_RUN(run) run4(grid, p[run] | (high << (8 - run) & 256))
  return with_signs(_mm256_setr_epi32(FATHOM_RUN(0), FATHOM_RUN(1), FATHOM_RUN(2), FATHOM_RUN(3), FATHOM_RUN(4),
                                      FATHOM_RUN(5), FATHOM_RUN(6), FATHOM_RUN(7)),
                    u32_at(block + 74 + 4 * part));
#undef FATHOM_RUN
}

// 8 * grid + delta, delta 1 or -1 for each run of eight; the factor carries the 1/8.
FATHOM_INLINE I iq1_codes(uint32_t a, uint32_t b, uint32_t c, uint32_t d, I delta) {
  const int8_t* grid = grids.iq1;
  const I one = _mm256_setr_epi64x(run8(grid, a), run8(grid, b), run8(grid, c), run8(grid, d));
  const I two = _mm256_add_epi8(one, one);
  const I four = _mm256_add_epi8(two, two);
  return _mm256_add_epi8(_mm256_add_epi8(four, four), delta);
}
FATHOM_INLINE I iq1_s_codes(const uint8_t* block, int part) {
  const uint32_t high = u16_at(block + 34 + 2 * part);
  const uint8_t* low = block + 2 + 4 * part;
  return iq1_codes(low[0] | (high << 8 & 0x700), low[1] | (high << 5 & 0x700), low[2] | (high << 2 & 0x700),
                   low[3] | (high >> 1 & 0x700), _mm256_set1_epi8((high >> 15) != 0 ? -1 : 1));
}
FATHOM_INLINE int64_t iq1_m_delta(uint32_t bit) { return bit != 0 ? -1 : (int64_t)0x0101010101010101; }
FATHOM_INLINE I iq1_m_codes(const uint8_t* block, int part) {
  const uint32_t high = u16_at(block + 32 + 2 * part);
  const uint8_t* low = block + 4 * part;
  const I delta = _mm256_setr_epi64x(iq1_m_delta(high & 8), iq1_m_delta(high & 0x80), iq1_m_delta(high & 0x800),
                                     iq1_m_delta(high & 0x8000));
  return iq1_codes(low[0] | (high << 8 & 0x700), low[1] | (high << 4 & 0x700), low[2] | (high & 0x700),
                   low[3] | (high >> 4 & 0x700), delta);
}

// 32 columns of a block, one byte a column.
FATHOM_INLINE I grid_codes(enum Encoding encoding, const uint8_t* block, int part) {
  switch (encoding) {
    case kEncodingIq2Xxs: return iq2_xxs_codes(block + 2 + 8 * part);
    case kEncodingIq2Xs: return iq2_xs_codes(block + 2 + 8 * part);
    case kEncodingIq2S: return iq2_s_codes(block, part);
    case kEncodingIq3Xxs: return iq3_xxs_codes(block, part);
    case kEncodingIq3S: return iq3_s_codes(block, part);
    case kEncodingIq1S: return iq1_s_codes(block, part);
    default: return iq1_m_codes(block, part);
  }
}

FATHOM_INLINE uint16_t iq1_m_factor(const uint8_t* s) {
  return (uint16_t)((s[1] >> 4) | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12);
}
// Odd numbers, 2 * code + 1: one for 32 columns or two for 16 each.
FATHOM_INLINE void grid_scales(enum Encoding encoding, const uint8_t* block, int32_t* scale, float* factor) {
  *factor = half_to_float(encoding == kEncodingIq1M ? iq1_m_factor(block + 48) : u16_at(block)) *
            (encoding == kEncodingIq3S     ? 1.0f
             : encoding == kEncodingIq3Xxs ? 0.25f
                                           : 0.125f);
#pragma GCC unroll 8
  for (int part = 0; part < 8; ++part) {
    uint32_t code;
    switch (encoding) {
      case kEncodingIq2Xxs: code = u32_at(block + 6 + 8 * part) >> 28; break;
      case kEncodingIq3Xxs: code = u32_at(block + 66 + 4 * part) >> 28; break;
      case kEncodingIq3S: code = block[106 + part / 2] >> (4 * (part % 2)) & 15; break;
      case kEncodingIq1S: code = block[35 + 2 * part] >> 4 & 7; break;
      case kEncodingIq1M:
        code = (uint32_t)u16_at(block + 48 + part / 2 * 2) >> (6 * (part % 2));
        scale[2 * part] = (int32_t)(2 * (code & 7) + 1);
        scale[2 * part + 1] = (int32_t)(2 * (code >> 3 & 7) + 1);
        continue;
      default:
        code = block[(encoding == kEncodingIq2Xs ? 66 : 74) + part];
        scale[2 * part] = (int32_t)(2 * (code & 15) + 1);
        scale[2 * part + 1] = (int32_t)(2 * (code >> 4) + 1);
        continue;
    }
    scale[part] = (int32_t)(2 * code + 1);
  }
}

}  // namespace
}  // namespace fathom::cpu
