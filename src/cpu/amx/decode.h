// Weights as bfloat16 tiles: 32 columns of a row are a row of a tile.
//
// The direct kinds (units.h) have one tile for 32 columns. The others have two, the value as float32 split into
// its nearest bfloat16 number and the nearest to what is left, together within 2^-16 of the value. Columns stand
// in an order of the encoding's own (`tile_column`), which activations are put in.
#pragma once

#include "cpu/amx/tiles.h"
#include "cpu/avx512/row_values.h"

namespace fathom::cpu {
namespace {

// Tiles for 32 columns.
FATHOM_INLINE int tile_parts(enum Encoding encoding) { return is_direct(encoding) ? 1 : 2; }

// Column of word `word` of a unit.
FATHOM_INLINE int tile_column(enum Encoding encoding, int word) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ4K ? word : word_column(encoding, word);
}

// Adds half of the last place of a bfloat16 number: the upper halves are then rounded to nearest.
FATHOM_INLINE __m512i add_half(__m512 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}
FATHOM_INLINE __m512 upper_part(__m512i x) {
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xFFFF0000u)));
}
// Upper halves: of the first the even words, of the second the odd ones.
FATHOM_INLINE __m512i interleave_upper(__m512i even, __m512i odd) {
  return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(even, 16), odd);
}
// Both parts of two vectors of values, the first the even words.
struct Split {
  __m512i high, low;
};
FATHOM_INLINE struct Split split(__m512 even, __m512 odd) {
  const __m512i even_high = add_half(even), odd_high = add_half(odd);
  const __m512 even_rest = _mm512_sub_ps(even, upper_part(even_high));
  const __m512 odd_rest = _mm512_sub_ps(odd, upper_part(odd_high));
  return {interleave_upper(even_high, odd_high), interleave_upper(add_half(even_rest), add_half(odd_rest))};
}

FATHOM_INLINE void store_split(struct Split parts, uint8_t* out) {
  _mm512_storeu_si512(out, parts.high);
  _mm512_storeu_si512(out + kTileBytes, parts.low);
}

FATHOM_INLINE void decode_q8_0(const uint8_t* block, uint8_t* out) {
  const __m512 scale = splat_half(block);
  store_split(split(_mm512_mul_ps(scale, float_of(_mm512_cvtepi8_epi32(load16(block + 2)))),
                    _mm512_mul_ps(scale, float_of(_mm512_cvtepi8_epi32(load16(block + 18))))),
              out);
}

FATHOM_INLINE __m512i words_of_bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p));
}
// (x & mask) | bits
FATHOM_INLINE __m512i masked_or(__m512i x, __m512i mask, __m512i bits) {
  return _mm512_ternarylogic_epi32(x, mask, bits, 0xEA);
}

// Numbers of sixteen lanes: 0, 0, 0, 0, 1, 1, 1, 1, ...
FATHOM_INLINE __m512i lane_quarters() {
  return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
}

// Half a block has eight sub-blocks of four values: a table of 32, whose word 8 * a + 2 * code + b is of sub-block
// 2 * a + b. Columns keep their order.
FATHOM_INLINE void decode_q2_k(const uint8_t* block, uint8_t* out) {
  const __m512i bytes = _mm512_cvtepu8_epi32(load16(block));
  const __m512 scales =
      _mm512_mul_ps(splat_half(block + 80), float_of(_mm512_and_si512(bytes, _mm512_set1_epi32(15))));
  const __m512 floors = _mm512_mul_ps(splat_half(block + 82), float_of(_mm512_srli_epi32(bytes, 4)));
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  const __m512i second_sub_block = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(1), 1);
  const __m512i even_sub_block = _mm512_slli_epi32(lane_quarters(), 1);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m512 values[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m512i sub_block = _mm512_add_epi32(even_sub_block, _mm512_set1_epi32(8 * half + v));
      values[v] = _mm512_fmsub_ps(_mm512_permutexvar_ps(sub_block, scales), codes,
                                  _mm512_permutexvar_ps(sub_block, floors));
    }
    const struct Split table = split(values[0], values[1]);
    const __m512i words = words_of_bytes(block + 16 + 32 * half);
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group, out += 2 * kTileBytes) {
      const __m512i first = _mm512_add_epi16(second_sub_block, _mm512_set1_epi16((int16_t)(8 * group)));
      const __m512i codes_twice =
          group == 0 ? _mm512_slli_epi16(words, 1) : _mm512_srli_epi16(words, (unsigned)(2 * group - 1));
      const __m512i index = masked_or(codes_twice, _mm512_set1_epi16(6), first);
      _mm512_storeu_si512(out, _mm512_permutexvar_epi16(index, table.high));
      _mm512_storeu_si512(out + kTileBytes, _mm512_permutexvar_epi16(index, table.low));
    }
  }
}

// A sub-block of 32 columns has sixteen values, both parts of which are a table. Columns keep their order.
FATHOM_INLINE void decode_q4_k(const uint8_t* block, uint8_t* out) {
  Scales by_lane;
  q4_k_scales(block, &by_lane);
  float scale[16], floor[16];
  _mm512_storeu_ps(scale, by_lane.scale);
  _mm512_storeu_ps(floor, by_lane.floor);
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i mask = _mm512_set1_epi16(30), low_part = _mm512_set1_epi16(1);
#pragma GCC unroll 8
  for (int sub_block = 0; sub_block < 8; ++sub_block, out += 2 * kTileBytes) {
    const __m512 values =
        _mm512_fmsub_ps(_mm512_set1_ps(scale[2 * sub_block]), codes, _mm512_set1_ps(floor[2 * sub_block]));
    const __m512i high = add_half(values);
    const __m512i table = interleave_upper(high, add_half(_mm512_sub_ps(values, upper_part(high))));
    const __m512i words = words_of_bytes(block + 16 + sub_block / 2 * 32);
    const __m512i index = sub_block % 2 == 0 ? _mm512_slli_epi16(words, 1) : _mm512_srli_epi16(words, 3);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(_mm512_and_si512(index, mask), table));
    _mm512_storeu_si512(out + kTileBytes, _mm512_permutexvar_epi16(masked_or(index, mask, low_part), table));
  }
}

// A group of 32 columns has three magnitudes; a word is a run of eight columns, a vector an element of them. Word
// 8 * a + 2 * code + b of the table is of group 2 * a + b.
FATHOM_INLINE void decode_iq2_xxs(const uint8_t* block, uint8_t* out) {
  const Source source = iq2_xxs_source(block);
  const __m512 scales = iq2_xxs_scales(block).scale;
  const __m512 levels = _mm512_setr_ps(8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0);
  const __m512i lane = _mm512_slli_epi32(lane_quarters(), 2);  // of the group's scale
  const __m512i second_lane = _mm512_add_epi32(lane, _mm512_set1_epi32(2));
  const struct Split table =
      split(_mm512_mul_ps(_mm512_permutexvar_ps(lane, scales), levels),
            _mm512_mul_ps(_mm512_permutexvar_ps(second_lane, scales), levels));
  const __m512i first = masked_or(_mm512_srli_epi16(load64(kWordNumber), 2), _mm512_set1_epi16(1),
                                  _mm512_and_si512(load64(kWordNumber), _mm512_set1_epi16(24)));
  const __m512i sign_bit = _mm512_set1_epi16((int16_t)0x8000);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j, out += 2 * kTileBytes) {
    const __m512i codes_twice =
        j == 0 ? _mm512_slli_epi16(source.low, 1) : _mm512_srli_epi16(source.low, (unsigned)(2 * j - 1));
    const __m512i index = masked_or(codes_twice, _mm512_set1_epi16(6), first);
    const __m512i sign = _mm512_slli_epi16(source.high, (unsigned)(15 - j));
    const __m512i high = _mm512_permutexvar_epi16(index, table.high);
    const __m512i low = _mm512_permutexvar_epi16(index, table.low);
    _mm512_storeu_si512(out, _mm512_ternarylogic_epi32(high, sign, sign_bit, 0x78));
    _mm512_storeu_si512(out + kTileBytes, _mm512_ternarylogic_epi32(low, sign, sign_bit, 0x78));
  }
}

// One unit of any encoding that needs both parts.
FATHOM_INLINE void decode_split_unit(enum Encoding encoding, const struct EncodedMatrix* m, struct UnitRow where,
                                     int64_t u, uint8_t* out) {
  const uint8_t* block = where.data + u * unit_block_bytes(encoding);
  if (encoding == kEncodingQ2K) return decode_q2_k(block, out);
  if (encoding == kEncodingQ4K) return decode_q4_k(block, out);
  if (encoding == kEncodingIq2Xxs) return decode_iq2_xxs(block, out);
  if (encoding == kEncodingQ8_0) return decode_q8_0(where.data + 34 * u, out);
  const int per_source = unit_vectors(encoding) / unit_sources(encoding);
  const Scales scales = unit_scales(encoding, m, where, u);
  const __m512 floor = whole_floor(encoding, scales);
#pragma GCC unroll 4
  for (int s = 0; s < unit_sources(encoding); ++s) {
    const Source source = unit_source(encoding, m, where, u, s);
#pragma GCC unroll 8
    for (int j = s * per_source; j < (s + 1) * per_source; ++j, out += 2 * kTileBytes) {
      const __m512i codes = unit_vector(encoding, source, j);
      const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(codes, 16)), odd = upper_part(codes);
      store_split(has_floor(encoding) ? split(_mm512_fmsub_ps(scales.scale, even, floor),
                                              _mm512_fmsub_ps(scales.scale, odd, floor))
                                      : split(_mm512_mul_ps(scales.scale, even), _mm512_mul_ps(scales.scale, odd)),
                  out);
    }
  }
}

// `vectors` times 32 columns of a row from vector `first` on, whole units: 32 columns at `out`, each further
// part or 32 columns a tile later.
FATHOM_INLINE void decode_vectors(enum Encoding encoding, const struct EncodedMatrix* m, struct UnitRow where,
                                  int64_t first, int vectors, uint8_t* out) {
  const int step = unit_vectors(encoding);
  const int64_t begin = first / step, end = (first + vectors) / step;
  for (int64_t u = begin; u < end; ++u, out += step * tile_parts(encoding) * kTileBytes) {
    if (!is_direct(encoding)) {
      decode_split_unit(encoding, m, where, u, out);
      continue;
    }
    const Source source = unit_source(encoding, m, where, u, 0);
#pragma GCC unroll 2
    for (int j = 0; j < step; ++j) _mm512_storeu_si512(out + j * kTileBytes, unit_vector(encoding, source, j));
  }
}

}  // namespace
}  // namespace fathom::cpu
