// A tile of a matrix product: panel rows (fixed_panel.h) times fixed-point rows, for pairs (fixed_pairs.h).
#pragma once

#include "cpu/avx2/fixed_panel.h"

namespace fathom::cpu {
namespace {

enum { kGemmWeights = 4, kGemmRows = 3, kGemmSlice = 1024, kGemmGroup = 48, kGemmPanel = 16 };

// The sums of one weight row and its activation rows.
typedef F GemmSums[kGemmGroup];

// sum += products of x with the words at p. As one piece: a compiler that sees two multiplies all products
// first and then has no registers for the sums.
FATHOM_INLINE void add_products(I* sum, I x, const uint8_t* p) {
  I products;
  asm("vpmaddwd %[words], %[x], %[products]\n\tvpaddd %[products], %[sum], %[sum]"
      : [sum] "+x"(*sum), [products] "=&x"(products)
      : [x] "x"(x), [words] "m"(*(const __m256i_u*)p));
}

// What a tile works on: weight rows at w[i], activation rows at x[i] with their sums at sums[i][first + ...].
struct GemmTile {
  const uint8_t* w[kGemmWeights];
  const struct FixedRow* x;
  GemmSums* sums;
  int first;
};

FATHOM_INLINE void gemm_pairs(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights,
                              const int rows, int64_t begin, int64_t end) {
  // Copies: stores of vectors may alias anything, and pointers behind pointers would be loaded again after
  // each.
  const uint8_t *words[kGemmWeights], *q[kGemmRows];
  const float *scales[kGemmWeights], *fixed_scales[kGemmRows];
  F* sums[kGemmWeights];
  for (int w = 0; w < weights; ++w) {
    words[w] = tile->w[w];
    scales[w] = pair_scales_of(words[w], panel->cols);
    sums[w] = tile->sums[w] + tile->first;
  }
  for (int r = 0; r < rows; ++r) {
    q[r] = tile->x[r].q;
    fixed_scales[r] = pair_scales_of(q[r], panel->cols);
  }
  const int64_t end_pair = pair_count(end);
  for (int64_t pair = begin / 64; pair < end_pair; ++pair) {
    I integers[kGemmWeights][kGemmRows];
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) integers[w][r] = i_set(0);
#pragma GCC unroll 4
    for (int vector = 0; vector < 4; ++vector) {
      const int64_t at = 128 * pair + 32 * vector;
      I x[kGemmRows];
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) x[r] = i_load(q[r] + at);
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) add_products(&integers[w][r], x[r], words[w] + at);
    }
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const F scale = f_load(scales[w] + 8 * pair);
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) {
        const F both = f_mul(scale, f_load(fixed_scales[r] + 8 * pair));
        sums[w][r] = f_fma(f_from_i(integers[w][r]), both, sums[w][r]);
      }
    }
  }
}

// What pairs_dot of fixed_pairs.h adds last, to the sums of all rows.
static void gemm_rests(const struct Bf16Panel* panel, const uint8_t* const* w, int weights,
                       const struct FixedRow* rows, int count, GemmSums* sums) {
  for (int m = 0; m < count; ++m) {
    const struct PairRow x = pair_row(rows[m].q, panel->cols);
    for (int n = 1; n <= x.with_rest[0]; ++n) {
      const int64_t pair = x.with_rest[n];
      for (int i = 0; i < weights; ++i) {
        const uint8_t* p = w[i] + 128 * pair;
        const I words[4] = {i_load(p), i_load(p + 32), i_load(p + 64), i_load(p + 96)};
        const F scale = f_load(pair_scales_of(w[i], panel->cols) + 8 * pair);
        sums[i][m] = add_rest(sums[i][m], scale, words, &x, pair);
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
