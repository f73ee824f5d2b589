// A block of weight rows times activation rows, the piece that every matrix product is cut into.
#pragma once

#include "cpu/context.h"

namespace fathom::cpu {

/// Weight rows that a task decodes at once; the panel of 16 rows of 5120 columns fits the second cache.
constexpr int64_t kPanelRows = 16;

/// Activation rows in the form of one encoding, for products in bfloat16; empty where there are none.
struct PreparedRows {
  DType type = DType::kF32;  // of the weights they are for
  const uint8_t* data = nullptr;
  int64_t row_bytes = 0;

  const uint8_t* row(int64_t index) const { return data + index * row_bytes; }
  /// Whether they are for such weights. Depends on the weights only, so every row takes the same path.
  bool fit(const WeightMatrix& weight) const { return data != nullptr && weight.type == type; }
};

/// Prepares `rows` rows of [weight.cols], whose values must be bfloat16 numbers. Empty if the kernels have no
/// such product for the weight.
PreparedRows prepare_rows(const Context& context, const WeightMatrix& weight, const float* in, int64_t rows,
                          Buffer<uint8_t>& memory);

/// out[m][w] = weight row (first_row + w) . in[m], for `count` weight rows and every m. `prepared`: the same
/// rows prepared for this weight, or null to multiply in float32.
/// The same bits whatever `count`, `rows.rows` and the encoding's path are.
void multiply_rows(const Kernels& kernels, Scratch& scratch, const WeightMatrix& weight, int64_t first_row,
                   int64_t count, const DotRows& rows, const uint8_t* const* prepared);

/// Rows of activations that one task should take: what fits the second cache beside the panel.
int64_t activation_block_rows(int64_t cols);

}  // namespace fathom::cpu
