// One unit of any encoding (units.h), and decoding to float32 through units.
#pragma once

#include "cpu/avx512/block_scales.h"

namespace fathom::cpu {
namespace {

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

FATHOM_INLINE __m512i iq4_nl_codes(const uint8_t* codes) {
  const __m128i levels =
      _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
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
