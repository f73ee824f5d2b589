// Panels (fixed_panel.h) times many fixed-point rows. The columns are walked a slice at a time, so that the
// slice of four weight rows stays in the first cache while all activation rows pass by; the float32 sums wait
// in memory meanwhile.
#pragma once

#include "cpu/avx2/gemm_pairs.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE void gemm_blocks(const struct Bf16Panel* panel, const struct GemmTile* tile, const int weights,
                               const int rows, int64_t begin, int64_t end) {
  const enum Encoding encoding = panel->encoding;
  const int halves = 2 * parts_of_sum(encoding), floors = floor_count(encoding);
  for (int64_t b = begin / 256; b < end / 256; ++b) {
    for (int some = 0; some < 16; some += halves) {
      I integers[kGemmWeights][kGemmRows];
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) integers[w][r] = i_set(0);
      for (int half = some; half < some + halves; ++half) {
        const int64_t at = 512 * b + 32 * half;
        I x[kGemmRows];
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) x[r] = i_load(tile->x[r].q + at);
#pragma GCC unroll 4
        for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
          for (int r = 0; r < rows; ++r)
            add_products(&integers[w][r], x[r], tile->w[w] + at);
      }
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) {
          F* sum = tile->sums[w] + tile->first + r;
          const float* factors = (const float*)(tile->w[w] + 2 * panel->cols);
          *sum = f_fma(f_from_i(integers[w][r]), f_set(factors[b] * tile->x[r].scales[b]), *sum);
        }
    }
    if (floors == 0) continue;
    for (int w = 0; w < weights; ++w) {
      const float* floor = (const float*)(tile->w[w] + 2 * panel->cols) + panel->cols / 256 + floors * b;
      for (int r = 0; r < rows; ++r) {
        F* sum = tile->sums[w] + tile->first + r;
        *sum = without_floors(encoding, *sum, floor, tile->x[r].sums + floors * b);
      }
    }
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
  const int64_t blocks = panel->encoding == kEncodingAffine ? panel->cols / 32 : 0;
  const float* biases = (const float*)(w + 2 * panel->cols) + blocks;
  float sum = 0.0f;
  for (int64_t b = 0; b < blocks; ++b) sum += biases[b] * x->sums[b];
  return sum;
}

// `weights` (4 or 1) weight rows times at most kGemmGroup activation rows.
static void gemm_strip(const struct Bf16Panel* panel, int64_t weight, int weights, const uint8_t* const* in,
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
      const int some = rows - m < most ? rows - m : most;
      tile.first = m;
      for (int r = 0; r < some; ++r) tile.x[r] = fixed_row(panel->encoding, in[m + r], panel->cols);
      gemm_any_tile(panel, &tile, weights, some, begin, end);
    }
  }
  for (int m = 0; m < rows; ++m) {
    const struct FixedRow x = fixed_row(panel->encoding, in[m], panel->cols);
    for (int w = 0; w < weights; ++w) out[m][weight + w] = f_sum(sums[w][m]) + bias_sum(panel, tile.w[w], &x);
  }
}

static void fixed_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  for (int64_t m = 0; m < rows->rows; m += kGemmGroup) {
    const int some = rows->rows - m < kGemmGroup ? (int)(rows->rows - m) : kGemmGroup;
    int64_t weight = 0;
    for (; weight + kGemmWeights <= panel->rows; weight += kGemmWeights)
      gemm_strip(panel, weight, kGemmWeights, rows->in + m, some, rows->out + m);
    for (; weight < panel->rows; ++weight) gemm_strip(panel, weight, 1, rows->in + m, some, rows->out + m);
  }
}

}  // namespace
}  // namespace fathom::cpu
