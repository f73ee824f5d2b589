// Rows in bfloat16: activations in the order of an encoding's units, and weights decoded to panels.
#pragma once

#include "cpu/avx512/row_values.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE __m512 dot_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// Of a unit of prepared activations: the vectors, then the lanes' sums.
FATHOM_INLINE int64_t activation_unit_bytes(enum Encoding encoding) {
  return 64 * (unit_vectors(encoding) + has_floor(encoding));
}
// Of a unit of a panel: the vectors, then scale and floor.
FATHOM_INLINE int64_t panel_unit_bytes(enum Encoding encoding) {
  return 64 * (unit_vectors(encoding) + !is_direct(encoding) + has_floor(encoding));
}

static int64_t bf16_row_bytes(const struct EncodedMatrix* m) {
  if (m->encoding == kEncodingF32 || m->encoding == kEncodingF16) return 0;
  if (m->cols % unit_cols(m->encoding) != 0) return 0;
  return m->cols / unit_cols(m->encoding) * activation_unit_bytes(m->encoding);
}
static int64_t bf16_panel_row_bytes(const struct EncodedMatrix* m) {
  return m->cols / unit_cols(m->encoding) * panel_unit_bytes(m->encoding);
}

static void bf16_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const enum Encoding encoding = m->encoding;
  const int words = unit_cols(encoding);
  const __m512i ones = _mm512_set1_epi16((int16_t)bf16_bits(1.0f));
  uint16_t column[256];
  for (int w = 0; w < words; ++w) column[w] = (uint16_t)word_column(encoding, w);
  for (int64_t first = 0; first < m->cols; first += words, out += activation_unit_bytes(encoding)) {
    uint16_t natural[256], word[256];
    for (int w = 0; w < words; w += 32) _mm512_storeu_si512(natural + w, upper_halves(in + first + w));
    if (words == 256) {
      for (int w = 0; w < words; ++w) word[w] = natural[column[w]];
    } else {
      const __m512i low = load64(natural), high = words == 64 ? load64(natural + 32) : low;
      for (int w = 0; w < words; w += 32)
        _mm512_storeu_si512(word + w, _mm512_permutex2var_epi16(low, load64(column + w), high));
    }
    memcpy(out, word, (size_t)words * 2);
    if (!has_floor(encoding)) continue;
    __m512 sum = _mm512_setzero_ps();
    for (int w = 0; w < words; w += 32) sum = dot_pairs(sum, load64(word + w), ones);
    _mm512_storeu_ps((float*)(out + 2 * words), sum);
  }
}

FATHOM_INLINE void decode_panel_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t count, uint8_t* panel) {
  const int64_t units = m->cols / unit_cols(encoding);
  const int per_source = unit_vectors(encoding) / unit_sources(encoding);
  for (int64_t r = row; r < row + count; ++r) {
    const struct UnitRow where = unit_row(m, r);
    for (int64_t u = 0; u < units; ++u) {
#pragma GCC unroll 4
      for (int s = 0; s < unit_sources(encoding); ++s) {
        const Source source = unit_source(encoding, m, where, u, s);
#pragma GCC unroll 8
        for (int j = s * per_source; j < (s + 1) * per_source; ++j, panel += 64)
          _mm512_storeu_si512(panel, unit_vector(encoding, source, j));
      }
      if (is_direct(encoding)) continue;
      const Scales scales = unit_scales(encoding, m, where, u);
      _mm512_storeu_ps((float*)panel, scales.scale);
      panel += 64;
      if (!has_floor(encoding)) continue;
      _mm512_storeu_ps((float*)panel, whole_floor(encoding, scales));
      panel += 64;
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
