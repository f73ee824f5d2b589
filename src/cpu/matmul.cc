#include "cpu/matmul.h"

#include <algorithm>
#include <optional>

namespace fathom::cpu {
namespace {

// The kernels' view of a matrix; nothing for an encoding they do not read.
std::optional<EncodedMatrix> encoded(const WeightMatrix& weight) {
  EncodedMatrix matrix = {};
  matrix.data = reinterpret_cast<const uint8_t*>(weight.data);
  matrix.row_bytes = weight.row_bytes;
  matrix.scales = matrix.data;  // never read by the encodings without scales apart
  matrix.cols = weight.cols;
  const auto with_scales = [&](Encoding encoding, int shift) {
    matrix.encoding = encoding;
    matrix.scales = reinterpret_cast<const uint8_t*>(weight.scales);
    matrix.scale_row_bytes = weight.scale_row_bytes;
    matrix.scale_row_shift = shift;
    return matrix;
  };
  switch (weight.type) {
    case DType::kF32: matrix.encoding = kEncodingF32; return matrix;
    case DType::kF16: matrix.encoding = kEncodingF16; return matrix;
    case DType::kBF16: matrix.encoding = kEncodingBf16; return matrix;
    case DType::kQ8_0: matrix.encoding = kEncodingQ8_0; return matrix;
    case DType::kQ2_K: matrix.encoding = kEncodingQ2K; return matrix;
    case DType::kQ4_K: matrix.encoding = kEncodingQ4K; return matrix;
    case DType::kMXFP4: matrix.encoding = kEncodingMxfp4; return matrix;
    case DType::kFp8Tile32: return with_scales(kEncodingFp8, 5);
    case DType::kFp8Row32: return with_scales(kEncodingFp8, 0);
    case DType::kFp4Row32: return with_scales(kEncodingFp4, 0);
    default: return std::nullopt;
  }
}

// Rounded up to a block, and off the multiples of 4 KiB, where the rows of a tile would compete for the same
// few places of the first cache.
int64_t panel_stride(int64_t cols) { return (cols + 31) / 32 * 32 + 16; }

}  // namespace

int64_t activation_block_rows(int64_t cols) {
  constexpr int64_t kFloats = 128 * 1024;
  // 48: below that, decoding the panel again for every block would cost more than the cache gives.
  return std::max<int64_t>(48, kFloats / cols / 6 * 6);
}

void multiply_rows(const Kernels& kernels, Scratch& scratch, const WeightMatrix& weight, int64_t first_row,
                   int64_t count, const DotRows& rows) {
  if (rows.rows == 0) return;
  const std::optional<EncodedMatrix> matrix = encoded(weight);
  if (matrix && rows.rows <= kernels.fused_rows) {
    kernels.dot_encoded(&*matrix, first_row, count, &rows);
    return;
  }
  const int64_t stride = panel_stride(weight.cols);
  float* panel = scratch.panel.get(kPanelRows * stride);
  float** out = scratch.out.get(rows.rows);
  for (int64_t begin = 0; begin < count; begin += kPanelRows) {
    const int64_t panel_rows = std::min(kPanelRows, count - begin);
    if (matrix) {
      kernels.decode(&*matrix, first_row + begin, panel_rows, panel, stride);
    } else {
      for (int64_t row = 0; row < panel_rows; ++row) {
        decode_row(weight, first_row + begin + row, panel + row * stride);
        std::fill(panel + row * stride + weight.cols, panel + (row + 1) * stride, 0.0f);
      }
    }
    for (int64_t m = 0; m < rows.rows; ++m) out[m] = rows.out[m] + begin;
    const Panel view = {.data = panel, .rows = panel_rows, .stride = stride, .cols = weight.cols};
    const DotRows panel_results = {.in = rows.in, .out = out, .rows = rows.rows};
    kernels.dot_panel(&view, &panel_results);
  }
}

}  // namespace fathom::cpu
