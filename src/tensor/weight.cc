#include "tensor/weight.h"

#include <bit>

#include "base/check.h"
#include "tensor/formats/affine.h"
#include "tensor/formats/engram_row.h"
#include "tensor/formats/fp4.h"
#include "tensor/formats/fp8.h"
#include "tensor/formats/iq4.h"
#include "tensor/formats/iq_grids.h"
#include "tensor/formats/k_quants.h"
#include "tensor/formats/little_endian.h"
#include "tensor/formats/q8_0.h"

namespace fathom {
namespace {

using BlockDecoder = void (*)(const uint8_t* block, float* out);

void decode_f32(const uint8_t* block, float* out) { *out = load_f32(block); }
void decode_f16(const uint8_t* block, float* out) { *out = load_f16(block); }
void decode_bf16(const uint8_t* block, float* out) { *out = load_bf16(block); }
void decode_f64(const uint8_t* block, float* out) {
  *out = static_cast<float>(std::bit_cast<double>(load_u64(block)));
}
void decode_engram264(const uint8_t* block, float* out) {
  (void)decode_engram_row_fp8(block, block + 256, 256, out);
}

// The types whose rows are blocks one behind the other; nullptr for the others.
BlockDecoder block_decoder(DType type) {
  switch (type) {
    case DType::kF32: return decode_f32;
    case DType::kF16: return decode_f16;
    case DType::kBF16: return decode_bf16;
    case DType::kF64: return decode_f64;
    case DType::kQ8_0: return decode_q8_0;
    case DType::kQ2_K: return decode_q2_k;
    case DType::kQ3_K: return decode_q3_k;
    case DType::kQ4_K: return decode_q4_k;
    case DType::kQ5_K: return decode_q5_k;
    case DType::kQ6_K: return decode_q6_k;
    case DType::kIQ1_S: return decode_iq1_s;
    case DType::kIQ1_M: return decode_iq1_m;
    case DType::kIQ2_XXS: return decode_iq2_xxs;
    case DType::kIQ2_XS: return decode_iq2_xs;
    case DType::kIQ2_S: return decode_iq2_s;
    case DType::kIQ3_XXS: return decode_iq3_xxs;
    case DType::kIQ3_S: return decode_iq3_s;
    case DType::kIQ4_NL: return decode_iq4_nl;
    case DType::kIQ4_XS: return decode_iq4_xs;
    case DType::kMXFP4: return decode_mxfp4;
    case DType::kEngramRow264: return decode_engram264;
    case DType::kEngramRow136: return decode_engram_row_lloyd4;
    default: return nullptr;
  }
}

bool has_separate_scales(DType type) { return dtype_info(type).block_elements == 0; }

const uint8_t* row_of(const std::byte* data, int64_t row, int64_t row_bytes) {
  return reinterpret_cast<const uint8_t*>(data) + row * row_bytes;
}

void decode_affine(const WeightMatrix& weight, int64_t row, float* out) {
  const BlockDecoder plain = block_decoder(weight.scale_type);
  const int scale_bytes = dtype_info(weight.scale_type).block_bytes;
  FATHOM_CHECK(plain != nullptr && dtype_info(weight.scale_type).block_elements == 1);
  FATHOM_CHECK(weight.group > 0 && weight.cols % weight.group == 0, "group {}", weight.group);
  FATHOM_CHECK(row_bytes_of(weight.type, weight.cols, weight.bits) > 0, "{} bits", weight.bits);
  const uint8_t* codes = row_of(weight.data, row, weight.row_bytes);
  const uint8_t* scales = row_of(weight.scales, row, weight.scale_row_bytes);
  const uint8_t* biases = row_of(weight.biases, row, weight.bias_row_bytes);
  for (int64_t group = 0; group < weight.cols / weight.group; ++group) {
    float scale;
    float bias;
    plain(scales + group * scale_bytes, &scale);
    plain(biases + group * scale_bytes, &bias);
    // A group is a multiple of 32 codes, so it starts and ends on a byte.
    decode_affine_group({.codes = codes + group * weight.group * weight.bits / 8,
                         .scale = scale,
                         .bias = bias,
                         .bits = weight.bits,
                         .count = weight.group},
                        out + group * weight.group);
  }
}

}  // namespace

int64_t row_bytes_of(DType type, int64_t cols, int bits) {
  if (cols <= 0) return 0;
  const DTypeInfo& info = dtype_info(type);
  switch (type) {
    case DType::kFp8Tile32: return cols;
    case DType::kFp8Row32: return cols % 32 == 0 ? cols : 0;
    case DType::kFp4Row32: return cols % 32 == 0 ? cols / 2 : 0;
    case DType::kAffine: {
      const bool known = (bits >= 2 && bits <= 6) || bits == 8;
      return known && cols % 32 == 0 ? cols / 8 * bits : 0;
    }
    // An Engram row is one row, not a run of blocks.
    case DType::kEngramRow264:
    case DType::kEngramRow136: return cols == info.block_elements ? info.block_bytes : 0;
    default: return cols % info.block_elements == 0 ? cols / info.block_elements * info.block_bytes : 0;
  }
}

bool is_weight_type(DType type) { return has_separate_scales(type) || block_decoder(type) != nullptr; }

int64_t weight_bytes(const WeightMatrix& weight) {
  const int64_t data_bytes = weight.rows * row_bytes_of(weight.type, weight.cols, weight.bits);
  switch (weight.type) {
    case DType::kFp8Tile32: return data_bytes + (weight.rows + 31) / 32 * ((weight.cols + 31) / 32);
    case DType::kFp8Row32:
    case DType::kFp4Row32: return data_bytes + weight.rows * (weight.cols / 32);
    case DType::kAffine: {
      FATHOM_CHECK(weight.group > 0);
      const int64_t groups = weight.rows * (weight.cols / weight.group);
      return data_bytes + 2 * groups * dtype_info(weight.scale_type).block_bytes;
    }
    default: return data_bytes;
  }
}

void decode_row(const WeightMatrix& weight, int64_t row, float* out) {
  FATHOM_CHECK(row >= 0 && row < weight.rows, "row {} of {}", row, weight.rows);
  FATHOM_CHECK(is_weight_type(weight.type), "{} is not a weight type", dtype_name(weight.type));
  const uint8_t* data = row_of(weight.data, row, weight.row_bytes);
  switch (weight.type) {
    case DType::kFp8Tile32:
      return decode_fp8_row(data, row_of(weight.scales, row / 32, weight.scale_row_bytes), weight.cols, out);
    case DType::kFp8Row32:
      return decode_fp8_row(data, row_of(weight.scales, row, weight.scale_row_bytes), weight.cols, out);
    case DType::kFp4Row32:
      return decode_fp4_row(data, row_of(weight.scales, row, weight.scale_row_bytes), weight.cols, out);
    case DType::kAffine: return decode_affine(weight, row, out);
    default: break;
  }
  const BlockDecoder decode = block_decoder(weight.type);
  const DTypeInfo& info = dtype_info(weight.type);
  FATHOM_CHECK(weight.cols % info.block_elements == 0, "{} columns of {}", weight.cols, info.name);
  for (int64_t block = 0; block < weight.cols / info.block_elements; ++block)
    decode(data + block * info.block_bytes, out + block * info.block_elements);
}

}  // namespace fathom
