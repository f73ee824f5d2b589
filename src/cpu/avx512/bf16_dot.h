// Products of the direct kinds in bfloat16 pairs, for activations that are bfloat16 numbers: exact products,
// float32 sums.
//
// Order of summation of (row, output): one accumulator of 16 lanes over all vectors, then the tree of f_sum.
// Decoding in registers and through a panel run the same operations.
#pragma once

#include "cpu/avx512/bf16_rows.h"

namespace fathom::cpu {
namespace {

// A product waits six cycles for the sum before it, so eight rows are summed side by side.
enum { kMostWeights = 8 };

// Units that are taken together, so that a row's addresses are worked out once for some 64 bytes of it.
FATHOM_INLINE int group_units(enum Encoding encoding) {
  return encoding == kEncodingFp8 ? 2 : encoding == kEncodingBf16 ? 1 : 4;
}

// `count` units from `u` on of `weights` rows times `rows` prepared activation rows at `x`, decoded in
// registers. The activations are loaded once for all weight rows.
FATHOM_INLINE void fused_units(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t u,
                               const int count, const int weights, const uint8_t* const* x, const int rows,
                               __m512 (*sums)[kMostRows]) {
  const int vectors = unit_vectors(encoding);
  __m512i activation[kMostRows][8];
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < count * vectors; ++v) activation[r][v] = load64(x[r] + 64 * v);
  struct UnitRow where = unit_row(m, row);
  // The same place of the next tile, early enough for memory to answer.
  const int64_t ahead = unit_bytes(encoding, 0) * u + weights * m->row_bytes;
  // Kept from being eight pointers, for which there are no registers.
  int64_t row_bytes = m->row_bytes;
  __asm__("" : "+r"(row_bytes));
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w) {
#pragma GCC unroll 4
    for (int64_t byte = 0; byte < count * unit_bytes(encoding, 0); byte += 64)
      _mm_prefetch((const char*)(where.data + ahead + byte), _MM_HINT_T1);
#pragma GCC unroll 4
    for (int n = 0; n < count; ++n) {
      const Source source = direct_unit(encoding, where, u + n);
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j)
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r)
          sums[w][r] = dot_pairs(sums[w][r], j == 0 ? source.low : source.high, activation[r][n * vectors + j]);
    }
    where.data += row_bytes;
    where.scales = row_scales(m, row + w + 1);
  }
}

// Whole rows. `weights` and `rows` are constants.
FATHOM_INLINE void bf16_fused_tile(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t weight, const int weights, const struct Bf16Rows* in,
                                   const int rows) {
  __m512 sums[kMostWeights][kMostRows];
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  const int64_t units = m->cols / unit_cols(encoding);
  const int group = group_units(encoding);
  const uint8_t* x[kMostRows] = {in->in[0], in->in[rows - 1]};
  int64_t u = 0;
  for (; u + group <= units; u += group) {
    fused_units(encoding, m, row + weight, u, group, weights, x, rows, sums);
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) x[r] += 64 * group * unit_vectors(encoding);
  }
  for (; u < units; ++u) {
    fused_units(encoding, m, row + weight, u, 1, weights, x, rows, sums);
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) x[r] += 64 * unit_vectors(encoding);
  }
  store_fused(sums, weights, in, rows, weight);
}

FATHOM_INLINE void bf16_dot_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                               int64_t count, const struct Bf16Rows* in) {
  int64_t weight = 0;
  if (in->rows == 2) {
    for (; weight + 4 <= count; weight += 4) bf16_fused_tile(encoding, m, row, weight, 4, in, 2);
    for (; weight < count; ++weight) bf16_fused_tile(encoding, m, row, weight, 1, in, 2);
    return;
  }
  for (; weight + 8 <= count; weight += 8) bf16_fused_tile(encoding, m, row, weight, 8, in, 1);
  for (; weight < count; ++weight) bf16_fused_tile(encoding, m, row, weight, 1, in, 1);
}

}  // namespace
}  // namespace fathom::cpu
