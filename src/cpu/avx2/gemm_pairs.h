// A tile of a matrix product: panel rows (fixed_panel.h) times fixed-point rows, for pairs (fixed_pairs.h).
#pragma once

#include "cpu/avx2/fixed_panel.h"

namespace fathom::cpu {
namespace {

enum { kGemmWeights = 4, kGemmRows = 3, kGemmSlice = 1024, kGemmGroup = 48 };

// The sums of one weight row and its activation rows.
typedef F GemmSums[kGemmGroup];

// sum += products of x with the words at p. As one piece: a compiler that sees two multiplies all products first
// and then has no registers for the sums.
FATHOM_INLINE void add_products(I* sum, I x, const uint8_t* p) {
  I products;
  asm("vpmaddwd %[words], %[x], %[products]\n\tvpaddd %[products], %[sum], %[sum]"
      : [sum] "+x"(*sum), [products] "=&x"(products)
      : [x] "x"(x), [words] "m"(*(const __m256i_u*)p));
}

// What a tile works on: weight rows at w[i], activation rows at x[i] with their sums at sums[i][first + ...].
struct GemmTile {
  const uint8_t* w[kGemmWeights];
  struct FixedRow x[kGemmRows];
  GemmSums* sums;
  int first;
};

// What fixed_pairs.h, add_pair, adds second.
FATHOM_INLINE void add_rest(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights, int r,
                            int64_t pair) {
  const struct PairRow x = pair_row(tile->x[r].q, panel->cols);
  if (__builtin_expect(x.has_rest[pair] == 0, 1)) return;
  for (int w = 0; w < weights; ++w) {
    const uint8_t* words = tile->w[w] + 128 * pair;
    const I four[4] = {i_load(words), i_load(words + 32), i_load(words + 64), i_load(words + 96)};
    const F scale = f_load(pair_scales_of(tile->w[w], panel->cols) + 8 * pair);
    const F both = f_mul(f_mul(scale, f_load(x.scales + 8 * pair)), f_set(0x1p-6f));
    F* sum = tile->sums[w] + tile->first + r;
    *sum = f_fma(f_from_i(dot_pair(four, x.rest + 128 * pair)), both, *sum);
  }
}
FATHOM_INLINE void gemm_pairs(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights,
                              const int rows, int64_t begin, int64_t end) {
  for (int64_t pair = begin / 64; pair < pair_count(end); ++pair) {
    I integers[kGemmWeights][kGemmRows];
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) integers[w][r] = i_set(0);
#pragma GCC unroll 4
    for (int64_t at = 128 * pair; at < 128 * pair + 128; at += 32) {
      I x[kGemmRows];
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) x[r] = i_load(tile->x[r].q + at);
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) add_products(&integers[w][r], x[r], tile->w[w] + at);
    }
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const F scale = f_load(pair_scales_of(tile->w[w], panel->cols) + 8 * pair);
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r) {
        const F both = f_mul(scale, f_load(pair_scales_of(tile->x[r].q, panel->cols) + 8 * pair));
        F* sum = tile->sums[w] + tile->first + r;
        *sum = f_fma(f_from_i(integers[w][r]), both, *sum);
      }
    }
    for (int r = 0; r < rows; ++r) add_rest(panel, tile, weights, r, pair);
  }
}

}  // namespace
}  // namespace fathom::cpu
