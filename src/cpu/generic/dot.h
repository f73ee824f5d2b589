// Dot products of weight rows with activation rows. Included after a vec.h.
#pragma once

#include "cpu/generic/decode.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

// Weight rows of a tile. With kTileRows activation rows it fills the vector registers with accumulators.
static const int kTileWeights = 4;

FATHOM_INLINE void store_tile(F (*sums)[kTileRows], const int weights, const int rows, float* const* out,
                              int64_t weight) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    if (weights == 4) store_sums4(out[m] + weight, sums[0][m], sums[1][m], sums[2][m], sums[3][m]);
    else out[m][weight] = f_sum(sums[0][m]);
  }
}

// `weights` (4 or 1) rows of a panel times `rows` activation rows. Both are constants where this is inlined.
FATHOM_INLINE void panel_tile(const struct Panel* panel, int64_t weight, const int weights,
                              const float* const* in, const int rows, float* const* out) {
  F sums[kTileWeights][kTileRows];
  const float* x[kTileRows];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    x[m] = in[m];
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) sums[w][m] = f_zero();
  }
  const float* first = panel->data + weight * panel->stride;
  const int64_t stride = panel->stride;
  const int64_t cols = panel->cols;
  int64_t k = 0;
  for (; k + kBlock <= cols; k += kBlock) {
#pragma GCC unroll 8
    for (int v = 0; v < kBlock; v += kLanes) {
      F activation[kTileRows];
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) activation[m] = f_load(x[m] + k + v);
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w) {
        const F value = f_load(first + w * stride + k + v);
#pragma GCC unroll 8
        for (int m = 0; m < rows; ++m) sums[w][m] = f_fma(value, activation[m], sums[w][m]);
      }
    }
  }
  // The last, partial block: the panel holds zeros there, and so do the masked activations.
  if (k < cols) {
    for (int v = 0; v < kBlock; v += kLanes) {
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) {
        const F activation = f_load_part(x[m] + k + v, cols - k - v);
#pragma GCC unroll 4
        for (int w = 0; w < weights; ++w)
          sums[w][m] = f_fma(f_load(first + w * stride + k + v), activation, sums[w][m]);
      }
    }
  }
  store_tile(sums, weights, rows, out, weight);
}

FATHOM_INLINE void panel_strip(const struct Panel* panel, int64_t weight, const int weights,
                               const struct DotRows* rows) {
  int64_t m = 0;
  for (; m + kTileRows <= rows->rows; m += kTileRows)
    panel_tile(panel, weight, weights, rows->in + m, kTileRows, rows->out + m);
  const float* const* in = rows->in + m;
  float* const* out = rows->out + m;
  switch (rows->rows - m) {
    case 1: return panel_tile(panel, weight, weights, in, 1, out);
#if FATHOM_TILE_ROWS > 2
    case 2: return panel_tile(panel, weight, weights, in, 2, out);
#endif
#if FATHOM_TILE_ROWS > 3
    case 3: return panel_tile(panel, weight, weights, in, 3, out);
    case 4: return panel_tile(panel, weight, weights, in, 4, out);
    case 5: return panel_tile(panel, weight, weights, in, 5, out);
#endif
    default: return;
  }
}

// Four weight rows stay in the first cache while all activation rows pass by.
static void dot_panel(const struct Panel* panel, const struct DotRows* rows) {
  int64_t weight = 0;
  for (; weight + kTileWeights <= panel->rows; weight += kTileWeights)
    panel_strip(panel, weight, kTileWeights, rows);
  for (; weight < panel->rows; ++weight) panel_strip(panel, weight, 1, rows);
}

// One block of `weights` encoded rows times `rows` activation rows, decoded in registers.
FATHOM_INLINE void fused_block(enum Encoding encoding, const uint8_t* const* data,
                               const uint8_t* const* scales, int64_t b, const int weights,
                               F (*activation)[kBlockVectors], const int rows, F (*sums)[kTileRows]) {
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w) {
    F columns[kBlockVectors];
    decode_block(encoding, data[w], scales[w], b, columns);
#pragma GCC unroll 8
    for (int v = 0; v < kBlockVectors; ++v)
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) sums[w][m] = f_fma(columns[v], activation[m][v], sums[w][m]);
  }
}

FATHOM_INLINE void fused_tile(enum Encoding encoding, const struct EncodedMatrix* matrix, int64_t row,
                              int64_t weight, const int weights, const struct DotRows* in, const int rows) {
  const int64_t cols = matrix->cols;
  const uint8_t* data[kTileWeights];
  const uint8_t* scales[kTileWeights];
  F sums[kTileWeights][kTileRows];
  F activation[kFusedRows][kBlockVectors];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w) {
    data[w] = row_data(matrix, row + weight + w);
    scales[w] = row_scales(matrix, row + weight + w);
    for (int m = 0; m < rows; ++m) sums[w][m] = f_zero();
  }
  int64_t k = 0;
  for (; k + kBlock <= cols; k += kBlock) {
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m)
#pragma GCC unroll 8
      for (int v = 0; v < kBlockVectors; ++v) activation[m][v] = f_load(in->in[m] + k + v * kLanes);
    fused_block(encoding, data, scales, k / kBlock, weights, activation, rows, sums);
  }
  if (k < cols) {
    uint8_t blocks[kTileWeights][128];
    for (int w = 0; w < weights; ++w) {
      copy_tail(encoding, data[w] + k / kBlock * block_bytes(encoding), cols - k, blocks[w]);
      data[w] = blocks[w];
      if (scales[w] != NULL) scales[w] += k / kBlock;
    }
    // An array of its own: the loop above keeps the other one in registers.
    F last[kFusedRows][kBlockVectors];
    for (int m = 0; m < rows; ++m)
      for (int v = 0; v < kBlockVectors; ++v)
        last[m][v] = f_load_part(in->in[m] + k + v * kLanes, cols - k - v * kLanes);
    fused_block(encoding, data, scales, 0, weights, last, rows, sums);
  }
  store_tile(sums, weights, rows, in->out, weight);
}

FATHOM_INLINE void dot_encoded_as(enum Encoding encoding, const struct EncodedMatrix* matrix, int64_t row,
                                  int64_t count, const struct DotRows* in) {
  int64_t weight = 0;
#if FATHOM_FUSED_ROWS > 1
  if (in->rows == 2) {
    for (; weight + kTileWeights <= count; weight += kTileWeights)
      fused_tile(encoding, matrix, row, weight, kTileWeights, in, 2);
    for (; weight < count; ++weight) fused_tile(encoding, matrix, row, weight, 1, in, 2);
    return;
  }
#endif
  for (; weight + kTileWeights <= count; weight += kTileWeights)
    fused_tile(encoding, matrix, row, weight, kTileWeights, in, 1);
  for (; weight < count; ++weight) fused_tile(encoding, matrix, row, weight, 1, in, 1);
}

static void dot_encoded(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct DotRows* in) {
  switch (m->encoding) {
    case kEncodingF32: return dot_encoded_as(kEncodingF32, m, row, count, in);
    case kEncodingF16: return dot_encoded_as(kEncodingF16, m, row, count, in);
    case kEncodingBf16: return dot_encoded_as(kEncodingBf16, m, row, count, in);
    case kEncodingFp8: return dot_encoded_as(kEncodingFp8, m, row, count, in);
    case kEncodingFp4: return dot_encoded_as(kEncodingFp4, m, row, count, in);
    case kEncodingMxfp4: return dot_encoded_as(kEncodingMxfp4, m, row, count, in);
    case kEncodingQ8_0: return dot_encoded_as(kEncodingQ8_0, m, row, count, in);
    case kEncodingQ2K: return dot_encoded_as(kEncodingQ2K, m, row, count, in);
    case kEncodingQ4K: return dot_encoded_as(kEncodingQ4K, m, row, count, in);
    default: return;
  }
}

}  // namespace
}  // namespace fathom::cpu
