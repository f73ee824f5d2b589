// Activation rows as fixed-point numbers for the scaled kinds (units.h).
//
// The activations of a unit are q * 2^e, q a signed 16-bit integer and 2^e the power of two that brings the
// largest one to [2^14, 2^15). A bfloat16 number has eight bits, so it is exact down to 2^-7 of the unit's
// largest; below that it is rounded to 2^-16 of it. Products of q with codes are summed in 32-bit integers,
// exactly: a lane sees sixteen of a unit's columns, and of no encoding is 16 * 2^15 * code beyond 2^31.
#pragma once

#include "cpu/avx512/row_values.h"

namespace fathom::cpu {
namespace {

// A prepared row: units, then the scale of each. A unit has its vectors of q, then by lane what code_excess
// of the codes makes too much (int32), or the sums that floors are multiplied by (float32).
struct FixedRow {
  const uint8_t* units;
  const float* scales;
};
FATHOM_INLINE int has_sums(enum Encoding encoding) {
  return has_floor(encoding) || code_excess(encoding) != 0;
}
FATHOM_INLINE int fixed_unit_bytes(enum Encoding encoding) {
  return 64 * (unit_vectors(encoding) + has_sums(encoding));
}
FATHOM_INLINE struct FixedRow fixed_row(enum Encoding encoding, int64_t cols, const uint8_t* row) {
  return {row, (const float*)(row + unit_count(encoding, cols) * fixed_unit_bytes(encoding))};
}

static int64_t fixed_row_bytes(const struct EncodedMatrix* m) {
  const enum Encoding encoding = m->encoding;
  const int has_tail = encoding == kEncodingQ8_0 || encoding == kEncodingIq4Nl;
  if (m->cols % (has_tail ? 32 : unit_cols(encoding)) != 0) return 0;
  const int64_t bytes = unit_count(encoding, m->cols) * (fixed_unit_bytes(encoding) + 4);
  return (bytes + 63) / 64 * 64;
}

// Not below 2^-107: what is smaller than 2^-122 becomes zero. NaN where the largest is an infinity or a NaN.
struct UnitScale {
  float scale, inverse;
};
FATHOM_INLINE struct UnitScale unit_scale(__m512i largest) {
  const uint32_t bits = (uint32_t)_mm512_reduce_max_epu32(largest);
  const uint32_t exponent = bits >> 23 < 20 ? 20 : bits >> 23;
  return {exponent == 255 ? float_of_bits(0x7FC00000u) : float_of_bits((exponent - 14) << 23),
          float_of_bits((254 - (exponent - 14)) << 23)};
}

// How 256 words in their order become those of one vector: from two of eight vectors, and from which two.
struct WordOrder {
  uint16_t column[256];
  __mmask32 second[8], upper[8];
};
static void make_word_order(enum Encoding encoding, struct WordOrder* order) {
  for (int w = 0; w < 256; ++w) order->column[w] = (uint16_t)word_column(encoding, w);
  for (int v = 0; v < 8; ++v) {
    const __m512i column = load64(order->column + 32 * v);
    order->second[v] = _mm512_test_epi16_mask(column, _mm512_set1_epi16(64));
    order->upper[v] = _mm512_test_epi16_mask(column, _mm512_set1_epi16(128));
  }
}
FATHOM_INLINE __m512i ordered_words(const struct WordOrder* order, const __m512i* x, int v) {
  const __m512i index = load64(order->column + 32 * v);
  const __m512i a = _mm512_permutex2var_epi16(x[0], index, x[1]);
  const __m512i b = _mm512_permutex2var_epi16(x[2], index, x[3]);
  const __m512i c = _mm512_permutex2var_epi16(x[4], index, x[5]);
  const __m512i d = _mm512_permutex2var_epi16(x[6], index, x[7]);
  return _mm512_mask_blend_epi16(order->upper[v], _mm512_mask_blend_epi16(order->second[v], a, b),
                                 _mm512_mask_blend_epi16(order->second[v], c, d));
}

// What a unit's products need beside q, from its lanes' sums of q.
FATHOM_INLINE __m512i unit_sums(enum Encoding encoding, __m512i lanes, float scale) {
  if (code_excess(encoding) != 0) return _mm512_mullo_epi32(lanes, _mm512_set1_epi32(-code_excess(encoding)));
  if (encoding == kEncodingQ4K || encoding == kEncodingQ5K) {
    // Floors are in the upper eight lanes, one for two lanes.
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
    lanes = _mm512_maskz_add_epi32(0xFF00, _mm512_permutexvar_epi32(first, lanes),
                                   _mm512_permutexvar_epi32(second, lanes));
  }
  return _mm512_castps_si512(_mm512_mul_ps(_mm512_set1_ps(scale), float_of(lanes)));
}

static void fixed_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const enum Encoding encoding = m->encoding;
  const int words = unit_cols(encoding), is_ordered = words == 256 && !has_groups(encoding);
  float* scales = (float*)fixed_row(encoding, m->cols, out).scales;
  struct WordOrder order;
  if (is_ordered) make_word_order(encoding, &order);
  for (int64_t first = 0; first < m->cols; first += words, ++scales) {
    const int vectors = m->cols - first < words ? (int)(m->cols - first) / 32 : words / 32;
    __m512i largest = _mm512_setzero_si512();
    for (int k = 0; k < 2 * vectors; ++k)
      largest = _mm512_max_epu32(
          largest, _mm512_and_si512(load64(in + first + 16 * k), _mm512_set1_epi32(0x7FFFFFFF)));
    const struct UnitScale fix = unit_scale(largest);
    *scales = fix.scale;
    __m512i x[8];
    for (int v = 0; v < words / 32; ++v) {
      x[v] = _mm512_setzero_si512();
      if (v >= vectors) continue;
      const float* p = in + first + 32 * v;
      const __m512 inverse = _mm512_set1_ps(fix.inverse);
      const __m256i low = _mm512_cvtsepi32_epi16(i_nearest(_mm512_mul_ps(_mm512_loadu_ps(p), inverse)));
      const __m256i high = _mm512_cvtsepi32_epi16(i_nearest(_mm512_mul_ps(_mm512_loadu_ps(p + 16), inverse)));
      x[v] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    __m512i lanes = _mm512_setzero_si512();
    for (int v = 0; v < words / 32; ++v, out += 64) {
      const __m512i q = is_ordered ? ordered_words(&order, x, v) : x[v];
      lanes = _mm512_dpwssd_epi32(lanes, q, _mm512_set1_epi16(1));
      _mm512_storeu_si512(out, q);
    }
    if (!has_sums(encoding)) continue;
    _mm512_storeu_si512(out, unit_sums(encoding, lanes, fix.scale));
    out += 64;
  }
}

}  // namespace
}  // namespace fathom::cpu
