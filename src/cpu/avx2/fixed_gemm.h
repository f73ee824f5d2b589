// Panels (fixed_panel.h) times many fixed-point rows. The columns are walked a slice at a time, so that the
// slice of four weight rows stays in the first cache while all activation rows pass by; the float32 sums wait
// in memory meanwhile.
#pragma once

#include "cpu/avx2/gemm_pairs.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE void gemm_blocks(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights,
                               const int rows, int64_t begin, int64_t end) {
  const int halves = 2 * parts_of_sum(panel->encoding), floors = floor_count(panel->encoding);
  const int64_t blocks = panel->cols / 256, end_block = end / 256;
  const uint8_t* words[kGemmWeights];  // copies, as in gemm_pairs
  const float* factors[kGemmWeights];
  F* sums[kGemmWeights];
  struct FixedRow x[kGemmRows];
  for (int w = 0; w < weights; ++w) {
    words[w] = tile->w[w];
    factors[w] = (const float*)(words[w] + 512 * blocks);
    sums[w] = tile->sums[w] + tile->first;
  }
  for (int r = 0; r < rows; ++r) x[r] = tile->x[r];
  for (int64_t b = begin / 256; b < end_block; ++b) {
    for (int some = 0; some < 16; some += halves) {
      I integers[kGemmWeights][kGemmRows];
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) integers[w][r] = i_set(0);
      for (int64_t at = 512 * b + 32 * some; at < 512 * b + 32 * (some + halves); at += 32) {
        I q[kGemmRows];
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) q[r] = i_load(x[r].q + at);
#pragma GCC unroll 4
        for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
          for (int r = 0; r < rows; ++r) add_products(&integers[w][r], q[r], words[w] + at);
      }
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r)
          sums[w][r] = f_fma(f_from_i(integers[w][r]), f_set(factors[w][b] * x[r].scales[b]), sums[w][r]);
    }
    for (int k = floors * (int)b; k < floors * (int)(b + 1); k += kLanes)
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r)
          sums[w][r] = _mm256_fnmadd_ps(f_load(factors[w] + blocks + k), f_load(x[r].sums + k), sums[w][r]);
  }
}

FATHOM_INLINE void gemm_runs(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights,
                             const int rows, int64_t begin, int64_t end) {
  F sums[kGemmWeights][kGemmRows];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
    for (int r = 0; r < rows; ++r) sums[w][r] = tile->sums[w][tile->first + r];
  for (int64_t b = begin / 32; b < end / 32; ++b) {
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const I even = i_load(tile->w[w] + 64 * b), odd = i_load(tile->w[w] + 64 * b + 32);
      const float scale = ((const float*)(tile->w[w] + 2 * panel->cols))[b];
#pragma GCC unroll 3
      for (int r = 0; r < rows; ++r)
        sums[w][r] = f_fma(f_from_i(dot_words(even, odd, tile->x[r].q + 64 * b)),
                           f_set(scale * tile->x[r].scales[b]), sums[w][r]);
    }
  }
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
    for (int r = 0; r < rows; ++r) tile->sums[w][tile->first + r] = sums[w][r];
}

FATHOM_INLINE void gemm_tile(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights,
                             const int rows, int64_t begin, int64_t end) {
  if (is_block256(panel->encoding)) return gemm_blocks(panel, tile, weights, rows, begin, end);
  if (is_paired(panel->encoding)) return gemm_pairs(panel, tile, weights, rows, begin, end);
  gemm_runs(panel, tile, weights, rows < 2 ? rows : 2, begin, end);
}
static void gemm_any_tile(const struct Bf16Panel* panel, const struct GemmTile* tile, int weights, int rows,
                          int64_t begin, int64_t end) {
#define FATHOM_TILE(w, r) \
  if (weights == w && rows == r) gemm_tile(panel, tile, w, r, begin, end);
  FATHOM_TILE(4, 3) FATHOM_TILE(4, 2) FATHOM_TILE(4, 1) FATHOM_TILE(1, 3) FATHOM_TILE(1, 2) FATHOM_TILE(1, 1)
#undef FATHOM_TILE
}

FATHOM_INLINE float bias_sum(const struct Bf16Panel* panel, const uint8_t* w, const struct FixedRow* x) {
  const int64_t blocks = panel->cols / 32;
  const float* biases = (const float*)(w + 2 * panel->cols) + blocks;
  return f_sum(add_biases(f_zero(), biases, x->sums, blocks));
}

// `weights` (4 or 1) weight rows times at most kGemmGroup activation rows.
static void gemm_strip(const struct Bf16Panel* panel, int64_t weight, int weights, const struct FixedRow* x,
                       int rows, float* const* out) {
  // A run converts its sums every 32 columns and needs the registers for that.
  const int most = is_run(panel->encoding) ? 2 : kGemmRows;
  GemmSums sums[kGemmWeights];
  struct GemmTile tile;
  tile.sums = sums;
  for (int w = 0; w < weights; ++w) {
    tile.w[w] = panel->data + (weight + w) * panel->row_bytes;
    for (int m = 0; m < rows; ++m) sums[w][m] = f_zero();
  }
  for (int64_t begin = 0; begin < panel->cols; begin += kGemmSlice) {
    const int64_t end = begin + kGemmSlice < panel->cols ? begin + kGemmSlice : panel->cols;
    for (int m = 0; m < rows; m += most) {
      tile.first = m;
      tile.x = x + m;
      gemm_any_tile(panel, &tile, weights, rows - m < most ? rows - m : most, begin, end);
    }
  }
  if (is_paired(panel->encoding)) gemm_rests(panel, tile.w, weights, x, rows, sums);
  for (int m = 0; m < rows; ++m) {
    float* to = out[m] + weight;
    if (weights == 4)
      store_sums4(to, sums[0][m], sums[1][m], sums[2][m], sums[3][m]);
    else
      *to = f_sum(sums[0][m]);
    if (panel->encoding != kEncodingAffine) continue;
    for (int w = 0; w < weights; ++w) to[w] += bias_sum(panel, tile.w[w], &x[m]);
  }
}

static void fixed_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  for (int64_t m = 0; m < rows->rows; m += kGemmGroup) {
    const int some = rows->rows - m < kGemmGroup ? (int)(rows->rows - m) : kGemmGroup;
    struct FixedRow x[kGemmGroup];
    for (int r = 0; r < some; ++r) x[r] = fixed_row(panel->encoding, rows->in[m + r], panel->cols);
    int64_t weight = 0;
    for (; weight + kGemmWeights <= panel->rows; weight += kGemmWeights)
      gemm_strip(panel, weight, kGemmWeights, x, some, rows->out + m);
    for (; weight < panel->rows; ++weight) gemm_strip(panel, weight, 1, x, some, rows->out + m);
  }
}

}  // namespace
}  // namespace fathom::cpu
