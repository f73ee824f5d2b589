// A block of weight rows times activation rows, the piece that every matrix product is cut into.
#pragma once

#include "cpu/context.h"

namespace fathom::cpu {

/// Weight rows that a task decodes at once; the panel of 16 rows of 5120 columns fits the second cache.
constexpr int64_t kPanelRows = 16;

/// Activation rows that stand side by side where the instruction set multiplies tiles.
constexpr int64_t kTileRows = 16;

/// Activation rows in the form of one encoding, for products in bfloat16; empty where there are none.
struct PreparedRows {
  DType type = DType::kF32;  // of the weights they are for
  const uint8_t* data = nullptr;
  int64_t row_bytes = 0;
  int64_t group_tiles = 0;  // of 16 rows; 0: rows stand alone

  bool is_tiled() const { return group_tiles != 0; }
  const uint8_t* row(int64_t index) const { return data + index * row_bytes; }
  const uint8_t* tile(int64_t group, int64_t row) const {
    return data + (group * group_tiles + row / kTileRows) * kTileRows * row_bytes;
  }
  /// Whether they are for such weights. Depends on the weights only, so every row takes the same path.
  bool fit(const WeightMatrix& weight) const { return data != nullptr && weight.type == type; }
};

/// Whether products with the weight, of activations that are bfloat16 numbers, are products of tiles.
bool multiplies_tiles(const Kernels& kernels, const WeightMatrix& weight);

/// Prepares `rows` rows of [weight.cols], whose values must be bfloat16 numbers. Empty if the kernels have no
/// such product for the weight.
PreparedRows prepare_rows(const Context& context, const WeightMatrix& weight, const float* in, int64_t rows,
                          Buffer<uint8_t>& memory);

/// The same, for products of tiles, of `groups` groups of `rows` rows, row after row of all groups, in tiles of
/// one group each.
PreparedRows prepare_tiles(const Context& context, const WeightMatrix& weight, const float* in, int64_t rows,
                           int64_t groups, Buffer<uint8_t>& memory);

/// out[m][w] = weight row (first_row + w) . in[m], for `count` weight rows and every m. `prepared`: the same
/// rows prepared for this weight (for every row its tile, if `is_tiled`), or null to multiply in float32.
/// The same bits whatever `count`, `rows.rows` and the encoding's path are.
void multiply_rows(const Kernels& kernels, Scratch& scratch, const WeightMatrix& weight, int64_t first_row,
                   int64_t count, const DotRows& rows, const uint8_t* const* prepared,
                   bool is_tiled = false);

/// Rows of activations that one task should take: what fits the second cache beside the panel.
int64_t activation_block_rows(int64_t cols);

}  // namespace fathom::cpu
