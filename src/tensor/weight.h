// A stored matrix, as it lies in the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace fathom {

/// One matrix [rows, cols], row-major, rows = outputs. A view: it owns nothing, and is valid as long as the
/// store it came from. Addresses may be unaligned. Plain vectors are matrices of one row.
struct WeightMatrix {
  DType type = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  // row r starts at data + r * row_bytes
  int64_t row_bytes = 0;

  // kFp8Tile32: scale row r/32, E8M0 [ceil(rows/32), ceil(cols/32)].
  // kFp8Row32, kFp4Row32: scale row r, E8M0 [rows, cols/32].
  // kAffine: scale row r, [rows, cols/group] of `scale_type` (F32, F16 or BF16); biases alike.
  const std::byte* scales = nullptr;
  int64_t scale_row_bytes = 0;
  const std::byte* biases = nullptr;
  int64_t bias_row_bytes = 0;
  DType scale_type = DType::kF8E8M0;
  uint16_t bits = 0;   // kAffine: 2, 3, 4, 5, 6 or 8
  uint16_t group = 0;  // kAffine: 32, 64 or 128

  bool empty() const { return data == nullptr; }
};

/// Bytes a matrix of `cols` columns takes per row in `type`, without scales that stand apart. 0 if `cols` is
/// not a whole number of blocks. kAffine needs `bits`.
int64_t row_bytes_of(DType type, int64_t cols, int bits = 0);

/// Whether decode_row() has a meaning for the type. Integers, booleans and bare e4m3 or E8M0 bytes are not
/// weights: a loader refuses them, or gives them a type that says where their scales are.
bool is_weight_type(DType type);

/// All bytes that reading the whole matrix touches: data, scales and biases.
int64_t weight_bytes(const WeightMatrix& weight);

/// The definition of every encoding: columns [0, cols) of row `row` as float32, in plain scalar arithmetic
/// in the order given in docs/formats/blocks.md. No rounding to bfloat16 except for Engram rows. An Engram
/// row with a NaN code or scale decodes to NaN there; formats/engram_row.h tells such rows apart. From any
/// thread.
void decode_row(const WeightMatrix& weight, int64_t row, float* out);

}  // namespace fathom
