// Panels (fixed_panel.h) times many fixed-point rows. Columns are walked a slice at a time, so that four weight
// rows stay in the first cache while a group of activation rows passes by, and the group in the second while all
// weight rows do; the float32 sums wait in memory meanwhile.
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

// At most kGemmPanel weight rows and kGemmGroup activation rows.
struct GemmBlock {
  const uint8_t* w[kGemmPanel];
  int weights;
  struct FixedRow x[kGemmGroup];
  int rows;
  GemmSums sums[kGemmPanel];
};

// Columns [begin, end) of `weights` (4 or 1) weight rows from `first` on.
static void gemm_strip(const struct Bf16Panel* panel, struct GemmBlock* block, int first, int weights,
                       int64_t begin, int64_t end) {
  // A run converts its sums every 32 columns and needs the registers for that.
  const int most = is_run(panel->encoding) ? 2 : kGemmRows;
  struct GemmTile tile;
  tile.sums = block->sums + first;
  for (int w = 0; w < weights; ++w) tile.w[w] = block->w[first + w];
  for (int m = 0; m < block->rows; m += most) {
    tile.first = m;
    tile.x = block->x + m;
    gemm_any_tile(panel, &tile, weights, block->rows - m < most ? block->rows - m : most, begin, end);
  }
}
static void gemm_results(const struct Bf16Panel* panel, struct GemmBlock* block, float* const* out,
                         int64_t weight) {
  if (is_paired(panel->encoding))
    gemm_rests(panel, block->w, block->weights, block->x, block->rows, block->sums);
  for (int m = 0; m < block->rows; ++m)
    for (int w = 0; w < block->weights; ++w) {
      float* to = out[m] + weight + w;
      *to = f_sum(block->sums[w][m]);
      if (panel->encoding == kEncodingAffine) *to += bias_sum(panel, block->w[w], &block->x[m]);
    }
}
static void gemm_block(const struct Bf16Panel* panel, struct GemmBlock* block) {
  for (int w = 0; w < block->weights; ++w)
    for (int m = 0; m < block->rows; ++m) block->sums[w][m] = f_zero();
  for (int64_t begin = 0; begin < panel->cols; begin += kGemmSlice) {
    const int64_t end = begin + kGemmSlice < panel->cols ? begin + kGemmSlice : panel->cols;
    int first = 0;
    for (; first + kGemmWeights <= block->weights; first += kGemmWeights)
      gemm_strip(panel, block, first, kGemmWeights, begin, end);
    for (; first < block->weights; ++first) gemm_strip(panel, block, first, 1, begin, end);
  }
}

static void fixed_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  struct GemmBlock block;
  for (int64_t m = 0; m < rows->rows; m += kGemmGroup) {
    block.rows = rows->rows - m < kGemmGroup ? (int)(rows->rows - m) : kGemmGroup;
    for (int r = 0; r < block.rows; ++r) block.x[r] = fixed_row(panel->encoding, rows->in[m + r], panel->cols);
    for (int64_t weight = 0; weight < panel->rows; weight += kGemmPanel) {
      block.weights = panel->rows - weight < kGemmPanel ? (int)(panel->rows - weight) : kGemmPanel;
      for (int w = 0; w < block.weights; ++w) block.w[w] = panel->data + (weight + w) * panel->row_bytes;
      gemm_block(panel, &block);
      gemm_results(panel, &block, rows->out + m, weight);
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
