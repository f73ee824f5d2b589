// Encoders: float32 rows into every weight encoding that Fathom writes. Each is the counterpart of a decoder
// in tensor/formats/ and searches for the least sum over the columns of importance * (value - decoded)^2;
// docs/formats/blocks.md, "How the encoders choose", says how.
//
// `importance` is empty (all columns alike) or has one weight >= 0 for each column; only ratios within a
// block matter. Bytes depend on nothing but the arguments. No allocation; up to 128 KiB of stack. Any thread
// may call. Values must have passed check_encodable(): one that is not finite gives unspecified bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace fathom {

/// Whether encode_row() writes the type: F32, F16, BF16, Q8_0, Q2_K to Q6_K, IQ2_XXS, IQ3_XXS, IQ4_NL,
/// IQ4_XS, MXFP4 and Engram rows of 264 bytes. Types whose scales stand apart have functions of their own.
bool can_encode(DType type);

/// One row of `values.size()` columns into row_bytes_of(type, columns) bytes.
void encode_row(DType type, std::span<const float> values, std::span<const float> importance,
                std::byte* out);

/// Largest magnitude that the type holds without saturating; +inf where every float32 fits.
float largest_encodable(DType type);

/// Fails, naming the column, if a value is not finite or lies beyond largest_encodable(), and if the columns
/// are not a whole number of blocks. `what` (tensor and row) begins the message. Covers all types named in
/// this header, also those whose scales stand apart.
Result<void> check_encodable(DType type, std::span<const float> values, std::string_view what);

/// Fails, naming the column, if a weight is negative or not finite, or if there are not `columns` of them
/// (none at all is right).
Result<void> check_importance(std::span<const float> importance, int64_t columns, std::string_view what);

/// e2m1 codes, cols/2 bytes, even column in the low nibble, and cols/32 E8M0 scales.
void encode_fp4_row(std::span<const float> values, std::span<const float> importance, std::byte* codes,
                    std::byte* scales);

/// e4m3 codes, a byte a column, and cols/32 E8M0 scales (MLX mxfp8). A scale is the smallest that clips
/// nothing: e4m3 rounds relative to the value, so that a larger one only costs small values their bits.
void encode_fp8_row(std::span<const float> values, std::byte* codes, std::byte* scales);

struct Fp8TileRow {
  const float* values;  // [rows, cols], row-major
  int64_t rows;         // 1 to 32; fewer than 32 only at the lower edge of the matrix
  int64_t cols;         // the last tile may be partial
};
/// One row of 32x32 tiles: e4m3 codes [rows, cols] and ceil(cols/32) E8M0 scales.
void encode_fp8_tiles(const Fp8TileRow& tiles, std::byte* codes, std::byte* scales);

struct AffineRow {
  std::byte* codes;   // cols / 8 * bits bytes
  std::byte* scales;  // [cols/group] of scale_type
  std::byte* biases;  // likewise
  DType scale_type = DType::kBF16;  // F32, F16 or BF16
  int bits = 4;       // 2, 3, 4, 5, 6 or 8
  int group = 64;     // 32, 64 or 128
};
void encode_affine_row(std::span<const float> values, std::span<const float> importance,
                       const AffineRow& out);

// Repacking of one row, to the bit and in both directions; `cols` is a multiple of 32. The one difference
// is in reading: e2m1 code 8 is -0 in FP4 rows and +0 in MXFP4.
void repack_fp4_as_mxfp4(const std::byte* codes, const std::byte* scales, int64_t cols, std::byte* blocks);
void repack_mxfp4_as_fp4(const std::byte* blocks, int64_t cols, std::byte* codes, std::byte* scales);

/// Scales of FP8 tiles [ceil(rows/32), cols/32] as scales of rows [rows, cols/32]. The codes stay the same.
void repeat_fp8_tile_scales(const std::byte* tile_scales, int64_t rows, int64_t scale_cols,
                            std::byte* row_scales);

}  // namespace fathom
