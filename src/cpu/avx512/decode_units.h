// One unit of any encoding (units.h), and decoding to float32 through units.
#pragma once

#include "cpu/avx512/grids.h"
#include "cpu/avx512/units.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE __m512i lanes_of_bytes(__m128i bytes, const uint8_t* lane_index) {
  return _mm512_cvtepu8_epi32(_mm_shuffle_epi8(bytes, _mm_loadu_si128((const __m128i*)lane_index)));
}
FATHOM_INLINE __m512 float_of(__m512i x) { return _mm512_cvtepi32_ps(x); }

FATHOM_INLINE void q2_k_scales(const uint8_t* block, Unit* unit) {
  const __m512i x = lanes_of_bytes(_mm_loadu_si128((const __m128i*)block), kQ2Layout.sub_block);
  unit->scale = _mm512_mul_ps(splat_half(block + 80), float_of(_mm512_and_si512(x, _mm512_set1_epi32(15))));
  unit->floor = _mm512_mul_ps(splat_half(block + 82), float_of(_mm512_srli_epi32(x, 4)));
}

// Six bits: four in the nibbles of eight bytes, two in the pairs of four more.
FATHOM_INLINE void q3_k_scales(const uint8_t* block, Unit* unit) {
  const __m512i sub_block =
      _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)kQ3Layout.sub_block));
  // The twelve bytes end the load: the block does not go on far enough to begin it.
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(block + 94)));
  const __m512i low_at = _mm512_add_epi32(_mm512_and_si512(sub_block, _mm512_set1_epi32(7)), _mm512_set1_epi32(2));
  const __m512i high_at =
      _mm512_add_epi32(_mm512_and_si512(sub_block, _mm512_set1_epi32(3)), _mm512_set1_epi32(10));
  const __m512i low_shift = _mm512_slli_epi32(_mm512_srli_epi32(sub_block, 3), 2);
  const __m512i high_shift = _mm512_slli_epi32(_mm512_srli_epi32(sub_block, 2), 1);
  const __m512i low = _mm512_and_si512(_mm512_srlv_epi32(_mm512_permutexvar_epi32(low_at, bytes), low_shift),
                                       _mm512_set1_epi32(15));
  const __m512i high = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_permutexvar_epi32(high_at, bytes), high_shift), _mm512_set1_epi32(3));
  const __m512i scale = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
  unit->scale = _mm512_mul_ps(splat_half(block + 108), float_of(scale));
}

FATHOM_INLINE __m512i twice_each(uint64_t eight) {
  const __m128i twice = _mm_unpacklo_epi8(_mm_cvtsi64_si128((int64_t)eight), _mm_cvtsi64_si128((int64_t)eight));
  return _mm512_cvtepu8_epi32(twice);
}
// Q4_K and Q5_K: eight scales and eight minima of six bits in twelve bytes.
FATHOM_INLINE void q4_k_scales(const uint8_t* block, Unit* unit) {
  const uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
  const uint32_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6) & 0x03030303) << 4;
  const uint32_t floor_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6) & 0x03030303) << 4;
  unit->scale = _mm512_mul_ps(splat_half(block),
                              float_of(twice_each((a & 0x3F3F3F3F) | (uint64_t)scale_high << 32)));
  unit->floor = _mm512_mul_ps(splat_half(block + 2),
                              float_of(twice_each((b & 0x3F3F3F3F) | (uint64_t)floor_high << 32)));
}

FATHOM_INLINE void iq4_xs_scales(const uint8_t* block, Unit* unit) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i group = _mm512_srli_epi32(lane, 1);
  const __m512i low = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_set1_epi32((int)u32_at(block + 4)), _mm512_slli_epi32(group, 2)),
      _mm512_set1_epi32(15));
  const __m512i high = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_set1_epi32(u16_at(block + 2)), _mm512_slli_epi32(group, 1)),
      _mm512_set1_epi32(3));
  const __m512i scale = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
  unit->scale = _mm512_mul_ps(splat_half(block), float_of(scale));
}

// Bytes of a block of 256 columns, of 32 for the others.
FATHOM_INLINE int unit_block_bytes(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingQ2K: return 84;
    case kEncodingQ3K: return 110;
    case kEncodingQ4K: return 144;
    case kEncodingQ5K: return 176;
    case kEncodingQ6K: return 210;
    case kEncodingIq4Xs: return 136;
    case kEncodingIq2Xxs: return 66;
    case kEncodingIq2Xs: return 74;
    case kEncodingIq2S: return 82;
    case kEncodingIq3Xxs: return 98;
    case kEncodingIq3S: return 110;
    case kEncodingIq1S: return 50;
    case kEncodingIq1M: return 56;
    default: return 0;
  }
}

FATHOM_INLINE void block_unit(enum Encoding encoding, const uint8_t* p, Unit* unit) {
  switch (encoding) {
    case kEncodingQ2K:
      q2_k_scales(p, unit);
      return block_sources(encoding, p + 16, 64, 0, 0, unit);
    case kEncodingQ3K:
      q3_k_scales(p, unit);
      return block_sources(encoding, p + 32, 64, p, 32, unit);
    case kEncodingQ4K:
      q4_k_scales(p, unit);
      return block_sources(encoding, p + 16, 128, 0, 0, unit);
    case kEncodingQ5K:
      q4_k_scales(p, unit);
      return block_sources(encoding, p + 48, 128, p + 16, 32, unit);
    case kEncodingQ6K: {
      const __m128i scales = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)(p + 192)),
                                              _mm_loadu_si128((const __m128i*)kQ6Layout.sub_block));
      unit->scale = _mm512_mul_ps(splat_half(p + 208), float_of(_mm512_cvtepi8_epi32(scales)));
      return block_sources(encoding, p, 128, p + 128, 64, unit);
    }
    case kEncodingIq4Xs:
      iq4_xs_scales(p, unit);
      return block_sources(encoding, p + 8, 128, 0, 0, unit);
    default: return iq2_xxs_unit(p, unit);
  }
}

FATHOM_INLINE __m256i iq4_bytes(const uint8_t* codes) {
  const __m128i levels = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  const __m128i x = _mm_loadu_si128((const __m128i*)codes);
  const __m128i mask = _mm_set1_epi8(15);
  return _mm256_set_m128i(_mm_shuffle_epi8(levels, _mm_and_si128(_mm_srli_epi16(x, 4), mask)),
                          _mm_shuffle_epi8(levels, _mm_and_si128(x, mask)));
}

// Unit `u` of a row.
FATHOM_INLINE void decode_unit(enum Encoding encoding, const struct EncodedMatrix* m, const uint8_t* data,
                               const uint8_t* scales, const uint8_t* biases, int64_t u, Unit* unit) {
  switch (encoding) {
    case kEncodingBf16: unit->low[0] = load64(data + 64 * u); return;
    case kEncodingFp8: return fp8_unit(data + 64 * u, scales + 2 * u, unit);
    case kEncodingFp4: unit->low[0] = fp4_unit(data + 16 * u, scales[u]); return;
    case kEncodingMxfp4: unit->low[0] = fp4_unit(data + 17 * u + 1, data[17 * u]); return;
    case kEncodingQ8_0:
      unit->scale = splat_half(data + 34 * u);
      unit->low[0] = bf16_of_bytes(_mm256_loadu_si256((const __m256i*)(data + 34 * u + 2)));
      return;
    case kEncodingIq4Nl:
      unit->scale = splat_half(data + 18 * u);
      unit->low[0] = bf16_of_bytes(iq4_bytes(data + 18 * u + 2));
      return;
    case kEncodingAffine:
      unit->low[0] = affine_codes(data + 4 * m->bits * u, m->bits);
      unit->scale = _mm512_set1_ps(affine_scale(scales, 32 * u / m->group, m->scale_type));
      unit->floor = _mm512_set1_ps(-affine_scale(biases, 32 * u / m->group, m->scale_type));
      return;
    default:
      if (is_block256(encoding)) return block_unit(encoding, data + u * unit_block_bytes(encoding), unit);
      return grid_unit(encoding, data + u / 8 * unit_block_bytes(encoding), (int)(u % 8), unit);
  }
}

// Vector `j` of a decoded unit.
FATHOM_INLINE __m512i unit_vector(enum Encoding encoding, const Unit* unit, int j) {
  if (encoding == kEncodingIq2Xxs) return iq2_xxs_vector(unit, j);
  return is_block256(encoding) ? block_vector(encoding, unit, j) : unit->low[j];
}

}  // namespace
}  // namespace fathom::cpu
