// Dot products of encoded weight rows with one or two activation rows. Included after a vec.h.
#pragma once

#include "cpu/generic/panel.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

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
