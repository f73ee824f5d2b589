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

FATHOM_INLINE void q2_k_scales(const uint8_t* block, Scales* out) {
  const __m512i x = lanes_of_bytes(_mm_loadu_si128((const __m128i*)block), kQ2Layout.sub_block);
  out->scale = _mm512_mul_ps(splat_half(block + 80), float_of(_mm512_and_si512(x, _mm512_set1_epi32(15))));
  out->floor = _mm512_mul_ps(splat_half(block + 82), float_of(_mm512_srli_epi32(x, 4)));
}

// Six bits: four in the nibbles of eight bytes, two in the pairs of four more.
FATHOM_INLINE void q3_k_scales(const uint8_t* block, Scales* out) {
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
  out->scale = _mm512_mul_ps(splat_half(block + 108), float_of(scale));
}

FATHOM_INLINE __m512i twice_each(uint64_t eight) {
  const __m128i twice = _mm_unpacklo_epi8(_mm_cvtsi64_si128((int64_t)eight), _mm_cvtsi64_si128((int64_t)eight));
  return _mm512_cvtepu8_epi32(twice);
}
// Q4_K and Q5_K: eight scales and eight minima of six bits in twelve bytes.
FATHOM_INLINE void q4_k_scales(const uint8_t* block, Scales* out) {
  const uint32_t a = u32_at(block + 4), b = u32_at(block + 8), c = u32_at(block + 12);
  const uint32_t scale_high = (c & 0x0F0F0F0F) | ((a >> 6) & 0x03030303) << 4;
  const uint32_t floor_high = (c >> 4 & 0x0F0F0F0F) | ((b >> 6) & 0x03030303) << 4;
  out->scale = _mm512_mul_ps(splat_half(block),
                              float_of(twice_each((a & 0x3F3F3F3F) | (uint64_t)scale_high << 32)));
  out->floor = _mm512_mul_ps(splat_half(block + 2),
                              float_of(twice_each((b & 0x3F3F3F3F) | (uint64_t)floor_high << 32)));
}

FATHOM_INLINE void iq4_xs_scales(const uint8_t* block, Scales* out) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i group = _mm512_srli_epi32(lane, 1);
  const __m512i low = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_set1_epi32((int)u32_at(block + 4)), _mm512_slli_epi32(group, 2)),
      _mm512_set1_epi32(15));
  const __m512i high = _mm512_and_si512(
      _mm512_srlv_epi32(_mm512_set1_epi32(u16_at(block + 2)), _mm512_slli_epi32(group, 1)),
      _mm512_set1_epi32(3));
  const __m512i scale = _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
  out->scale = _mm512_mul_ps(splat_half(block), float_of(scale));
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

FATHOM_INLINE void q6_k_scales(const uint8_t* block, Scales* out) {
  const __m128i scales = _mm_shuffle_epi8(load16(block + 192), load16(kQ6Layout.sub_block));
  out->scale = _mm512_mul_ps(splat_half(block + 208), float_of(_mm512_cvtepi8_epi32(scales)));
}

FATHOM_INLINE __m512i iq4_nl_codes(const uint8_t* codes) {
  const __m128i levels = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  const __m128i x = load16(codes);
  const __m128i mask = _mm_set1_epi8(15);
  return bf16_of_bytes(_mm_shuffle_epi8(levels, _mm_and_si128(x, mask)),
                       _mm_shuffle_epi8(levels, _mm_and_si128(_mm_srli_epi16(x, 4), mask)));
}

// One weight row.
struct UnitRow {
  const uint8_t* data;
  const uint8_t* scales;
  const uint8_t* biases;
};
FATHOM_INLINE struct UnitRow unit_row(const struct EncodedMatrix* m, int64_t row) {
  return {row_data(m, row), row_scales(m, row), row_biases(m, row)};
}

FATHOM_INLINE int unit_sources(enum Encoding encoding) {
  if (!is_block256(encoding)) return 1;
  return encoding == kEncodingIq2Xxs ? 1 : 4;
}

// Source `source` of unit `u`.
FATHOM_INLINE Source unit_source(enum Encoding encoding, const struct EncodedMatrix* m, struct UnitRow row,
                                 int64_t u, int source) {
  const uint8_t* p = row.data + u * unit_block_bytes(encoding);
  Source one;
  one.low = one.high = _mm512_setzero_si512();
  switch (encoding) {
    case kEncodingQ2K: return gather_source(encoding, source, p + 16, 64, 0, 0);
    case kEncodingQ3K: return gather_source(encoding, source, p + 32, 64, p, 32);
    case kEncodingQ4K: return gather_source(encoding, source, p + 16, 128, 0, 0);
    case kEncodingQ5K: return gather_source(encoding, source, p + 48, 128, p + 16, 32);
    case kEncodingQ6K: return gather_source(encoding, source, p, 128, p + 128, 64);
    case kEncodingIq4Xs: return gather_source(encoding, source, p + 8, 128, 0, 0);
    case kEncodingIq2Xxs: return iq2_xxs_source(p);
    case kEncodingBf16: one.low = load64(row.data + 64 * u); return one;
    case kEncodingFp8: fp8_unit(row.data + 64 * u, row.scales + 2 * u, &one); return one;
    case kEncodingFp4: one.low = fp4_unit(row.data + 16 * u, row.scales[u]); return one;
    case kEncodingMxfp4: one.low = fp4_unit(row.data + 17 * u + 1, row.data[17 * u]); return one;
    case kEncodingQ8_0:
      one.low = bf16_of_bytes(load16(row.data + 34 * u + 2), load16(row.data + 34 * u + 18));
      return one;
    case kEncodingIq4Nl: one.low = iq4_nl_codes(row.data + 18 * u + 2); return one;
    case kEncodingAffine: one.low = affine_codes(row.data + 4 * m->bits * u, m->bits); return one;
    default:
      one.low = grid_codes(encoding, row.data + u / 8 * unit_block_bytes(encoding), (int)(u % 8));
      return one;
  }
}

// Vector `j` of a unit from the source it belongs to.
FATHOM_INLINE __m512i unit_vector(enum Encoding encoding, Source source, int j) {
  if (encoding == kEncodingIq2Xxs) return iq2_xxs_vector(source, j);
  if (is_block256(encoding)) return gathered_vector(encoding, source, j);
  return j == 0 ? source.low : source.high;
}

FATHOM_INLINE Scales unit_scales(enum Encoding encoding, const struct EncodedMatrix* m, struct UnitRow row,
                                 int64_t u) {
  const uint8_t* p = row.data + u * unit_block_bytes(encoding);
  Scales result;
  result.scale = result.floor = _mm512_setzero_ps();
  switch (encoding) {
    case kEncodingBf16:
    case kEncodingFp8:
    case kEncodingFp4:
    case kEncodingMxfp4: return result;
    case kEncodingQ2K: q2_k_scales(p, &result); return result;
    case kEncodingQ3K: q3_k_scales(p, &result); return result;
    case kEncodingQ4K:
    case kEncodingQ5K: q4_k_scales(p, &result); return result;
    case kEncodingQ6K: q6_k_scales(p, &result); return result;
    case kEncodingIq4Xs: iq4_xs_scales(p, &result); return result;
    case kEncodingIq2Xxs: return iq2_xxs_scales(p);
    case kEncodingQ8_0: result.scale = splat_half(row.data + 34 * u); return result;
    case kEncodingIq4Nl: result.scale = splat_half(row.data + 18 * u); return result;
    case kEncodingAffine: {
      const int64_t group = (32 * u) >> __builtin_ctz((unsigned)m->group);
      result.scale = _mm512_set1_ps(affine_scale(row.scales, group, m->scale_type));
      result.floor = _mm512_set1_ps(-affine_scale(row.biases, group, m->scale_type));
      return result;
    }
    default:
      result.scale = grid_scale(encoding, row.data + u / 8 * unit_block_bytes(encoding), (int)(u % 8));
      return result;
  }
}

}  // namespace
}  // namespace fathom::cpu
