#include "tensor/weight_check.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace fathom {
namespace {

// The loops below have no early exit, so that the compiler can vectorise them.

bool any_e4m3_nan(const std::byte* bytes, int64_t count) {
  unsigned found = 0;
  for (int64_t k = 0; k < count; ++k) found |= (static_cast<uint8_t>(bytes[k]) & 0x7Fu) == 0x7Fu;
  return found != 0;
}

bool any_e8m0_nan(const std::byte* bytes, int64_t count, int64_t stride = 1) {
  unsigned found = 0;
  for (int64_t k = 0; k < count; ++k) found |= static_cast<uint8_t>(bytes[k * stride]) == 0xFFu;
  return found != 0;
}

// Values of type T whose exponent bits are all ones are infinite or NaN.
template <class T>
bool any_full_exponent(const std::byte* bytes, int64_t count, T exponent, int64_t stride = sizeof(T)) {
  unsigned found = 0;
  for (int64_t k = 0; k < count; ++k) {
    T value;
    std::memcpy(&value, bytes + k * stride, sizeof value);
    found |= (value & exponent) == exponent;
  }
  return found != 0;
}

bool any_unusable(DType type, const std::byte* bytes, int64_t count, int64_t stride) {
  switch (type) {
    case DType::kF32: return any_full_exponent<uint32_t>(bytes, count, 0x7F800000u, stride);
    case DType::kF16: return any_full_exponent<uint16_t>(bytes, count, 0x7C00u, stride);
    case DType::kBF16: return any_full_exponent<uint16_t>(bytes, count, 0x7F80u, stride);
    default: return any_e8m0_nan(bytes, count, stride);
  }
}

// Where a block keeps its half-precision factors; the rest of a block is integers.
struct HalfOffsets {
  int first = -1;
  int second = -1;
};
HalfOffsets half_offsets(DType type) {
  switch (type) {
    case DType::kQ8_0: case DType::kIQ1_S: case DType::kIQ2_XXS: case DType::kIQ2_XS: case DType::kIQ2_S:
    case DType::kIQ3_XXS: case DType::kIQ3_S: case DType::kIQ4_NL: case DType::kIQ4_XS:
      return {.first = 0};
    case DType::kQ4_K: case DType::kQ5_K: return {.first = 0, .second = 2};
    case DType::kQ2_K: return {.first = 80, .second = 82};
    case DType::kQ3_K: return {.first = 108};
    case DType::kQ6_K: return {.first = 208};
    default: return {};
  }
}

bool decodes_to_unusable(const WeightMatrix& weight, int64_t row) {
  std::vector<float> values(static_cast<size_t>(weight.cols));
  decode_row(weight, row, values.data());
  for (const float value : values)
    if (!std::isfinite(value)) return true;
  return false;
}

bool row_is_unusable(const WeightMatrix& w, int64_t row) {
  const std::byte* data = w.data + row * w.row_bytes;
  switch (w.type) {
    case DType::kF32: case DType::kF16: case DType::kBF16:
      return any_unusable(w.type, data, w.cols, dtype_info(w.type).block_bytes);
    case DType::kFp8Tile32:
      return any_e4m3_nan(data, w.cols) ||
             any_e8m0_nan(w.scales + row / 32 * w.scale_row_bytes, (w.cols + 31) / 32);
    case DType::kFp8Row32:
      return any_e4m3_nan(data, w.cols) || any_e8m0_nan(w.scales + row * w.scale_row_bytes, w.cols / 32);
    case DType::kFp4Row32:
      return any_e8m0_nan(w.scales + row * w.scale_row_bytes, w.cols / 32);
    case DType::kMXFP4:
      return any_e8m0_nan(data, w.cols / 32, 17);
    case DType::kAffine: {
      const int64_t step = dtype_info(w.scale_type).block_bytes, groups = w.cols / w.group;
      return any_unusable(w.scale_type, w.scales + row * w.scale_row_bytes, groups, step) ||
             any_unusable(w.scale_type, w.biases + row * w.bias_row_bytes, groups, step);
    }
    default: break;
  }
  const HalfOffsets halves = half_offsets(w.type);
  if (halves.first < 0) return decodes_to_unusable(w, row);
  const DTypeInfo& info = dtype_info(w.type);
  const int64_t blocks = w.cols / info.block_elements;
  return any_unusable(DType::kF16, data + halves.first, blocks, info.block_bytes) ||
         (halves.second >= 0 && any_unusable(DType::kF16, data + halves.second, blocks, info.block_bytes));
}

}  // namespace

std::optional<int64_t> first_unusable_row(const WeightMatrix& weight) {
  for (int64_t row = 0; row < weight.rows; ++row)
    if (row_is_unusable(weight, row)) return row;
  return std::nullopt;
}

}  // namespace fathom
