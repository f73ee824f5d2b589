#include "quantize/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/float_types.h"
#include "quantize/formats/affine_encode.h"
#include "quantize/formats/iq_encode.h"
#include "quantize/formats/k_encode.h"
#include "quantize/formats/small_encode.h"
#include "tensor/weight.h"

namespace fathom {
namespace {

constexpr int kMaxBlock = 256;
constexpr float kLargestHalf = 65504.0f;

uint8_t* bytes_of(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }

using BlockEncoder = void (*)(const float* values, const float* weights, uint8_t* block);

BlockEncoder block_encoder(DType type) {
  switch (type) {
    case DType::kQ8_0: return encode_q8_0;
    case DType::kQ2_K: return encode_q2_k;
    case DType::kQ3_K: return encode_q3_k;
    case DType::kQ4_K: return encode_q4_k;
    case DType::kQ5_K: return encode_q5_k;
    case DType::kQ6_K: return encode_q6_k;
    case DType::kIQ2_XXS: return encode_iq2_xxs;
    case DType::kIQ3_XXS: return encode_iq3_xxs;
    case DType::kIQ4_NL: return encode_iq4_nl;
    case DType::kIQ4_XS: return encode_iq4_xs;
    case DType::kMXFP4: return encode_mxfp4;
    default: return nullptr;
  }
}

bool is_plain_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// Columns that must come together; 1 if any number will do.
int64_t columns_together(DType type) {
  if (type == DType::kFp8Tile32) return 1;
  return std::max(dtype_info(type).block_elements, is_plain_float(type) ? 1 : 32);
}

// The weights of one block: relative to their mean, so that no sum of theirs overflows, and with a trace for
// every column, so that a run of columns that were never observed is not left to chance.
void block_weights(std::span<const float> importance, float* weights) {
  double sum = 0.0;
  for (const float weight : importance) sum += static_cast<double>(weight);
  const double mean = sum / static_cast<double>(importance.size());
  for (size_t column = 0; column < importance.size(); ++column)
    weights[column] =
        mean > 0.0 ? static_cast<float>(static_cast<double>(importance[column]) / mean) + 1e-4f : 1.0f;
}

// Calls encode(first column, weights) for every block of `block` columns.
template <class Encode>
void for_each_block(std::span<const float> values, std::span<const float> importance, int block,
                    const Encode& encode) {
  const size_t step = static_cast<size_t>(block);
  FATHOM_CHECK(values.size() % step == 0, "{} columns in blocks of {}", values.size(), block);
  FATHOM_CHECK(importance.empty() || importance.size() == values.size(), "{} weights for {} columns",
               importance.size(), values.size());
  float weights[kMaxBlock];
  std::fill_n(weights, block, 1.0f);
  for (size_t start = 0; start < values.size(); start += step) {
    if (!importance.empty()) block_weights(importance.subspan(start, step), weights);
    encode(start, weights);
  }
}

void encode_plain(DType type, std::span<const float> values, uint8_t* out) {
  if (type == DType::kF32) {
    for (size_t at = 0; at < values.size(); ++at) {
      const uint32_t bits = bits_of_float(values[at]);
      for (size_t byte = 0; byte < 4; ++byte) out[4 * at + byte] = static_cast<uint8_t>(bits >> (8 * byte));
    }
    return;
  }
  // Rounding must not make an infinity of a finite number.
  const float limit = largest_encodable(type);
  for (size_t at = 0; at < values.size(); ++at) {
    const float value = std::clamp(values[at], -limit, limit);
    const uint16_t bits = type == DType::kF16 ? f16_from_float(value) : bf16_from_float(value);
    out[2 * at] = static_cast<uint8_t>(bits);
    out[2 * at + 1] = static_cast<uint8_t>(bits >> 8);
  }
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

void encode_fp8(std::span<const float> values, uint8_t* codes, uint8_t* scales) {
  FATHOM_CHECK(values.size() % 32 == 0, "{} columns in groups of 32", values.size());
  for (size_t group = 0; group < values.size() / 32; ++group) {
    scales[group] = fp8_scale(largest_magnitude(values.subspan(32 * group, 32)));
    encode_fp8_codes(values.data() + 32 * group, 32, scales[group], codes + 32 * group);
  }
}

}  // namespace

bool can_encode(DType type) {
  return is_plain_float(type) || type == DType::kEngramRow264 || block_encoder(type) != nullptr;
}

void encode_row(DType type, std::span<const float> values, std::span<const float> importance,
                std::byte* out) {
  FATHOM_CHECK(can_encode(type), "no encoder for {}", dtype_name(type));
  if (is_plain_float(type)) return encode_plain(type, values, bytes_of(out));
  if (type == DType::kEngramRow264) {
    FATHOM_CHECK(values.size() == 256, "an Engram row of {} columns", values.size());
    return encode_fp8(values, bytes_of(out), bytes_of(out) + 256);
  }
  const BlockEncoder encode = block_encoder(type);
  const DTypeInfo& info = dtype_info(type);
  for_each_block(values, importance, info.block_elements, [&](size_t start, const float* weights) {
    const size_t block = start / static_cast<size_t>(info.block_elements);
    encode(values.data() + start, weights, bytes_of(out) + block * static_cast<size_t>(info.block_bytes));
  });
}

float largest_encodable(DType type) {
  switch (type) {
    case DType::kF16: return kLargestHalf;
    case DType::kBF16: return 0x1.FEp127f;
    // The largest d with the largest scale and code of either sign. Where offsets are stored, one sign has
    // nothing but the offset.
    case DType::kQ8_0: return kLargestHalf * 127.0f;
    case DType::kQ2_K: return kLargestHalf * 15.0f;
    case DType::kQ3_K: return kLargestHalf * 31.0f * 3.0f;
    case DType::kQ4_K:
    case DType::kQ5_K: return kLargestHalf * 63.0f;
    case DType::kQ6_K: return kLargestHalf * 127.0f * 31.0f;
    case DType::kIQ2_XXS: return kLargestHalf * 15.5f * 0.25f * 43.0f;
    case DType::kIQ3_XXS: return kLargestHalf * 15.5f * 0.5f * 62.0f;
    case DType::kIQ4_NL: return kLargestHalf * 113.0f;
    case DType::kIQ4_XS: return kLargestHalf * 31.0f * 113.0f;
    default: return std::numeric_limits<float>::infinity();
  }
}

Result<void> check_encodable(DType type, std::span<const float> values, std::string_view what) {
  const int64_t together = columns_together(type);
  const int64_t columns = static_cast<int64_t>(values.size());
  if (columns == 0 || columns % together != 0)
    return Error::invalid("{}: {} takes a multiple of {} columns, found {}", what, dtype_name(type), together,
                          columns);
  const float limit = largest_encodable(type);
  for (size_t column = 0; column < values.size(); ++column) {
    const float value = values[column];
    if (!std::isfinite(value))
      return Error::invalid("{}: column {} is {}, expected a finite number", what, column, value);
    if (std::fabs(value) > limit)
      return Error::invalid("{}: column {} is {}, {} holds at most {}", what, column, value, dtype_name(type),
                            limit);
  }
  return {};
}

Result<void> check_importance(std::span<const float> importance, int64_t columns, std::string_view what) {
  if (importance.empty()) return {};
  if (static_cast<int64_t>(importance.size()) != columns)
    return Error::invalid("{}: {} importance weights for {} columns", what, importance.size(), columns);
  for (size_t column = 0; column < importance.size(); ++column) {
    const float weight = importance[column];
    if (!std::isfinite(weight) || weight < 0.0f)
      return Error::invalid("{}: importance of column {} is {}, expected a finite number of at least 0", what,
                            column, weight);
  }
  return {};
}

void encode_fp4_row(std::span<const float> values, std::span<const float> importance, std::byte* codes,
                    std::byte* scales) {
  for_each_block(values, importance, 32, [&](size_t start, const float* weights) {
    bytes_of(scales)[start / 32] =
        encode_fp4_group(values.data() + start, weights, bytes_of(codes) + start / 2);
  });
}

void encode_fp8_row(std::span<const float> values, std::byte* codes, std::byte* scales) {
  encode_fp8(values, bytes_of(codes), bytes_of(scales));
}

void encode_fp8_tiles(const Fp8TileRow& tiles, std::byte* codes, std::byte* scales) {
  FATHOM_CHECK(tiles.rows >= 1 && tiles.rows <= 32, "a row of tiles with {} rows", tiles.rows);
  for (int64_t start = 0; start < tiles.cols; start += 32) {
    const int64_t width = std::min<int64_t>(32, tiles.cols - start);
    float largest = 0.0f;
    for (int64_t row = 0; row < tiles.rows; ++row)
      largest = std::max(largest, largest_magnitude({tiles.values + row * tiles.cols + start,
                                                     static_cast<size_t>(width)}));
    const uint8_t scale = fp8_scale(largest);
    bytes_of(scales)[start / 32] = scale;
    for (int64_t row = 0; row < tiles.rows; ++row) {
      const int64_t at = row * tiles.cols + start;
      encode_fp8_codes(tiles.values + at, width, scale, bytes_of(codes) + at);
    }
  }
}

void encode_affine_row(std::span<const float> values, std::span<const float> importance,
                       const AffineRow& out) {
  FATHOM_CHECK(is_plain_float(out.scale_type), "affine scales of {}", dtype_name(out.scale_type));
  const size_t scale_bytes = static_cast<size_t>(dtype_info(out.scale_type).block_bytes);
  for_each_block(values, importance, out.group, [&](size_t start, const float* weights) {
    const size_t group = start / static_cast<size_t>(out.group);
    encode_affine_group(values.data() + start, weights,
                        {.codes = bytes_of(out.codes) + start * static_cast<size_t>(out.bits) / 8,
                         .scale = bytes_of(out.scales) + group * scale_bytes,
                         .bias = bytes_of(out.biases) + group * scale_bytes,
                         .scale_type = out.scale_type,
                         .bits = out.bits,
                         .group = out.group});
  });
}

void repack_fp4_as_mxfp4(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* blocks) {
  FATHOM_CHECK(cols % 32 == 0, "{} columns in groups of 32", cols);
  for (int64_t group = 0; group < cols / 32; ++group) {
    const std::byte* in = codes + 16 * group;
    std::byte* out = blocks + 17 * group;
    *out++ = scales[group];
    // Columns 2i and 2i+1 of either half share a byte there; column i of both halves does here.
    for (int pair = 0; pair < 8; ++pair) {
      out[2 * pair] = (in[pair] & std::byte{15}) | in[pair + 8] << 4;
      out[2 * pair + 1] = in[pair] >> 4 | (in[pair + 8] & std::byte{0xF0});
    }
  }
}

void repack_mxfp4_as_fp4(const std::byte* blocks, int64_t cols, std::byte* codes, std::byte* scales) {
  FATHOM_CHECK(cols % 32 == 0, "{} columns in groups of 32", cols);
  for (int64_t group = 0; group < cols / 32; ++group) {
    const std::byte* in = blocks + 17 * group;
    std::byte* out = codes + 16 * group;
    scales[group] = *in++;
    for (int pair = 0; pair < 8; ++pair) {
      out[pair] = (in[2 * pair] & std::byte{15}) | in[2 * pair + 1] << 4;
      out[pair + 8] = in[2 * pair] >> 4 | (in[2 * pair + 1] & std::byte{0xF0});
    }
  }
}

void repeat_fp8_tile_scales(const std::byte* tile_scales, int64_t rows, int64_t scale_cols,
                            std::byte* row_scales) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(row_scales + row * scale_cols, tile_scales + row / 32 * scale_cols,
                static_cast<size_t>(scale_cols));
}

}  // namespace fathom
