// Products of the scaled kinds with fixed-point activations (fixed_rows.h).
//
// Order of summation of (row, output): the integer sum of a unit's vectors, then sum += (scale * the unit's
// activation scale) * it, then sum -= floor * (the activations' own sums), by lane. Then the tree of f_sum.
// Decoding in registers and through a panel (fixed_panel.h) run the same operations.
#pragma once

#include "cpu/avx512/fixed_rows.h"

namespace fathom::cpu {
namespace {

// Weight rows side by side: the sums of one would wait for themselves.
enum { kFixedWeights = 8 };

FATHOM_INLINE __m512 add_unit(__m512 sum, __m512i integers, __m512 scale, float x_scale) {
  const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale));
  return _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(integers), sum);
}
FATHOM_INLINE __m512 without_floor(__m512 sum, __m512 floor, const uint8_t* x_sums) {
  return _mm512_fnmadd_ps(floor, _mm512_loadu_ps((const float*)x_sums), sum);
}

// Unit `u` of `weights` rows from `row` on times `rows` prepared rows, decoded in registers.
FATHOM_INLINE void fixed_units(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t u,
                               const int weights, const struct FixedRow* x, const int rows,
                               __m512 (*sums)[kMostRows]) {
  const int vectors = unit_vectors(encoding), per_source = vectors / unit_sources(encoding);
  const int bytes = unit_bytes(encoding, m->bits);
  const uint8_t* q[kMostRows];
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) q[r] = x[r].units + u * fixed_unit_bytes(encoding);
  struct UnitRow where = unit_row(m, row);
  // The same place of the next tile, early enough for memory to answer.
  const int64_t ahead = bytes * u + weights * m->row_bytes;
  // Kept from being eight pointers, for which there are no registers.
  int64_t row_bytes = m->row_bytes;
  __asm__("" : "+r"(row_bytes));
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w) {
    uint8_t copy[kMostUnitBytes];
#pragma GCC unroll 5
    for (int64_t byte = 0; byte < bytes; byte += 64)
      _mm_prefetch((const char*)(where.data + ahead + byte), _MM_HINT_T1);
    const uint8_t* p = whole_unit(encoding, m, where.data + u * bytes, u, copy);
    const Scales scales = unit_scales(encoding, m, where, p, u);
    __m512i integers[kMostRows];
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r)
      integers[r] = code_excess(encoding) != 0 ? load64(q[r] + 64 * vectors) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int s = 0; s < unit_sources(encoding); ++s) {
      const Source source = unit_source(encoding, m->bits, p, s, &scales);
#pragma GCC unroll 8
      for (int j = s * per_source; j < (s + 1) * per_source; ++j) {
        const __m512i codes = unit_vector(encoding, source, j);
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r)
          integers[r] = _mm512_dpwssd_epi32(integers[r], codes, load64(q[r] + 64 * j));
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) {
      sums[w][r] = add_unit(sums[w][r], integers[r], scales.scale, x[r].scales[u]);
      if (has_floor(encoding)) sums[w][r] = without_floor(sums[w][r], scales.floor, q[r] + 64 * vectors);
    }
    where.data += row_bytes;
    where.scales += m->scale_row_bytes;
    where.biases += m->bias_row_bytes;
  }
}

// Whole rows. `weights` and `rows` are constants.
FATHOM_INLINE void fixed_tile(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                              int64_t weight, const int weights, const struct Bf16Rows* in, const int rows) {
  __m512 sums[kFixedWeights][kMostRows];
  struct FixedRow x[kMostRows];
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) x[r] = fixed_row(encoding, m->cols, in->in[r]);
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  const int64_t units = unit_count(encoding, m->cols);
  for (int64_t u = 0; u < units; ++u) fixed_units(encoding, m, row + weight, u, weights, x, rows, sums);
  store_fused(sums, weights, in, rows, weight);
}

FATHOM_INLINE void fixed_dot_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                int64_t count, const struct Bf16Rows* in) {
  int64_t weight = 0;
  if (in->rows == 2) {
    for (; weight + 4 <= count; weight += 4) fixed_tile(encoding, m, row, weight, 4, in, 2);
    for (; weight < count; ++weight) fixed_tile(encoding, m, row, weight, 1, in, 2);
    return;
  }
  for (; weight + 8 <= count; weight += 8) fixed_tile(encoding, m, row, weight, 8, in, 1);
  for (; weight < count; ++weight) fixed_tile(encoding, m, row, weight, 1, in, 1);
}

}  // namespace
}  // namespace fathom::cpu
