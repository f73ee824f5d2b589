// Scales and floors of the units of 256 columns, one to a lane (layouts.h).
#pragma once

#include "cpu/avx512/grids.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE __m512i lanes_of_bytes(__m128i bytes, const uint8_t* lane_index) {
  return _mm512_cvtepu8_epi32(_mm_shuffle_epi8(bytes, _mm_loadu_si128((const __m128i*)lane_index)));
}
FATHOM_INLINE __m512 float_of(__m512i x) { return _mm512_cvtepi32_ps(x); }

FATHOM_INLINE void q2_k_scales(const uint8_t* block, Scales* out) {
  const __m512i x = lanes_of_bytes(_mm_loadu_si128((const __m128i*)block), kQ2Layout.sub_block);
  out->scale = _mm512_mul_ps(splat_half(block + 80), float_of(_mm512_and_si512(x, _mm512_set1_epi32(15))));
  out->floor = _mm512_mul_ps(splat_half(block + 82), float_of(_mm512_srli_epi32(x, 4)));
}

// Six bits: four in the nibbles of eight bytes, two in the pairs of four more.
FATHOM_INLINE void q3_k_scales(const uint8_t* block, Scales* out) {
  const __m512i sub_block = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)kQ3Layout.sub_block));
  // The twelve bytes end the load: the block does not go on far enough to begin it.
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(block + 94)));
  const __m512i low_at =
      _mm512_add_epi32(_mm512_and_si512(sub_block, _mm512_set1_epi32(7)), _mm512_set1_epi32(2));
  const __m512i high_at =
      _mm512_add_epi32(_mm512_and_si512(sub_block, _mm512_set1_epi32(3)), _mm512_set1_epi32(10));
  const __m512i low_shift = _mm512_slli_epi32(_mm512_srli_epi32(sub_block, 3), 2);
  const __m512i high_shift = _mm512_slli_epi32(_mm512_srli_epi32(sub_block, 2), 1);
  const __m512i low = _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(low_at, bytes), low_shift),
                                       _mm512_set1_epi32(15));
  const __m512i high = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_permutexvar_epi32(high_at, bytes), high_shift), _mm512_set1_epi32(3));
  const __m512i scale =
      _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
  out->scale = _mm512_mul_ps(splat_half(block + 108), float_of(scale));
}

// Q4_K and Q5_K: eight scales and eight minima of six bits in twelve bytes. Floors of the eight sub-blocks
// are in the lanes from 8 on; what the lanes below have is for no one.
FATHOM_INLINE void q4_k_scales(const uint8_t* block, Scales* out) {
  const uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
  const uint32_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6) & 0x03030303) << 4;
  const uint32_t floor_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6) & 0x03030303) << 4;
  const __m128i bytes = _mm_set_epi64x((int64_t)((b & 0x3F3F3F3F) | (uint64_t)floor_high << 32),
                                       (int64_t)((a & 0x3F3F3F3F) | (uint64_t)scale_high << 32));
  const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512 factors = _mm512_permutexvar_ps(
      halves, _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128((int)u32_at(block)))));
  out->floor = _mm512_mul_ps(factors, float_of(_mm512_cvtepu8_epi32(bytes)));
  out->scale = _mm512_permutexvar_ps(twice, out->floor);
}

// Of eight blocks, each with its scale in front: the scales, each to the lanes of `order`.
FATHOM_INLINE __m512 eight_halves(const uint8_t* p, int64_t stride, __m512i order) {
  const __m128i halves = _mm_setr_epi16((int16_t)u16_at(p), (int16_t)u16_at(p + stride),
                                        (int16_t)u16_at(p + 2 * stride), (int16_t)u16_at(p + 3 * stride),
                                        (int16_t)u16_at(p + 4 * stride), (int16_t)u16_at(p + 5 * stride),
                                        (int16_t)u16_at(p + 6 * stride), (int16_t)u16_at(p + 7 * stride));
  return _mm512_permutexvar_ps(order, _mm512_castps256_ps512(_mm256_cvtph_ps(halves)));
}
FATHOM_INLINE __m512 q8_0_scales(const uint8_t* block) {
  return eight_halves(block, 34, _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7));
}
FATHOM_INLINE __m512 iq4_nl_scales(const uint8_t* block) {
  return eight_halves(block, 18, _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7));
}

FATHOM_INLINE void iq4_xs_scales(const uint8_t* block, Scales* out) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i group = _mm512_srli_epi32(lane, 1);
  const __m512i low = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_set1_epi32((int)u32_at(block + 4)), _mm512_slli_epi32(group, 2)),
      _mm512_set1_epi32(15));
  const __m512i high =
      _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32(u16_at(block + 2)), _mm512_slli_epi32(group, 1)),
                       _mm512_set1_epi32(3));
  const __m512i scale =
      _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
  out->scale = _mm512_mul_ps(splat_half(block), float_of(scale));
}

FATHOM_INLINE void q6_k_scales(const uint8_t* block, Scales* out) {
  const __m128i scales = _mm_shuffle_epi8(load16(block + 192), load16(kQ6Layout.sub_block));
  out->scale = _mm512_mul_ps(splat_half(block + 208), float_of(_mm512_cvtepi8_epi32(scales)));
}

// A number for 32 columns in the lane's both words.
FATHOM_INLINE __m256i both_words(__m256i x) { return _mm256_or_si256(x, _mm256_slli_epi32(x, 16)); }
// The stored scales of the grids' blocks, a word for 16 columns each.
FATHOM_INLINE __m256i group_scale_codes(enum Encoding encoding, const uint8_t* block) {
  switch (encoding) {
    case kEncodingIq3Xxs:
      return both_words(_mm256_srli_epi32(_mm256_loadu_si256((const __m256i*)(block + 66)), 28));
    case kEncodingIq3S: {
      const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
      const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32((int)u32_at(block + 106)), shift);
      return both_words(_mm256_and_si256(codes, _mm256_set1_epi32(15)));
    }
    case kEncodingIq1S: {
      const __m128i codes = _mm_and_si128(_mm_srli_epi16(load16(block + 34), 12), _mm_set1_epi16(7));
      return both_words(_mm256_cvtepu16_epi32(codes));
    }
    case kEncodingIq1M: {
      const __m256i word = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5,
                                            4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
      const __m256i words =
          _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i*)(block + 48))), word);
      const __m256i shift = _mm256_setr_epi16(0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9, 0, 3, 6, 9);
      return _mm256_and_si256(_mm256_srlv_epi16(words, shift), _mm256_set1_epi16(7));
    }
    default: {  // IQ2_XS and IQ2_S: nibbles
      const uint8_t* p = block + (encoding == kEncodingIq2Xs ? 66 : 74);
      const __m128i x = _mm_loadl_epi64((const __m128i*)p);
      const __m128i both = _mm_unpacklo_epi8(x, _mm_srli_epi16(x, 4));
      return _mm256_cvtepu8_epi16(_mm_and_si128(both, _mm_set1_epi8(15)));
    }
  }
}
FATHOM_INLINE uint32_t iq1_m_factor(const uint8_t* s) {
  return (uint32_t)((s[1] >> 4) | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12);
}
FATHOM_INLINE void group_scales(enum Encoding encoding, const uint8_t* block, Scales* out) {
  const __m256i codes = group_scale_codes(encoding, block);
  out->group = _mm512_castsi256_si512(_mm256_add_epi16(_mm256_add_epi16(codes, codes), _mm256_set1_epi16(1)));
  const uint32_t factor = encoding == kEncodingIq1M ? iq1_m_factor(block + 48) : u16_at(block);
  out->scale = _mm512_set1_ps(_cvtsh_ss((unsigned short)factor) * (encoding == kEncodingIq3S     ? 1.0f
                                                                   : encoding == kEncodingIq3Xxs ? 0.25f
                                                                                                 : 0.125f));
}

}  // namespace
}  // namespace fathom::cpu
