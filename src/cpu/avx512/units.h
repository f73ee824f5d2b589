// Weights as vectors of 16-bit words. A unit is what one decoding step takes: 32, 64 or 256 columns of a row, 32
// columns a vector. Two kinds:
//  - direct: words are bfloat16 numbers, the weights themselves (powers of two as scales leave them exact);
//  - scaled: words are integers, weight = scale * (code - code_excess) - floor, scale and floor by lane.
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

// What some vectors of a unit are taken from: the vectors themselves, or bytes of them.
struct Source {
  __m512i low, high;
};
// Of the scaled kinds.
struct Scales {
  __m512 scale, floor;
  __m512i group;  // for codes that are multiplied by integer scales: a word for 16 columns each
};

FATHOM_INLINE int is_direct(enum Encoding encoding) {
  return encoding == kEncodingBf16 || encoding == kEncodingFp8 || encoding == kEncodingFp4 ||
         encoding == kEncodingMxfp4;
}
FATHOM_INLINE int is_block256(enum Encoding encoding) {
  return !is_direct(encoding) && encoding != kEncodingAffine;
}
// Grids looked up in memory, 32 columns at a time in their order.
FATHOM_INLINE int has_groups(enum Encoding encoding) {
  return encoding == kEncodingIq2Xs || encoding == kEncodingIq2S || encoding == kEncodingIq3Xxs ||
         encoding == kEncodingIq3S || encoding == kEncodingIq1S || encoding == kEncodingIq1M;
}
FATHOM_INLINE int unit_vectors(enum Encoding encoding) {
  return is_block256(encoding) ? 8 : encoding == kEncodingFp8 ? 2 : 1;
}
FATHOM_INLINE int has_floor(enum Encoding encoding) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ4K || encoding == kEncodingQ5K ||
         encoding == kEncodingAffine;
}
// What the codes are too large by. Products begin with what that takes off, which costs nothing.
FATHOM_INLINE int code_excess(enum Encoding encoding) {
  return encoding == kEncodingQ3K ? 4 : encoding == kEncodingQ6K ? 32 : 0;
}

// Column of word `word` of a unit.
FATHOM_INLINE int word_column(enum Encoding encoding, int word) {
  if (encoding == kEncodingBf16 || encoding == kEncodingAffine || has_groups(encoding)) return word;
  if (is_block256(encoding)) return layout(encoding)->column[word];
  const int lane = word % 32 / 8, place = word % 8;  // lanes of 128 bits
  if (encoding == kEncodingFp8) return 16 * lane + 8 * (word / 32) + place;
  // A lane has the nibbles of one place in all eight pairs of bytes.
  if (encoding == kEncodingFp4) return 4 * place + lane;
  return 2 * place + lane / 2 + 16 * (lane % 2);  // MXFP4
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
  return _mm512_and_si512(shifted, _mm512_set1_epi16((int16_t)((1 << bits) - 1)));
}
FATHOM_INLINE float affine_scale(const uint8_t* p, int64_t group, enum ScaleType type) {
  if (type == kScaleF32) return float_of_bits(u32_at(p + 4 * group));
  uint16_t half;
  memcpy(&half, p + 2 * group, sizeof half);
  return type == kScaleF16 ? _cvtsh_ss(half) : float_of_bits((uint32_t)half << 16);
}

}  // namespace
}  // namespace fathom::cpu
