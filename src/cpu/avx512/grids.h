// The IQ formats with grids, as units (units.h). Included after it.
#pragma once

#include "cpu/avx512/units.h"

namespace fathom::cpu {
namespace {

// IQ2_XXS: the grid with its eight levels as two bits each, and the eight signs of seven stored ones. Small
// enough for registers, so that 32 runs of eight are looked up at once.
struct Iq2XxsTables {
  alignas(64) uint16_t grid[256];
  alignas(64) uint8_t signs[128];
};
static struct Iq2XxsTables iq2_xxs_tables;
static struct IqTables grids;

static void make_grid_tables() {
  grids = iq_tables();
  for (int entry = 0; entry < 256; ++entry) {
    int code = 0;
    for (int j = 0; j < 8; ++j) {
      const int level = grids.iq2_xxs[8 * entry + j];
      code |= (level == 8 ? 0 : level == 25 ? 1 : 2) << (2 * j);
    }
    iq2_xxs_tables.grid[entry] = (uint16_t)code;
  }
  memcpy(iq2_xxs_tables.signs, grids.even_signs, sizeof iq2_xxs_tables.signs);
}

// A quadword of the block is a group of 32: four grid indices, then 4 x 7 bits of signs and 4 bits of scale.
FATHOM_INLINE Source iq2_xxs_source(const uint8_t* block) {
  Source source;
  alignas(64) static const uint8_t kIndexBytes[64] = {
      0,  128, 1,  128, 2, 128, 3,  128, 8,  128, 9, 128, 10, 128, 11, 128, 0,  128, 1,  128, 2, 128,
      3,  128, 8,  128, 9, 128, 10, 128, 11, 128, 0, 128, 1,  128, 2,  128, 3,  128, 8,  128, 9, 128,
      10, 128, 11, 128, 0, 128, 1,  128, 2,  128, 3, 128, 8,  128, 9,  128, 10, 128, 11, 128};
  const __m512i x = load64(block + 2);
  const __m512i index = _mm512_shuffle_epi8(x, load64(kIndexBytes));
  const uint16_t* grid = iq2_xxs_tables.grid;
  const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
  const __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
  const __m512i a = _mm512_permutex2var_epi16(load64(grid), index, load64(grid + 32));
  const __m512i b = _mm512_permutex2var_epi16(load64(grid + 64), index, load64(grid + 96));
  const __m512i c = _mm512_permutex2var_epi16(load64(grid + 128), index, load64(grid + 160));
  const __m512i d = _mm512_permutex2var_epi16(load64(grid + 192), index, load64(grid + 224));
  source.low =
      _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, a, b), _mm512_mask_blend_epi16(bit6, c, d));
  const __m512i seven = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)0x3535'2E2E'2727'2020), x);
  source.high =
      _mm512_permutex2var_epi8(load64(iq2_xxs_tables.signs), seven, load64(iq2_xxs_tables.signs + 64));
  return source;
}
FATHOM_INLINE Scales iq2_xxs_scales(const uint8_t* block) {
  const __m512i code = _mm512_shuffle_epi32(_mm512_srli_epi32(load64(block + 2), 28), (_MM_PERM_ENUM)0xF5);
  const __m512 step = _mm512_add_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(0.5f));
  Scales result;
  result.scale = result.floor = _mm512_mul_ps(_mm512_mul_ps(splat_half(block), step), _mm512_set1_ps(0.25f));
  return result;
}
// Element j of every run.
FATHOM_INLINE __m512i iq2_xxs_vector(Source source, int j) {
  const __m512i level = _mm512_srli_epi16(source.low, (unsigned)(2 * j));
  const __m512i sign = j < 2 ? _mm512_slli_epi16(source.high, (unsigned)(2 - j))
                             : _mm512_srli_epi16(source.high, (unsigned)(j - 2));
  const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi16(3), level, sign, 0xCA);
  return _mm512_permutexvar_epi16(index, load64(kIq2Values.word));
}

FATHOM_INLINE int u16_at(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, sizeof value);
  return value;
}
FATHOM_INLINE __m512 two_scales(float first, float second) {
  return _mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1);
}
FATHOM_INLINE __m128i two_runs(const int8_t* first, const int8_t* second) {
  return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i*)first), _mm_loadl_epi64((const __m128i*)second));
}
FATHOM_INLINE __m128i four_of(const int8_t* p) { return _mm_loadu_si32(p); }
FATHOM_INLINE __m128i four_runs(const int8_t* a, const int8_t* b, const int8_t* c, const int8_t* d) {
  return _mm_unpacklo_epi64(_mm_unpacklo_epi32(four_of(a), four_of(b)),
                            _mm_unpacklo_epi32(four_of(c), four_of(d)));
}
// As bfloat16, minus where the bit of `signs` is set. Two runs of eight are the even words, two the odd ones.
FATHOM_INLINE __m512i signed_codes(__m128i even, __m128i odd, uint32_t even_signs, uint32_t odd_signs) {
  const __m128i zero = _mm_setzero_si128();
  return bf16_of_bytes(_mm_mask_sub_epi8(even, (__mmask16)even_signs, zero, even),
                       _mm_mask_sub_epi8(odd, (__mmask16)odd_signs, zero, odd));
}
FATHOM_INLINE uint32_t even_signs(uint32_t first, uint32_t second) {
  return grids.even_signs[first & 127] | (uint32_t)grids.even_signs[second & 127] << 8;
}

FATHOM_INLINE __m512i iq2_xs_codes(const uint8_t* block, int group) {
  const uint8_t* p = block + 2 + 8 * group;
  const uint32_t a = (uint32_t)u16_at(p), b = (uint32_t)u16_at(p + 2), c = (uint32_t)u16_at(p + 4),
                 d = (uint32_t)u16_at(p + 6);
  const int8_t* grid = grids.iq2_xs;
  return signed_codes(two_runs(grid + 8 * (a & 511), grid + 8 * (c & 511)),
                      two_runs(grid + 8 * (b & 511), grid + 8 * (d & 511)), even_signs(a >> 9, c >> 9),
                      even_signs(b >> 9, d >> 9));
}
FATHOM_INLINE __m512i iq2_s_codes(const uint8_t* block, int group) {
  const int high = block[66 + group];
  const uint8_t* low = block + 2 + 4 * group;
  const uint32_t signs = u32_at(block + 34 + 4 * group);
  const int8_t* grid = grids.iq2_s;
  return signed_codes(
      two_runs(grid + 8 * (low[0] | (high << 8 & 0x300)), grid + 8 * (low[2] | (high << 4 & 0x300))),
      two_runs(grid + 8 * (low[1] | (high << 6 & 0x300)), grid + 8 * (low[3] | (high << 2 & 0x300))),
      (signs & 255) | (signs >> 8 & 0xFF00), (signs >> 8 & 255) | (signs >> 16 & 0xFF00));
}
FATHOM_INLINE __m512i iq3_xxs_codes(const uint8_t* block, int group) {
  const uint8_t* index = block + 2 + 8 * group;
  const uint32_t tail = u32_at(block + 66 + 4 * group);
  const int8_t* grid = grids.iq3_xxs;
  return signed_codes(
      four_runs(grid + 4 * (index[0]), grid + 4 * (index[1]), grid + 4 * (index[2]), grid + 4 * (index[3])),
      four_runs(grid + 4 * (index[4]), grid + 4 * (index[5]), grid + 4 * (index[6]), grid + 4 * (index[7])),
      even_signs(tail, tail >> 7), even_signs(tail >> 14, tail >> 21));
}
FATHOM_INLINE __m512i iq3_s_codes(const uint8_t* block, int group) {
  const uint8_t* index = block + 2 + 8 * group;
  const int high = block[66 + group];
  const uint32_t signs = u32_at(block + 74 + 4 * group);
#define FATHOM_ROW(run) grids.iq3_s + 4 * (index[run] | ((high << (8 - run)) & 256))
  return signed_codes(four_runs(FATHOM_ROW(0), FATHOM_ROW(1), FATHOM_ROW(2), FATHOM_ROW(3)),
                      four_runs(FATHOM_ROW(4), FATHOM_ROW(5), FATHOM_ROW(6), FATHOM_ROW(7)), signs & 0xFFFF,
                      signs >> 16);
#undef FATHOM_ROW
}

// 8 * (grid + delta), an integer; the scale carries the 1/8.
FATHOM_INLINE __m128i iq1_runs(int first, int second, int first_is_minus, int second_is_minus) {
  const __m128i grid = two_runs(grids.iq1 + 8 * first, grids.iq1 + 8 * second);
  const __m128i minus = _mm_set_epi64x(-(int64_t)second_is_minus, -(int64_t)first_is_minus);
  const __m128i delta = _mm_or_si128(minus, _mm_set1_epi8(1));  // -1 or 1
  const __m128i two = _mm_add_epi8(grid, grid);
  const __m128i four = _mm_add_epi8(two, two);
  return _mm_add_epi8(_mm_add_epi8(four, four), delta);
}
FATHOM_INLINE __m512i iq1_s_codes(const uint8_t* block, int group) {
  const int qh = u16_at(block + 34 + 2 * group), minus = qh >> 15;
  const uint8_t* low = block + 2 + 4 * group;
  return bf16_of_bytes(iq1_runs(low[0] | (qh << 8 & 0x700), low[2] | (qh << 2 & 0x700), minus, minus),
                       iq1_runs(low[1] | (qh << 5 & 0x700), low[3] | (qh >> 1 & 0x700), minus, minus));
}
FATHOM_INLINE __m512i iq1_m_codes(const uint8_t* block, int group) {
  const int qh = u16_at(block + 32 + 2 * group);
  const uint8_t* low = block + 4 * group;
  return bf16_of_bytes(
      iq1_runs(low[0] | (qh << 8 & 0x700), low[2] | (qh & 0x700), qh >> 3 & 1, qh >> 11 & 1),
      iq1_runs(low[1] | (qh << 4 & 0x700), low[3] | (qh >> 4 & 0x700), qh >> 7 & 1, qh >> 15 & 1));
}
FATHOM_INLINE float iq1_m_scale(const uint8_t* block) {
  const uint8_t* s = block + 48;
  return _cvtsh_ss((unsigned short)((s[1] >> 4) | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12));
}

// Group `group` (0..7) of 32 columns of a block.
FATHOM_INLINE __m512i grid_codes(enum Encoding encoding, const uint8_t* block, int group) {
  switch (encoding) {
    case kEncodingIq2Xs: return iq2_xs_codes(block, group);
    case kEncodingIq2S: return iq2_s_codes(block, group);
    case kEncodingIq3Xxs: return iq3_xxs_codes(block, group);
    case kEncodingIq3S: return iq3_s_codes(block, group);
    case kEncodingIq1S: return iq1_s_codes(block, group);
    default: return iq1_m_codes(block, group);
  }
}
FATHOM_INLINE __m512 grid_scale(enum Encoding encoding, const uint8_t* block, int group) {
  const float d = _cvtsh_ss((unsigned short)u16_at(block));
  switch (encoding) {
    case kEncodingIq2Xs:
    case kEncodingIq2S: {
      const int scale = block[(encoding == kEncodingIq2Xs ? 66 : 74) + group];
      return two_scales(d * (0.5f + (float)(scale & 15)) * 0.25f, d * (0.5f + (float)(scale >> 4)) * 0.25f);
    }
    case kEncodingIq3Xxs:
      return _mm512_set1_ps(d * (0.5f + (float)(u32_at(block + 66 + 4 * group) >> 28)) * 0.5f);
    case kEncodingIq3S:
      return _mm512_set1_ps(d * (float)(1 + 2 * ((block[106 + group / 2] >> (4 * (group % 2))) & 15)));
    case kEncodingIq1S:
      return _mm512_set1_ps(d * (float)(2 * ((block[35 + 2 * group] >> 4) & 7) + 1) * 0.125f);
    default: {  // IQ1_M
      const int two = u16_at(block + 48 + group / 2 * 2) >> (6 * (group % 2));
      const float d_m = iq1_m_scale(block);
      return two_scales(d_m * (float)(2 * (two & 7) + 1) * 0.125f,
                        d_m * (float)(2 * (two >> 3 & 7) + 1) * 0.125f);
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
