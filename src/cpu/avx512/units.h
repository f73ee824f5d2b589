// Weights as bfloat16 vectors. A unit is what one decoding step takes: 32, 64 or 256 columns of a row, 32
// columns a vector. Two kinds:
//  - direct: the codes hold the weights themselves (powers of two as scales leave bfloat16 exact);
//  - scaled: weight = scale * code - floor, the scale and floor of each lane in a vector.
// The words of a unit stand in an order of the encoding's own (`word_column`), which activations are put in.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "cpu/avx512/layouts.h"
#include "cpu/avx512/tables.h"
#include "cpu/generic/scales.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

struct Unit {
  __m512i low[4], high[4];  // sources of blocks of 256; of the others, low[j] is vector j
  __m512 scale, floor;      // scaled kinds
};

FATHOM_INLINE int is_block256(enum Encoding encoding) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ3K || encoding == kEncodingQ4K ||
         encoding == kEncodingQ5K || encoding == kEncodingQ6K || encoding == kEncodingIq4Xs ||
         encoding == kEncodingIq2Xxs;
}
FATHOM_INLINE int unit_vectors(enum Encoding encoding) {
  return is_block256(encoding) ? 8 : encoding == kEncodingFp8 ? 2 : 1;
}
FATHOM_INLINE int is_direct(enum Encoding encoding) {
  return encoding == kEncodingBf16 || encoding == kEncodingFp8 || encoding == kEncodingFp4 ||
         encoding == kEncodingMxfp4;
}
FATHOM_INLINE int has_floor(enum Encoding encoding) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ4K || encoding == kEncodingQ5K ||
         encoding == kEncodingAffine;
}

// Column of word `word` of a unit.
FATHOM_INLINE int word_column(enum Encoding encoding, int word) {
  if (is_block256(encoding)) return layout(encoding)->column[word];
  const int lane = word % 32 / 8, place = word % 8;  // lanes of 128 bits
  if (encoding == kEncodingFp8) return 16 * lane + 8 * (word / 32) + place;
  const int nibble = 4 * lane + place % 4;  // of the block's first or second eight bytes
  if (encoding == kEncodingFp4) return place / 4 * 16 + nibble;
  if (encoding == kEncodingMxfp4) return place / 4 * 8 + nibble / 2 + 16 * (nibble % 2);
  return word;
}

FATHOM_INLINE __m512i load64(const void* p) { return _mm512_loadu_si512(p); }
FATHOM_INLINE __m512 splat_half(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return _mm512_set1_ps(_cvtsh_ss(half));
}
FATHOM_INLINE uint32_t u32_at(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

// 32 integers of few bits as bfloat16.
FATHOM_INLINE __m512i bf16_of_words(__m512i words) {
  const __m512i low = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(words));
  const __m512i high = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(words, 1));
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}
FATHOM_INLINE __m512i bf16_of_bytes(__m256i bytes) {
  const __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes));
  const __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1));
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}

// 64 columns of e4m3: the two bytes of each bfloat16 looked up, the scale subtracted from the exponent. The
// table is 2^60 too large, and zero stays zero because the subtraction saturates.
FATHOM_INLINE void fp8_unit(const uint8_t* codes, const uint8_t* scales, Unit* unit) {
  const __m512i x = load64(codes);
  const __m512i high = _mm512_permutex2var_epi8(load64(kFp8High), x, load64(kFp8High + 64));
  const __m512i low = _mm512_permutex2var_epi8(load64(kFp8Low), x, load64(kFp8Low + 64));
  uint16_t pair;
  memcpy(&pair, scales, sizeof pair);
  const __m512i words = _mm512_shuffle_epi8(_mm512_set1_epi16((int16_t)pair), load64(kFp8ScaleShuffle));
  const __m512i drop = _mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(kFp8Excess + 127), words), 7);
  const __m512i sign = _mm512_set1_epi16((int16_t)0x8000);
  const __m512i first = _mm512_subs_epu16(_mm512_unpacklo_epi8(low, high), drop);
  const __m512i second = _mm512_subs_epu16(_mm512_unpackhi_epi8(low, high), drop);
  unit->low[0] = _mm512_ternarylogic_epi32(first, sign, _mm512_unpacklo_epi8(x, x), 0xF8);
  unit->low[1] = _mm512_ternarylogic_epi32(second, sign, _mm512_unpackhi_epi8(x, x), 0xF8);
}

// 32 columns of e2m1: four bits to each word, then the sixteen values times the scale looked up.
FATHOM_INLINE __m512i fp4_unit(const uint8_t* codes, uint8_t scale) {
  const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)codes));
  return _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(load64(kFp4Shift), x),
                                  load64(kFp4Tables.word[scale]));
}

// 32 codes of `bits` bits that begin on a byte.
FATHOM_INLINE __m512i affine_codes(const uint8_t* codes, int bits) {
  const __m512i x = _mm512_maskz_loadu_epi8((__mmask64)((uint64_t{1} << (4 * bits)) - 1), codes);
  const __m512i bit = _mm512_mullo_epi16(load64(kWordNumber), _mm512_set1_epi16((int16_t)bits));
  const __m512i byte = _mm512_srli_epi16(bit, 3);
  const __m512i index =
      _mm512_or_si512(byte, _mm512_slli_epi16(_mm512_add_epi16(byte, _mm512_set1_epi16(1)), 8));
  const __m512i words =
      _mm512_srlv_epi16(_mm512_permutexvar_epi8(index, x), _mm512_and_si512(bit, _mm512_set1_epi16(7)));
  return bf16_of_words(_mm512_and_si512(words, _mm512_set1_epi16((int16_t)((1 << bits) - 1))));
}
FATHOM_INLINE float affine_scale(const uint8_t* p, int64_t group, int type) {
  if (type == kScaleF32) return float_of_bits(u32_at(p + 4 * group));
  uint16_t half;
  memcpy(&half, p + 2 * group, sizeof half);
  return type == kScaleF16 ? _cvtsh_ss(half) : float_of_bits((uint32_t)half << 16);
}

// Sources of a block of 256: 64 or 128 bytes of low bits, nothing, 32 or 64 bytes of high bits.
FATHOM_INLINE void block_sources(enum Encoding encoding, const uint8_t* low, int low_bytes,
                                 const uint8_t* high, int high_bytes, Unit* unit) {
  const Layout* where = layout(encoding);
  const int sources = 8 / vectors_a_source(encoding);
#pragma GCC unroll 4
  for (int source = 0; source < sources; ++source) {
    const __m512i index = load64(where->low_index[source]);
    unit->low[source] = low_bytes == 64 ? _mm512_permutexvar_epi64(index, load64(low))
                                        : _mm512_permutex2var_epi64(load64(low), index, load64(low + 64));
    if (high_bytes != 0) {
      const __m512i bits = high_bytes == 64
                               ? load64(high)
                               : _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)high));
      unit->high[source] = _mm512_permutexvar_epi64(load64(where->high_index[source]), bits);
    }
  }
}

// Vector `j` of a block of 256.
FATHOM_INLINE __m512i block_vector(enum Encoding encoding, const Unit* unit, int j) {
  const Layout* where = layout(encoding);
  const int source = j / vectors_a_source(encoding);
  __m512i index = _mm512_multishift_epi64_epi8(load64(where->low_shift[j]), unit->low[source]);
  if (encoding == kEncodingQ3K || encoding == kEncodingQ5K || encoding == kEncodingQ6K) {
    const __m512i high = _mm512_multishift_epi64_epi8(load64(where->high_shift[j]), unit->high[source]);
    const __m512i mask = _mm512_set1_epi16(encoding == kEncodingQ3K ? 3 : 15);
    index = _mm512_ternarylogic_epi32(mask, index, high, 0xCA);
  }
  switch (encoding) {
    case kEncodingQ2K: return _mm512_permutexvar_epi16(index, load64(kQ2Values.word));
    case kEncodingQ3K: return _mm512_permutexvar_epi16(index, load64(kQ3Values.word));
    case kEncodingQ4K: return _mm512_permutexvar_epi16(index, load64(kQ4Values.word));
    case kEncodingQ5K: return _mm512_permutexvar_epi16(index, load64(kQ5Values.word));
    case kEncodingQ6K:
      return _mm512_permutex2var_epi16(load64(kQ6Values.word), index, load64(kQ6Values.word + 32));
    default: return _mm512_permutexvar_epi16(index, load64(kIq4Values.word));
  }
}

}  // namespace
}  // namespace fathom::cpu
