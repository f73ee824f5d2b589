// The IQ formats with grids, as units (units.h). Included after it.
#pragma once

#include "cpu/avx512/units.h"
#include "tensor/formats/codebooks.h"

namespace fathom::cpu {
namespace {

// IQ2_XXS: the grid with its eight levels as two bits each, and the eight signs of seven stored ones. Small
// enough for registers, so that 32 runs of eight are looked up at once.
struct Iq2XxsTables {
  alignas(64) uint16_t grid[256];
  alignas(64) uint8_t signs[128];
};
static struct Iq2XxsTables iq2_xxs_tables;

static void make_grid_tables() {
  for (int entry = 0; entry < 256; ++entry) {
    int code = 0;
    for (int j = 0; j < 8; ++j) {
      const int level = kIq2XxsGrid.value[entry][j];
      code |= (level == 8 ? 0 : level == 25 ? 1 : 2) << (2 * j);
    }
    iq2_xxs_tables.grid[entry] = (uint16_t)code;
  }
  memcpy(iq2_xxs_tables.signs, kIqEvenSigns.value, sizeof iq2_xxs_tables.signs);
}

// A quadword of the block is a group of 32: four grid indices, then 4 x 7 bits of signs and 4 bits of scale.
FATHOM_INLINE void iq2_xxs_unit(const uint8_t* block, Unit* unit) {
  alignas(64) static const uint8_t kIndexBytes[64] = {
      0, 128, 1, 128, 2, 128, 3, 128, 8, 128, 9, 128, 10, 128, 11, 128, 0, 128, 1, 128, 2, 128,
      3, 128, 8, 128, 9, 128, 10, 128, 11, 128, 0, 128, 1, 128, 2, 128, 3, 128, 8, 128, 9, 128,
      10, 128, 11, 128, 0, 128, 1, 128, 2, 128, 3, 128, 8, 128, 9, 128, 10, 128, 11, 128};
  const __m512i x = load64(block + 2);
  const __m512i index = _mm512_shuffle_epi8(x, load64(kIndexBytes));
  const uint16_t* grid = iq2_xxs_tables.grid;
  const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
  const __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
  const __m512i a = _mm512_permutex2var_epi16(load64(grid), index, load64(grid + 32));
  const __m512i b = _mm512_permutex2var_epi16(load64(grid + 64), index, load64(grid + 96));
  const __m512i c = _mm512_permutex2var_epi16(load64(grid + 128), index, load64(grid + 160));
  const __m512i d = _mm512_permutex2var_epi16(load64(grid + 192), index, load64(grid + 224));
  unit->low[0] = _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, a, b),
                                         _mm512_mask_blend_epi16(bit6, c, d));
  const __m512i seven =
      _mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)0x3535'2E2E'2727'2020), x);
  unit->high[0] =
      _mm512_permutex2var_epi8(load64(iq2_xxs_tables.signs), seven, load64(iq2_xxs_tables.signs + 64));
  const __m512i code = _mm512_shuffle_epi32(_mm512_srli_epi32(x, 28), (_MM_PERM_ENUM)0xF5);
  const __m512 step = _mm512_add_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(0.5f));
  unit->scale = _mm512_mul_ps(_mm512_mul_ps(splat_half(block), step), _mm512_set1_ps(0.25f));
}
// Element j of every run.
FATHOM_INLINE __m512i iq2_xxs_vector(const Unit* unit, int j) {
  const __m512i level = _mm512_srli_epi16(unit->low[0], (unsigned)(2 * j));
  const __m512i sign = j < 2 ? _mm512_slli_epi16(unit->high[0], (unsigned)(2 - j))
                             : _mm512_srli_epi16(unit->high[0], (unsigned)(j - 2));
  const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi16(3), level, sign, 0xCA);
  return _mm512_permutexvar_epi16(index, load64(kIq2Values.word));
}

FATHOM_INLINE int64_t eight_bytes(const int8_t* p) {
  int64_t value;
  memcpy(&value, p, sizeof value);
  return value;
}
FATHOM_INLINE int four_bytes(const int8_t* p) {
  int value;
  memcpy(&value, p, sizeof value);
  return value;
}
FATHOM_INLINE int u16_at(const uint8_t* p) { return p[0] | p[1] << 8; }
FATHOM_INLINE __m256i with_signs(__m256i magnitudes, uint32_t signs) {
  return _mm256_mask_sub_epi8(magnitudes, signs, _mm256_setzero_si256(), magnitudes);
}
// Four stored groups of seven signs.
FATHOM_INLINE uint32_t even_signs4(uint32_t stored) {
  const uint8_t* signs = kIqEvenSigns.value;
  return signs[stored & 127] | (uint32_t)signs[(stored >> 7) & 127] << 8 |
         (uint32_t)signs[(stored >> 14) & 127] << 16 | (uint32_t)signs[(stored >> 21) & 127] << 24;
}
FATHOM_INLINE __m512 two_scales(float first, float second) {
  return _mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1);
}

FATHOM_INLINE __m256i iq2_xs_codes(const uint8_t* block, int group, uint32_t* signs) {
  int code[4];
  *signs = 0;
  for (int run = 0; run < 4; ++run) {
    code[run] = u16_at(block + 2 + 8 * group + 2 * run);
    *signs |= (uint32_t)kIqEvenSigns.value[code[run] >> 9] << (8 * run);
  }
  return _mm256_set_epi64x(eight_bytes(kIq2XsGrid.value[code[3] & 511]),
                           eight_bytes(kIq2XsGrid.value[code[2] & 511]),
                           eight_bytes(kIq2XsGrid.value[code[1] & 511]),
                           eight_bytes(kIq2XsGrid.value[code[0] & 511]));
}
FATHOM_INLINE __m256i iq2_s_codes(const uint8_t* block, int group) {
  const int high = block[66 + group];
  const uint8_t* low = block + 2 + 4 * group;
  return _mm256_set_epi64x(eight_bytes(kIq2SGrid.value[low[3] | (high << 2 & 0x300)]),
                           eight_bytes(kIq2SGrid.value[low[2] | (high << 4 & 0x300)]),
                           eight_bytes(kIq2SGrid.value[low[1] | (high << 6 & 0x300)]),
                           eight_bytes(kIq2SGrid.value[low[0] | (high << 8 & 0x300)]));
}
FATHOM_INLINE __m256i iq3_xxs_codes(const uint8_t* indices) {
  const IqGrid<256, 4>& grid = kIq3XxsGrid;
  return _mm256_setr_epi32(four_bytes(grid.value[indices[0]]), four_bytes(grid.value[indices[1]]),
                           four_bytes(grid.value[indices[2]]), four_bytes(grid.value[indices[3]]),
                           four_bytes(grid.value[indices[4]]), four_bytes(grid.value[indices[5]]),
                           four_bytes(grid.value[indices[6]]), four_bytes(grid.value[indices[7]]));
}
FATHOM_INLINE __m256i iq3_s_codes(const uint8_t* indices, int high) {
  const IqGrid<512, 4>& grid = kIq3SGrid;
#define FATHOM_ROW(run) four_bytes(grid.value[indices[run] | ((high << (8 - run)) & 256)])
  return _mm256_setr_epi32(FATHOM_ROW(0), FATHOM_ROW(1), FATHOM_ROW(2), FATHOM_ROW(3), FATHOM_ROW(4),
                           FATHOM_ROW(5), FATHOM_ROW(6), FATHOM_ROW(7));
#undef FATHOM_ROW
}
// 8 * (grid + delta), an integer; the scale carries the 1/8.
FATHOM_INLINE __m256i iq1_codes(const int* index, const int* is_minus) {
  const __m256i grid =
      _mm256_set_epi64x(eight_bytes(kIq1Grid.value[index[3]]), eight_bytes(kIq1Grid.value[index[2]]),
                        eight_bytes(kIq1Grid.value[index[1]]), eight_bytes(kIq1Grid.value[index[0]]));
  const int64_t plus = 0x0101010101010101, minus = -1;
  const __m256i delta = _mm256_set_epi64x(is_minus[3] ? minus : plus, is_minus[2] ? minus : plus,
                                          is_minus[1] ? minus : plus, is_minus[0] ? minus : plus);
  const __m256i two = _mm256_add_epi8(grid, grid);
  const __m256i four = _mm256_add_epi8(two, two);
  return _mm256_add_epi8(_mm256_add_epi8(four, four), delta);
}
FATHOM_INLINE __m256i iq1_s_codes(const uint8_t* block, int group) {
  const int qh = u16_at(block + 34 + 2 * group);
  int index[4], is_minus[4];
  for (int run = 0; run < 4; ++run) {
    index[run] = block[2 + 4 * group + run] | ((qh >> (3 * run)) & 7) << 8;
    is_minus[run] = qh >> 15;
  }
  return iq1_codes(index, is_minus);
}
FATHOM_INLINE __m256i iq1_m_codes(const uint8_t* block, int group) {
  int index[4], is_minus[4];
  for (int run = 0; run < 4; ++run) {
    const int high = block[32 + 2 * group + run / 2] >> (4 * (run % 2));
    index[run] = block[4 * group + run] | (high & 7) << 8;
    is_minus[run] = high >> 3 & 1;
  }
  return iq1_codes(index, is_minus);
}
FATHOM_INLINE float iq1_m_scale(const uint8_t* block) {
  const uint8_t* s = block + 48;
  return _cvtsh_ss((unsigned short)((s[1] >> 4) | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12));
}

// Group `group` (0..7) of 32 columns of a block.
FATHOM_INLINE void grid_unit(enum Encoding encoding, const uint8_t* block, int group, Unit* unit) {
  uint32_t signs;
  __m256i codes;
  uint16_t half;
  memcpy(&half, block, sizeof half);
  const float d = _cvtsh_ss(half);
  switch (encoding) {
    case kEncodingIq2Xs:
    case kEncodingIq2S: {
      const int scale = block[(encoding == kEncodingIq2Xs ? 66 : 74) + group];
      if (encoding == kEncodingIq2Xs) {
        codes = iq2_xs_codes(block, group, &signs);
      } else {
        codes = iq2_s_codes(block, group);
        signs = u32_at(block + 34 + 4 * group);
      }
      unit->scale = two_scales(d * (0.5f + (float)(scale & 15)) * 0.25f, d * (0.5f + (float)(scale >> 4)) * 0.25f);
      break;
    }
    case kEncodingIq3Xxs: {
      const uint32_t tail = u32_at(block + 66 + 4 * group);
      codes = iq3_xxs_codes(block + 2 + 8 * group);
      signs = even_signs4(tail);
      unit->scale = _mm512_set1_ps(d * (0.5f + (float)(tail >> 28)) * 0.5f);
      break;
    }
    case kEncodingIq3S:
      codes = iq3_s_codes(block + 2 + 8 * group, block[66 + group]);
      signs = u32_at(block + 74 + 4 * group);
      unit->scale = _mm512_set1_ps(d * (float)(1 + 2 * ((block[106 + group / 2] >> (4 * (group % 2))) & 15)));
      break;
    case kEncodingIq1S:
      codes = iq1_s_codes(block, group);
      signs = 0;
      unit->scale =
          _mm512_set1_ps(d * (float)(2 * ((block[35 + 2 * group] >> 4) & 7) + 1) * 0.125f);
      break;
    default: {  // IQ1_M
      const int two = u16_at(block + 48 + group / 2 * 2) >> (6 * (group % 2));
      const float d_m = iq1_m_scale(block);
      codes = iq1_m_codes(block, group);
      signs = 0;
      unit->scale = two_scales(d_m * (float)(2 * (two & 7) + 1) * 0.125f,
                               d_m * (float)(2 * (two >> 3 & 7) + 1) * 0.125f);
    }
  }
  unit->low[0] = bf16_of_bytes(with_signs(codes, signs));
}

}  // namespace
}  // namespace fathom::cpu
