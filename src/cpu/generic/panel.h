// Panels of decoded weight rows times many activation rows. Included after a vec.h.
#pragma once

#include "cpu/generic/decode.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

// Weight rows of a tile. With kTileRows activation rows it fills the vector registers with accumulators.
static const int kTileWeights = 4;

// Columns are walked a slice at a time, so that four weight rows stay in the first cache while a group of
// activation rows passes by, and the group in the second while all weight rows do. The sums wait in memory from
// slice to slice.
enum { kPanelWeights = 16, kPanelGroup = 48, kPanelSlice = 512 };
typedef F PanelSums[kPanelGroup];

// Columns [begin, end) of all rows of a group.
struct PanelSlice {
  int64_t begin, end;
  int is_first, is_last;  // the sums begin with zero; they are results, which go to `out`
  const float* const* in;
  float* const* out;
  PanelSums* sums;  // [weight][row]
};

FATHOM_INLINE void store_tile(F (*sums)[kTileRows], const int weights, const int rows, float* const* out,
                              int64_t weight) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    if (weights == 4)
      store_sums4(out[m] + weight, sums[0][m], sums[1][m], sums[2][m], sums[3][m]);
    else
      out[m][weight] = f_sum(sums[0][m]);
  }
}

// `weights` (4 or 1) rows of a panel times `rows` activation rows from `first_row` on. Both are constants where
// this is inlined.
FATHOM_INLINE void panel_tile(const struct Panel* panel, int64_t weight, const int weights,
                              const struct PanelSlice* slice, int first_row, const int rows) {
  F sum[kTileWeights][kTileRows];
  const float* x[kTileRows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    x[m] = slice->in[first_row + m];
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) sum[w][m] = f_zero();
  }
  if (!slice->is_first) {
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m)
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w) sum[w][m] = slice->sums[w][first_row + m];
  }
  const float* first = panel->data + weight * panel->stride;
  const int64_t stride = panel->stride;
  const int64_t end = slice->end;
  int64_t k = slice->begin;
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
  if (slice->is_last) return store_tile(sum, weights, rows, slice->out + first_row, weight);
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m)
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) slice->sums[w][first_row + m] = sum[w][m];
}

FATHOM_INLINE void panel_slice(const struct Panel* panel, int64_t weight, const int weights,
                               const struct PanelSlice* slice, int rows) {
  int m = 0;
  for (; m + kTileRows <= rows; m += kTileRows) panel_tile(panel, weight, weights, slice, m, kTileRows);
  switch (rows - m) {
    case 1: return panel_tile(panel, weight, weights, slice, m, 1);
#if FATHOM_TILE_ROWS > 2
    case 2: return panel_tile(panel, weight, weights, slice, m, 2);
#endif
#if FATHOM_TILE_ROWS > 3
    case 3: return panel_tile(panel, weight, weights, slice, m, 3);
    case 4: return panel_tile(panel, weight, weights, slice, m, 4);
    case 5: return panel_tile(panel, weight, weights, slice, m, 5);
#endif
    default: return;
  }
}

// At most kPanelWeights rows of a panel and kPanelGroup activation rows, a slice of columns after the other.
static void panel_block(const struct Panel* panel, int64_t first, int64_t count, const float* const* in, int rows,
                        float* const* out) {
  PanelSums sums[kPanelWeights];
  struct PanelSlice slice = {.in = in, .out = out};
  for (int64_t begin = 0; begin < panel->cols; begin += kPanelSlice) {
    slice.begin = begin;
    slice.end = begin + kPanelSlice < panel->cols ? begin + kPanelSlice : panel->cols;
    slice.is_first = begin == 0;
    slice.is_last = slice.end == panel->cols;
    int64_t weight = 0;
    for (; weight + kTileWeights <= count; weight += kTileWeights) {
      slice.sums = sums + weight;
      panel_slice(panel, first + weight, kTileWeights, &slice, rows);
    }
    for (; weight < count; ++weight) {
      slice.sums = sums + weight;
      panel_slice(panel, first + weight, 1, &slice, rows);
    }
  }
}

static void dot_panel(const struct Panel* panel, const struct DotRows* rows) {
  for (int64_t m = 0; m < rows->rows; m += kPanelGroup) {
    const int some = rows->rows - m < kPanelGroup ? (int)(rows->rows - m) : kPanelGroup;
    for (int64_t first = 0; first < panel->rows; first += kPanelWeights) {
      const int64_t left = panel->rows - first;
      const int64_t count = left < kPanelWeights ? left : (int64_t)kPanelWeights;
      panel_block(panel, first, count, rows->in + m, some, rows->out + m);
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
