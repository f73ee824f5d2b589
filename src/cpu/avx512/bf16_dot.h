// Products in bfloat16 pairs, for activations that are bfloat16 numbers: exact products, float32 sums.
//
// Order of summation of (row, output): direct kinds, one accumulator of 16 lanes over all vectors; scaled
// kinds, the sum of a unit's vectors from zero, then sum += scale * it, then sum -= floor * (the activations'
// own sum over each lane, prepared with them). Then the tree of f_sum. Decoding in registers and through a
// panel run the same operations.
#pragma once

#include "cpu/avx512/bf16_rows.h"

namespace fathom::cpu {
namespace {

// A product waits six cycles for the sum before it, so eight rows are summed side by side.
enum { kMostWeights = 8, kMostRows = 2 };

// Bytes of a unit in a weight row; of a grid's 32 columns about an eighth of its block.
FATHOM_INLINE int64_t data_unit_bytes(enum Encoding encoding, const struct EncodedMatrix* m) {
  switch (encoding) {
    case kEncodingBf16:
    case kEncodingFp8: return 64;
    case kEncodingFp4: return 16;
    case kEncodingMxfp4: return 17;
    case kEncodingQ8_0: return 34;
    case kEncodingIq4Nl: return 18;
    case kEncodingAffine: return 4 * m->bits;
    default: return is_block256(encoding) ? unit_block_bytes(encoding) : unit_block_bytes(encoding) / 8;
  }
}

// Units that are taken together, so that a row's addresses are worked out once for some 64 bytes of it.
FATHOM_INLINE int group_units(enum Encoding encoding) {
  if (is_block256(encoding)) return 1;
  return encoding == kEncodingFp8 ? 2 : encoding == kEncodingBf16 ? 1 : 4;
}

// `count` units from `u` on of `weights` rows times `rows` prepared activation rows at `x`, decoded in
// registers. The activations are loaded once for all weight rows.
FATHOM_INLINE void fused_units(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t u,
                               const int count, const int weights, const uint8_t* const* x, const int rows,
                               __m512 (*sums)[kMostRows]) {
  const int vectors = unit_vectors(encoding);
  const int per_source = vectors / unit_sources(encoding);
  const int64_t unit_bytes = activation_unit_bytes(encoding);
  __m512i activation[kMostRows][8];
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < count * vectors; ++v)
      activation[r][v] = load64(x[r] + v / vectors * unit_bytes + 64 * (v % vectors));
  struct UnitRow where = unit_row(m, row);
  // The same place of the next tile, early enough for memory to answer.
  const int64_t ahead = data_unit_bytes(encoding, m) * u + weights * m->row_bytes;
  // Kept from being eight pointers, for which there are no registers.
  int64_t row_bytes = m->row_bytes;
  __asm__("" : "+r"(row_bytes));
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w) {
#pragma GCC unroll 4
    for (int64_t byte = 0; byte < count * data_unit_bytes(encoding, m); byte += 64)
      _mm_prefetch((const char*)(where.data + ahead + byte), _MM_HINT_T1);
#pragma GCC unroll 4
    for (int n = 0; n < count; ++n) {
      __m512 parts[kMostRows];
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) parts[r] = is_direct(encoding) ? sums[w][r] : _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int s = 0; s < unit_sources(encoding); ++s) {
        const Source source = unit_source(encoding, m, where, u + n, s);
#pragma GCC unroll 8
        for (int j = s * per_source; j < (s + 1) * per_source; ++j) {
          const __m512i codes = unit_vector(encoding, source, j);
#pragma GCC unroll 2
          for (int r = 0; r < rows; ++r)
            parts[r] = dot_pairs(parts[r], codes, activation[r][n * vectors + j]);
        }
      }
      const Scales scales = unit_scales(encoding, m, where, u + n);
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) {
        sums[w][r] = is_direct(encoding) ? parts[r] : _mm512_fmadd_ps(scales.scale, parts[r], sums[w][r]);
        if (has_floor(encoding))
          sums[w][r] = _mm512_fnmadd_ps(whole_floor(encoding, scales),
                                        _mm512_loadu_ps((const float*)(x[r] + n * unit_bytes + 64 * vectors)),
                                        sums[w][r]);
      }
    }
    where.data += row_bytes;
    where.scales = row_scales(m, row + w + 1);
    where.biases += m->bias_row_bytes;
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
    for (int r = 0; r < rows; ++r) x[r] += group * activation_unit_bytes(encoding);
  }
  for (; u < units; ++u) {
    fused_units(encoding, m, row + weight, u, 1, weights, x, rows, sums);
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) x[r] += activation_unit_bytes(encoding);
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) {
    float* out = in->out[r] + weight;
    if (weights == 1) *out = f_sum(sums[0][r]);
#pragma GCC unroll 2
    for (int w = 0; w + 4 <= weights; w += 4)
      store_sums4(out + w, sums[w][r], sums[w + 1][r], sums[w + 2][r], sums[w + 3][r]);
  }
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
