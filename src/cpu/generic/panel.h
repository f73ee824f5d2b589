// Panels of decoded weight rows times many activation rows. Included after a vec.h.
#pragma once

#include "cpu/generic/decode.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

// Weight rows of a tile. With kTileRows activation rows it fills the vector registers with accumulators.
static const int kTileWeights = 4;

// Activation rows that pass by at once, and columns that do: four weight rows of a slice stay in the first cache
// meanwhile. The sums wait in memory from slice to slice.
enum { kPanelGroup = 48, kPanelSlice = 1024 };
typedef F PanelSums[kPanelGroup];

// Columns [begin, end) of `weights` (4 or 1) rows of a panel times `rows` activation rows, on top of
// sums[weight][first + row]. `weights` and `rows` are constants where this is inlined.
FATHOM_INLINE void panel_tile(const struct Panel* panel, int64_t weight, const int weights,
                              const float* const* in, const int rows, int64_t begin, int64_t end,
                              PanelSums* sums, int first_sum) {
  F sum[kTileWeights][kTileRows];
  const float* x[kTileRows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    x[m] = in[m];
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) sum[w][m] = sums[w][first_sum + m];
  }
  const float* first = panel->data + weight * panel->stride;
  const int64_t stride = panel->stride;
  int64_t k = begin;
  for (; k + kBlock <= end; k += kBlock) {
#pragma GCC unroll 8
    for (int v = 0; v < kBlock; v += kLanes) {
      F activation[kTileRows];
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) activation[m] = f_load(x[m] + k + v);
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w) {
        const F value = f_load(first + w * stride + k + v);
#pragma GCC unroll 8
        for (int m = 0; m < rows; ++m) sum[w][m] = f_fma(value, activation[m], sum[w][m]);
      }
    }
  }
  // The last, partial block: the panel holds zeros there, and so do the masked activations.
  if (k < end) {
    for (int v = 0; v < kBlock; v += kLanes) {
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) {
        const F activation = f_load_part(x[m] + k + v, end - k - v);
#pragma GCC unroll 4
        for (int w = 0; w < weights; ++w)
          sum[w][m] = f_fma(f_load(first + w * stride + k + v), activation, sum[w][m]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m)
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) sums[w][first_sum + m] = sum[w][m];
}

FATHOM_INLINE void panel_slice(const struct Panel* panel, int64_t weight, const int weights,
                               const float* const* in, int rows, int64_t begin, int64_t end, PanelSums* sums) {
  int m = 0;
  for (; m + kTileRows <= rows; m += kTileRows)
    panel_tile(panel, weight, weights, in + m, kTileRows, begin, end, sums, m);
  switch (rows - m) {
    case 1: return panel_tile(panel, weight, weights, in + m, 1, begin, end, sums, m);
#if FATHOM_TILE_ROWS > 2
    case 2: return panel_tile(panel, weight, weights, in + m, 2, begin, end, sums, m);
#endif
#if FATHOM_TILE_ROWS > 3
    case 3: return panel_tile(panel, weight, weights, in + m, 3, begin, end, sums, m);
    case 4: return panel_tile(panel, weight, weights, in + m, 4, begin, end, sums, m);
    case 5: return panel_tile(panel, weight, weights, in + m, 5, begin, end, sums, m);
#endif
    default: return;
  }
}

FATHOM_INLINE void panel_strip(const struct Panel* panel, int64_t weight, const int weights,
                               const float* const* in, int rows, float* const* out) {
  PanelSums sums[kTileWeights];
  for (int w = 0; w < weights; ++w)
    for (int m = 0; m < rows; ++m) sums[w][m] = f_zero();
  for (int64_t begin = 0; begin < panel->cols; begin += kPanelSlice) {
    const int64_t end = begin + kPanelSlice < panel->cols ? begin + kPanelSlice : panel->cols;
    panel_slice(panel, weight, weights, in, rows, begin, end, sums);
  }
  for (int m = 0; m < rows; ++m) {
    if (weights == 4)
      store_sums4(out[m] + weight, sums[0][m], sums[1][m], sums[2][m], sums[3][m]);
    else
      out[m][weight] = f_sum(sums[0][m]);
  }
}

static void dot_panel(const struct Panel* panel, const struct DotRows* rows) {
  for (int64_t m = 0; m < rows->rows; m += kPanelGroup) {
    const int some = rows->rows - m < kPanelGroup ? (int)(rows->rows - m) : kPanelGroup;
    int64_t weight = 0;
    for (; weight + kTileWeights <= panel->rows; weight += kTileWeights)
      panel_strip(panel, weight, kTileWeights, rows->in + m, some, rows->out + m);
    for (; weight < panel->rows; ++weight) panel_strip(panel, weight, 1, rows->in + m, some, rows->out + m);
  }
}

}  // namespace
}  // namespace fathom::cpu
