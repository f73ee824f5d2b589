// Weights as bfloat16 vectors. A unit is what one decoding step takes: 32, 64 or 256 columns of a row, 32
// columns a vector. Two kinds:
//  - direct: the codes hold the weights themselves (powers of two as scales leave bfloat16 exact);
//  - scaled: weight = scale * (code - code_excess) - floor, the scale and floor of each lane in a vector.
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

// The codes of a unit: itself a vector for units of 32 columns, two for 64; for blocks of 256, what some of
// the eight vectors are taken from.
struct Source {
  __m512i low, high;
};
struct Scales {
  __m512 scale, floor;  // scaled kinds
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

FATHOM_INLINE int has_run_pairs(enum Encoding encoding) {
  return encoding == kEncodingIq2Xs || encoding == kEncodingIq2S || encoding == kEncodingIq1S ||
         encoding == kEncodingIq1M;
}

// Column of word `word` of a unit.
FATHOM_INLINE int word_column(enum Encoding encoding, int word) {
  if (is_block256(encoding)) return layout(encoding)->column[word];
  const int lane = word % 32 / 8, place = word % 8;  // lanes of 128 bits
  if (encoding == kEncodingFp8) return 16 * lane + 8 * (word / 32) + place;
  // A lane has the nibbles of one place in all eight pairs of bytes.
  if (encoding == kEncodingFp4) return 4 * place + lane;
  if (encoding == kEncodingMxfp4) return 2 * place + lane / 2 + 16 * (lane % 2);
  if (encoding == kEncodingBf16 || encoding == kEncodingAffine) return word;
  // Bytes in two halves: of 16 columns each, or of two runs of eight each where 16 columns share a scale.
  return word % 2 * (has_run_pairs(encoding) ? 8 : 16) +
         (has_run_pairs(encoding) ? word / 16 * 16 + word / 2 % 8 : word / 2);
}

FATHOM_INLINE __m512i load64(const void* p) { return _mm512_loadu_si512(p); }
FATHOM_INLINE __m512 splat_half(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)half));
}
FATHOM_INLINE uint32_t u32_at(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

// Sixteen small integers and sixteen more as bfloat16: the even words and the odd words of the result. Exact,
// so taking the upper halves of the float32 numbers rounds nothing.
FATHOM_INLINE __m512i bf16_of_integers(__m512i even, __m512i odd) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(even)), 16);
  return _mm512_mask_blend_epi16(0xAAAAAAAA, low, _mm512_castps_si512(_mm512_cvtepi32_ps(odd)));
}
FATHOM_INLINE __m512i bf16_of_bytes(__m128i even, __m128i odd) {
  return bf16_of_integers(_mm512_cvtepi8_epi32(even), _mm512_cvtepi8_epi32(odd));
}
FATHOM_INLINE __m128i load16(const uint8_t* p) { return _mm_loadu_si128((const __m128i*)p); }

// 64 columns of e4m3: the two bytes of each bfloat16 looked up, the scale subtracted from the exponent. The
// table is 2^60 too large, and zero stays zero because the subtraction saturates.
FATHOM_INLINE void fp8_unit(const uint8_t* codes, const uint8_t* scales, Source* vectors) {
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
  vectors->low = _mm512_ternarylogic_epi32(first, sign, _mm512_unpacklo_epi8(x, x), 0xF8);
  vectors->high = _mm512_ternarylogic_epi32(second, sign, _mm512_unpackhi_epi8(x, x), 0xF8);
}

// 32 columns of e2m1: four bits to the low end of each word, then the sixteen values times the scale looked
// up.
FATHOM_INLINE __m512i fp4_unit(const uint8_t* codes, uint8_t scale) {
  const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)codes));
  return _mm512_permutexvar_epi16(_mm512_srlv_epi16(x, load64(kFp4Shift)), load64(kFp4Tables.word[scale]));
}

// 32 codes of `bits` bits that begin on a byte.
FATHOM_INLINE __m512i affine_codes(const uint8_t* codes, int bits) {
  const __m512i x = _mm512_maskz_loadu_epi8((__mmask64)((uint64_t{1} << (4 * bits)) - 1), codes);
  const __m512i bit = _mm512_mullo_epi16(load64(kWordNumber), _mm512_set1_epi16((int16_t)bits));
  const __m512i byte = _mm512_srli_epi16(bit, 3);
  const __m512i index =
      _mm512_or_si512(byte, _mm512_slli_epi16(_mm512_add_epi16(byte, _mm512_set1_epi16(1)), 8));
  const __m512i shifted =
      _mm512_srlv_epi16(_mm512_permutexvar_epi8(index, x), _mm512_and_si512(bit, _mm512_set1_epi16(7)));
  const __m512i words = _mm512_and_si512(shifted, _mm512_set1_epi16((int16_t)((1 << bits) - 1)));
  return bf16_of_integers(_mm512_and_si512(words, _mm512_set1_epi32(0xFFFF)), _mm512_srli_epi32(words, 16));
}
FATHOM_INLINE float affine_scale(const uint8_t* p, int64_t group, enum ScaleType type) {
  if (type == kScaleF32) return float_of_bits(u32_at(p + 4 * group));
  uint16_t half;
  memcpy(&half, p + 2 * group, sizeof half);
  return type == kScaleF16 ? _cvtsh_ss(half) : float_of_bits((uint32_t)half << 16);
}

// Source `source` of a block of 256 from 64 or 128 bytes of low bits, and from nothing, 32 or 64 bytes of
// high bits.
FATHOM_INLINE Source gather_source(enum Encoding encoding, int source, const uint8_t* low, int low_bytes,
                                   const uint8_t* high, int high_bytes) {
  const Layout* where = layout(encoding);
  const __m512i index = load64(where->low_index[source]);
  Source result;
  result.low = low_bytes == 64 ? _mm512_permutexvar_epi32(index, load64(low))
                               : _mm512_permutex2var_epi32(load64(low), index, load64(low + 64));
  result.high = result.low;
  if (high_bytes != 0) {
    const __m512i bits =
        high_bytes == 64 ? load64(high) : _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)high));
    result.high = _mm512_permutexvar_epi32(load64(where->high_index[source]), bits);
  }
  return result;
}

// What the codes of an encoding are too large by: those with a minimum anyway are written into the top of a
// mantissa, which costs no look-up, and the excess joins the floor.
FATHOM_INLINE float code_excess(enum Encoding encoding) {
  return encoding == kEncodingQ2K   ? 4.0f
         : encoding == kEncodingQ4K ? 16.0f
         : encoding == kEncodingQ5K ? 32.0f
                                    : 0.0f;
}
FATHOM_INLINE __m512i mantissa_codes(__m512i bits, int mask, float excess) {
  return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi16((int16_t)mask),
                                   _mm512_set1_epi16((int16_t)bf16_bits(excess)), 0xEA);
}

// Vector `j` of a block of 256 from its source.
FATHOM_INLINE __m512i gathered_vector(enum Encoding encoding, Source source, int j) {
  const Layout* where = layout(encoding);
  __m512i index = _mm512_rorv_epi32(source.low, load64(where->low_shift[j % 2]));
  if (encoding == kEncodingQ3K || encoding == kEncodingQ5K || encoding == kEncodingQ6K) {
    const __m512i high = _mm512_rorv_epi32(source.high, load64(where->high_shift[j % 2]));
    const __m512i mask = _mm512_set1_epi16(encoding == kEncodingQ3K   ? 3
                                           : encoding == kEncodingQ5K ? 0x3C
                                                                      : 15);
    index = _mm512_ternarylogic_epi32(mask, index, high, 0xCA);
  }
  switch (encoding) {
    case kEncodingQ2K: return mantissa_codes(index, 0x60, 4.0f);
    case kEncodingQ4K: return mantissa_codes(index, 0x78, 16.0f);
    case kEncodingQ5K: return mantissa_codes(index, 0x7C, 32.0f);
    case kEncodingQ3K: return _mm512_permutexvar_epi16(index, load64(kQ3Values.word));
    case kEncodingQ6K:
      return _mm512_permutex2var_epi16(load64(kQ6Values.word), index, load64(kQ6Values.word + 32));
    default: return _mm512_permutexvar_epi16(index, load64(kIq4Values.word));
  }
}

}  // namespace
}  // namespace fathom::cpu
