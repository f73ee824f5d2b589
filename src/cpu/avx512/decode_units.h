// One unit of any encoding (units.h).
#pragma once

#include "cpu/avx512/block_scales.h"

namespace fathom::cpu {
namespace {

// Bytes of a unit in a weight row.
FATHOM_INLINE int unit_bytes(enum Encoding encoding, int affine_bits) {
  switch (encoding) {
    case kEncodingBf16:
    case kEncodingFp8: return 64;
    case kEncodingFp4: return 16;
    case kEncodingMxfp4: return 17;
    case kEncodingQ8_0: return 8 * 34;
    case kEncodingIq4Nl: return 8 * 18;
    case kEncodingAffine: return 4 * affine_bits;
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

// One weight row.
struct UnitRow {
  const uint8_t* data;
  const uint8_t* scales;
  const uint8_t* biases;
};
FATHOM_INLINE struct UnitRow unit_row(const struct EncodedMatrix* m, int64_t row) {
  return {row_data(m, row), row_scales(m, row), row_biases(m, row)};
}

// Unit `u` of a direct kind.
FATHOM_INLINE Source direct_unit(enum Encoding encoding, struct UnitRow row, int64_t u) {
  Source one;
  one.low = one.high = _mm512_setzero_si512();
  switch (encoding) {
    case kEncodingBf16: one.low = load64(row.data + 64 * u); return one;
    case kEncodingFp8: fp8_unit(row.data + 64 * u, row.scales + 2 * u, &one); return one;
    case kEncodingFp4: one.low = fp4_unit(row.data + 16 * u, row.scales[u]); return one;
    default: one.low = fp4_unit(row.data + 17 * u + 1, row.data[17 * u]); return one;
  }
}

// The scaled kinds. Scales of the unit at `p`, of a row's units number `u`.
FATHOM_INLINE Scales unit_scales(enum Encoding encoding, const struct EncodedMatrix* m, struct UnitRow row,
                                 const uint8_t* p, int64_t u) {
  Scales result;
  result.scale = result.floor = _mm512_setzero_ps();
  result.group = _mm512_setzero_si512();
  switch (encoding) {
    case kEncodingQ2K: q2_k_scales(p, &result); return result;
    case kEncodingQ3K: q3_k_scales(p, &result); return result;
    case kEncodingQ4K:
    case kEncodingQ5K: q4_k_scales(p, &result); return result;
    case kEncodingQ6K: q6_k_scales(p, &result); return result;
    case kEncodingIq4Xs: iq4_xs_scales(p, &result); return result;
    case kEncodingIq2Xxs: result.scale = iq2_xxs_scales(p); return result;
    case kEncodingQ8_0: result.scale = q8_0_scales(p); return result;
    case kEncodingIq4Nl: result.scale = iq4_nl_scales(p); return result;
    case kEncodingAffine: {
      const int64_t group = (32 * u) >> __builtin_ctz((unsigned)m->group);
      result.scale = _mm512_set1_ps(affine_scale(row.scales, group, m->scale_type));
      result.floor = _mm512_set1_ps(-affine_scale(row.biases, group, m->scale_type));
      return result;
    }
    default: group_scales(encoding, p, &result); return result;
  }
}

// Each is the source of as many of the unit's vectors.
FATHOM_INLINE int unit_sources(enum Encoding encoding) {
  if (has_groups(encoding)) return 8;
  return encoding == kEncodingIq2Xxs || encoding == kEncodingAffine ? 1 : 4;
}
FATHOM_INLINE Source unit_source(enum Encoding encoding, int affine_bits, const uint8_t* p, int source,
                                 const Scales* scales) {
  if (encoding == kEncodingIq2Xxs) return iq2_xxs_source(p);
  Source one;
  one.high = _mm512_setzero_si512();
  if (encoding == kEncodingAffine)
    one.low = affine_codes(p, affine_bits);
  else if (has_groups(encoding))
    one.low = group_codes(encoding, p, source, scales->group);
  else
    one.low = gathered_source(encoding, p, source);
  return one;
}
// Vector `j` of a unit from the source it belongs to.
FATHOM_INLINE __m512i unit_vector(enum Encoding encoding, Source source, int j) {
  if (encoding == kEncodingIq2Xxs) return iq2_xxs_vector(source, j);
  if (encoding == kEncodingAffine || has_groups(encoding)) return source.low;
  return gathered_vector(encoding, source.low, j % 2);
}

// The last unit of Q8_0 and IQ4_NL may have less than 256 columns: the others are zero in a copy.
enum { kMostUnitBytes = 8 * 34 };
FATHOM_INLINE const uint8_t* whole_unit(enum Encoding encoding, const struct EncodedMatrix* m, const uint8_t* p,
                                        int64_t u, uint8_t* copy) {
  if (encoding != kEncodingQ8_0 && encoding != kEncodingIq4Nl) return p;
  const int64_t left = m->cols - 256 * u;
  if (__builtin_expect(left >= 256, 1)) return p;
  memset(copy, 0, kMostUnitBytes);
  memcpy(copy, p, (size_t)(left / 32 * (unit_bytes(encoding, 0) / 8)));
  return copy;
}

}  // namespace
}  // namespace fathom::cpu
