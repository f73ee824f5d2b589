// Rows in bfloat16 for the direct kinds: activations in the order of an encoding's units, and weights decoded to
// panels.
#pragma once

#include "cpu/avx512/row_values.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE __m512 dot_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// Of a prepared row and of a panel row.
static int64_t bf16_row_bytes(const struct EncodedMatrix* m) {
  return m->cols % unit_cols(m->encoding) != 0 ? 0 : 2 * m->cols;
}

static void bf16_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const int words = unit_cols(m->encoding);
  uint16_t column[64];
  for (int w = 0; w < words; ++w) column[w] = (uint16_t)word_column(m->encoding, w);
  for (int64_t first = 0; first < m->cols; first += words) {
    const __m512i low = upper_halves(in + first), high = words == 64 ? upper_halves(in + first + 32) : low;
    for (int w = 0; w < words; w += 32, out += 64)
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(low, load64(column + w), high));
  }
}

FATHOM_INLINE void bf16_decode_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                  int64_t count, uint8_t* panel) {
  const int64_t units = m->cols / unit_cols(encoding);
  for (int64_t r = row; r < row + count; ++r) {
    const struct UnitRow where = unit_row(m, r);
    for (int64_t u = 0; u < units; ++u) {
      const Source source = direct_unit(encoding, where, u);
#pragma GCC unroll 2
      for (int j = 0; j < unit_vectors(encoding); ++j, panel += 64)
        _mm512_storeu_si512(panel, j == 0 ? source.low : source.high);
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
