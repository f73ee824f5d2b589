// Scales and floors of the blocks of 256 columns, one to a lane (layouts.h).
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

FATHOM_INLINE __m512i twice_each(uint64_t eight) {
  const __m128i twice =
      _mm_unpacklo_epi8(_mm_cvtsi64_si128((int64_t)eight), _mm_cvtsi64_si128((int64_t)eight));
  return _mm512_cvtepu8_epi32(twice);
}
// Q4_K and Q5_K: eight scales and eight minima of six bits in twelve bytes.
FATHOM_INLINE void q4_k_scales(const uint8_t* block, Scales* out) {
  const uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
  const uint32_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6) & 0x03030303) << 4;
  const uint32_t floor_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6) & 0x03030303) << 4;
  out->scale =
      _mm512_mul_ps(splat_half(block), float_of(twice_each((a & 0x3F3F3F3F) | (uint64_t)scale_high << 32)));
  out->floor = _mm512_mul_ps(splat_half(block + 2),
                             float_of(twice_each((b & 0x3F3F3F3F) | (uint64_t)floor_high << 32)));
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

}  // namespace
}  // namespace fathom::cpu
