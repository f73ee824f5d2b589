// The IQ formats with grids, as units (units.h).
#pragma once

#include "cpu/avx512/gathered.h"

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
FATHOM_INLINE __m512 iq2_xxs_scales(const uint8_t* block) {
  const __m512i code = _mm512_shuffle_epi32(_mm512_srli_epi32(load64(block + 2), 28), (_MM_PERM_ENUM)0xF5);
  const __m512 step = _mm512_add_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(0.5f));
  return _mm512_mul_ps(_mm512_mul_ps(splat_half(block), step), _mm512_set1_ps(0.25f));
}
// Element j of every run.
FATHOM_INLINE __m512i iq2_xxs_vector(Source source, int j) {
  const __m512i level = _mm512_srli_epi16(source.low, (unsigned)(2 * j));
  const __m512i sign = j < 2 ? _mm512_slli_epi16(source.high, (unsigned)(2 - j))
                             : _mm512_srli_epi16(source.high, (unsigned)(j - 2));
  const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi16(3), level, sign, 0xCA);
  return _mm512_permutexvar_epi16(index, load64(kIq2Values.word));
}

FATHOM_INLINE uint32_t u16_at(const uint8_t* p) {
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
FATHOM_INLINE __m256i four_runs8(const int8_t* grid, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return _mm256_setr_epi64x(run8(grid, a), run8(grid, b), run8(grid, c), run8(grid, d));
}
// Minus where the bit of a column is set.
FATHOM_INLINE __m256i with_signs(__m256i codes, uint32_t signs) {
  return _mm256_mask_sub_epi8(codes, (__mmask32)signs, _mm256_setzero_si256(), codes);
}
// Four times seven bits become eight each with even parity.
FATHOM_INLINE uint32_t even_signs(uint32_t sevens) {
  const uint32_t spread = _pdep_u32(sevens, 0x7F7F7F7Fu);
  uint32_t parity = spread ^ spread >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return spread | (parity & 0x01010101u) << 7;
}

FATHOM_INLINE __m256i iq2_xs_codes(const uint8_t* block, int group) {
  uint64_t x;
  memcpy(&x, block + 2 + 8 * group, sizeof x);
  const uint32_t sevens = (uint32_t)_pext_u64(x, 0xFE00FE00FE00FE00u);
  return with_signs(four_runs8(grids.iq2_xs, x & 511, x >> 16 & 511, x >> 32 & 511, x >> 48 & 511),
                    even_signs(sevens));
}
FATHOM_INLINE __m256i iq2_s_codes(const uint8_t* block, int group) {
  const uint32_t high = block[66 + group];
  const uint8_t* low = block + 2 + 4 * group;
  return with_signs(four_runs8(grids.iq2_s, low[0] | (high << 8 & 0x300), low[1] | (high << 6 & 0x300),
                               low[2] | (high << 4 & 0x300), low[3] | (high << 2 & 0x300)),
                    u32_at(block + 34 + 4 * group));
}
FATHOM_INLINE __m256i iq3_xxs_codes(const uint8_t* block, int group) {
  const uint8_t* p = block + 2 + 8 * group;
  const int8_t* grid = grids.iq3_xxs;
  return with_signs(_mm256_setr_epi32(run4(grid, p[0]), run4(grid, p[1]), run4(grid, p[2]), run4(grid, p[3]),
                                      run4(grid, p[4]), run4(grid, p[5]), run4(grid, p[6]), run4(grid, p[7])),
                    even_signs(u32_at(block + 66 + 4 * group) & 0x0FFFFFFFu));
}
FATHOM_INLINE __m256i iq3_s_codes(const uint8_t* block, int group) {
  const uint8_t* p = block + 2 + 8 * group;
  const uint32_t high = block[66 + group];
#define FATHOM_RUN(run) run4(grids.iq3_s, p[run] | (high << (8 - run) & 256))
  return with_signs(_mm256_setr_epi32(FATHOM_RUN(0), FATHOM_RUN(1), FATHOM_RUN(2), FATHOM_RUN(3),
                                      FATHOM_RUN(4), FATHOM_RUN(5), FATHOM_RUN(6), FATHOM_RUN(7)),
                    u32_at(block + 74 + 4 * group));
#undef FATHOM_RUN
}

// 8 * grid + delta, delta 1 or -1 for each run of eight; the factor carries the 1/8.
FATHOM_INLINE __m256i iq1_codes(__m256i grid, __m256i delta) {
  const __m256i two = _mm256_add_epi8(grid, grid);
  const __m256i four = _mm256_add_epi8(two, two);
  return _mm256_add_epi8(_mm256_add_epi8(four, four), delta);
}
FATHOM_INLINE __m256i iq1_s_codes(const uint8_t* block, int group) {
  const uint32_t high = u16_at(block + 34 + 2 * group);
  const uint8_t* low = block + 2 + 4 * group;
  return iq1_codes(four_runs8(grids.iq1, low[0] | (high << 8 & 0x700), low[1] | (high << 5 & 0x700),
                              low[2] | (high << 2 & 0x700), low[3] | (high >> 1 & 0x700)),
                   _mm256_set1_epi8((high >> 15) != 0 ? -1 : 1));
}
FATHOM_INLINE __m256i iq1_m_codes(const uint8_t* block, int group) {
  const uint32_t high = u16_at(block + 32 + 2 * group);
  const uint8_t* low = block + 4 * group;
  // Bits 3, 7, 11 and 15: a run of eight each.
  const __mmask8 minus = (__mmask8)_pext_u32(high, 0x8888u);
  const __m256i delta = _mm256_mask_blend_epi64(minus, _mm256_set1_epi8(1), _mm256_set1_epi8(-1));
  return iq1_codes(four_runs8(grids.iq1, low[0] | (high << 8 & 0x700), low[1] | (high << 4 & 0x700),
                              low[2] | (high & 0x700), low[3] | (high >> 4 & 0x700)),
                   delta);
}

// Group `group` (0..7) of 32 columns of a block, times its scales.
FATHOM_INLINE __m512i group_codes(enum Encoding encoding, const uint8_t* block, int group, __m512i scales) {
  __m256i codes;
  switch (encoding) {
    case kEncodingIq2Xs:
      codes = iq2_xs_codes(block, group);
      break;
    case kEncodingIq2S:
      codes = iq2_s_codes(block, group);
      break;
    case kEncodingIq3Xxs:
      codes = iq3_xxs_codes(block, group);
      break;
    case kEncodingIq3S:
      codes = iq3_s_codes(block, group);
      break;
    case kEncodingIq1S:
      codes = iq1_s_codes(block, group);
      break;
    default:
      codes = iq1_m_codes(block, group);
      break;
  }
  return _mm512_mullo_epi16(_mm512_cvtepi8_epi16(codes),
                            _mm512_permutexvar_epi16(load64(kGroupWords.word[group]), scales));
}

}  // namespace
}  // namespace fathom::cpu
