#include "cpu/matmul.h"

#include <algorithm>
#include <optional>

namespace fathom::cpu {
namespace {

std::optional<Encoding> encoding_of(DType type) {
  switch (type) {
    case DType::kF32: return kEncodingF32;
    case DType::kF16: return kEncodingF16;
    case DType::kBF16: return kEncodingBf16;
    case DType::kQ8_0: return kEncodingQ8_0;
    case DType::kQ2_K: return kEncodingQ2K;
    case DType::kQ3_K: return kEncodingQ3K;
    case DType::kQ4_K: return kEncodingQ4K;
    case DType::kQ5_K: return kEncodingQ5K;
    case DType::kQ6_K: return kEncodingQ6K;
    case DType::kIQ1_S: return kEncodingIq1S;
    case DType::kIQ1_M: return kEncodingIq1M;
    case DType::kIQ2_XXS: return kEncodingIq2Xxs;
    case DType::kIQ2_XS: return kEncodingIq2Xs;
    case DType::kIQ2_S: return kEncodingIq2S;
    case DType::kIQ3_XXS: return kEncodingIq3Xxs;
    case DType::kIQ3_S: return kEncodingIq3S;
    case DType::kIQ4_NL: return kEncodingIq4Nl;
    case DType::kIQ4_XS: return kEncodingIq4Xs;
    case DType::kMXFP4: return kEncodingMxfp4;
    case DType::kFp8Tile32:
    case DType::kFp8Row32: return kEncodingFp8;
    case DType::kFp4Row32: return kEncodingFp4;
    case DType::kAffine: return kEncodingAffine;
    default: return std::nullopt;
  }
}

std::optional<EncodedMatrix> encoded(const WeightMatrix& weight) {
  const std::optional<Encoding> encoding = encoding_of(weight.type);
  if (!encoding) return std::nullopt;
  EncodedMatrix matrix = {};
  matrix.encoding = *encoding;
  matrix.data = reinterpret_cast<const uint8_t*>(weight.data);
  matrix.row_bytes = weight.row_bytes;
  matrix.cols = weight.cols;
  matrix.scales = reinterpret_cast<const uint8_t*>(weight.scales);
  matrix.scale_row_bytes = weight.scale_row_bytes;
  matrix.scale_row_shift = weight.type == DType::kFp8Tile32 ? 5 : 0;
  matrix.biases = reinterpret_cast<const uint8_t*>(weight.biases);
  matrix.bias_row_bytes = weight.bias_row_bytes;
  matrix.bits = weight.bits;
  matrix.group = weight.group;
  matrix.scale_type = weight.scale_type == DType::kF32   ? kScaleF32
                      : weight.scale_type == DType::kF16 ? kScaleF16
                                                         : kScaleBf16;
  return matrix;
}

bool are_tiled(const Kernels& kernels, Encoding encoding) {
  return kernels.bf16_is_tiled != nullptr && kernels.bf16_is_tiled(encoding);
}

// Rounded up to a block, and off the multiples of 4 KiB, where the rows of a tile would compete for the same
// few places of the first cache.
int64_t panel_stride(int64_t cols) { return (cols + 31) / 32 * 32 + 16; }

void multiply_float32(const Kernels& kernels, Scratch& scratch, const WeightMatrix& weight,
                      const std::optional<EncodedMatrix>& matrix, int64_t first_row, int64_t count,
                      const DotRows& rows) {
  const bool decodes = matrix && kernels.decodes(matrix->encoding);
  if (decodes && rows.rows <= kernels.fused_rows && kernels.is_fused(matrix->encoding)) {
    kernels.dot_encoded(&*matrix, first_row, count, &rows);
    return;
  }
  const int64_t stride = panel_stride(weight.cols);
  float* panel = scratch.panel.get(kPanelRows * stride);
  float** out = scratch.out.get(rows.rows);
  for (int64_t begin = 0; begin < count; begin += kPanelRows) {
    const int64_t panel_rows = std::min(kPanelRows, count - begin);
    if (decodes) {
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

void multiply_bf16(const Kernels& kernels, Scratch& scratch, const EncodedMatrix& matrix, int64_t first_row,
                   int64_t count, const Bf16Rows& rows) {
  if (are_tiled(kernels, matrix.encoding)) {
    Bf16Rows with_memory = rows;
    with_memory.work = scratch.units.get(kernels.bf16_work_bytes(&matrix, count, rows.rows));
    kernels.bf16_dot(&matrix, first_row, count, &with_memory);
    return;
  }
  if (rows.rows <= kernels.bf16_fused_rows) {
    kernels.bf16_dot(&matrix, first_row, count, &rows);
    return;
  }
  uint8_t* data = scratch.units.get(kPanelRows * kernels.bf16_panel_row_bytes(&matrix));
  float** out = scratch.out.get(rows.rows);
  for (int64_t begin = 0; begin < count; begin += kPanelRows) {
    Bf16Panel panel;
    kernels.bf16_decode(&matrix, first_row + begin, std::min(kPanelRows, count - begin), &panel, data);
    for (int64_t m = 0; m < rows.rows; ++m) out[m] = rows.out[m] + begin;
    const Bf16Rows panel_results = {.in = rows.in, .out = out, .rows = rows.rows};
    kernels.bf16_dot_panel(&panel, &panel_results);
  }
}

}  // namespace

int64_t activation_block_rows(int64_t cols) {
  constexpr int64_t kFloats = 128 * 1024;
  // 48: below that, decoding the panel again for every block would cost more than the cache gives.
  return std::max<int64_t>(48, kFloats / cols / 6 * 6);
}

bool multiplies_tiles(const Kernels& kernels, const WeightMatrix& weight) {
  const std::optional<Encoding> encoding = encoding_of(weight.type);
  return encoding && are_tiled(kernels, *encoding);
}

PreparedRows prepare_rows(const Context& context, const WeightMatrix& weight, const float* in, int64_t rows,
                          Buffer<uint8_t>& memory) {
  const Kernels& kernels = *context.kernels;
  const std::optional<EncodedMatrix> matrix = encoded(weight);
  if (!matrix || kernels.bf16_row_bytes == nullptr) return {};
  const int64_t row_bytes = kernels.bf16_row_bytes(&*matrix);
  if (row_bytes == 0) return {};
  uint8_t* data = memory.get(rows * row_bytes);
  run_rows(context, rows, weight.cols / 4, [&](int64_t row, int) {
    kernels.bf16_prepare(&*matrix, in + row * weight.cols, data + row * row_bytes);
  });
  return {.type = weight.type, .data = data, .row_bytes = row_bytes};
}

PreparedRows prepare_tiles(const Context& context, const WeightMatrix& weight, const float* in, int64_t rows,
                           int64_t groups, Buffer<uint8_t>& memory) {
  const Kernels& kernels = *context.kernels;
  const std::optional<EncodedMatrix> matrix = encoded(weight);
  if (!matrix || kernels.bf16_row_bytes == nullptr) return {};
  const int64_t row_bytes = kernels.bf16_row_bytes(&*matrix);
  if (row_bytes == 0) return {};
  const int64_t group_tiles = (rows + kTileRows - 1) / kTileRows;
  uint8_t* data = memory.get(groups * group_tiles * kTileRows * row_bytes);
  const auto prepare = [&](int64_t tile, int thread) {
    const int64_t group = tile / group_tiles, first = tile % group_tiles * kTileRows;
    const int64_t count = std::min(kTileRows, rows - first);
    uint8_t* prepared = context.scratch_of(thread).units.get(kTileRows * row_bytes);
    const uint8_t* row[kTileRows];
    for (int64_t m = 0; m < count; ++m) {
      row[m] = prepared + m * row_bytes;
      kernels.bf16_prepare(&*matrix, in + ((first + m) * groups + group) * weight.cols, prepared + m * row_bytes);
    }
    kernels.bf16_pack(row, count, row_bytes, data + tile * kTileRows * row_bytes);
  };
  run_rows(context, groups * group_tiles, kTileRows * weight.cols / 2, prepare);
  return {.type = weight.type, .data = data, .row_bytes = row_bytes, .group_tiles = group_tiles};
}

// Weight rows whose scales leave the range of bfloat16 are multiplied again in float32, for all activation rows.
// They are looked for afterwards, when the scales have been read anyway.
void multiply_rows(const Kernels& kernels, Scratch& scratch, const WeightMatrix& weight, int64_t first_row,
                   int64_t count, const DotRows& rows, const uint8_t* const* prepared, bool is_tiled) {
  if (rows.rows == 0) return;
  const std::optional<EncodedMatrix> matrix = encoded(weight);
  if (prepared == nullptr) {
    multiply_float32(kernels, scratch, weight, matrix, first_row, count, rows);
    return;
  }
  multiply_bf16(kernels, scratch, *matrix, first_row, count,
                {.in = prepared, .out = rows.out, .rows = rows.rows, .is_tiled = is_tiled});
  for (int64_t row = 0; row < count; ++row) {
    if (kernels.bf16_row_is_exact(&*matrix, first_row + row)) continue;
    float** out = scratch.row_out.get(rows.rows);
    for (int64_t m = 0; m < rows.rows; ++m) out[m] = rows.out[m] + row;
    multiply_float32(kernels, scratch, weight, matrix, first_row + row, 1,
                     {.in = rows.in, .out = out, .rows = rows.rows});
  }
}

}  // namespace fathom::cpu
