// A block of weight rows times activation rows, the piece that every matrix product is cut into.
#pragma once

#include "cpu/context.h"

namespace fathom::cpu {

/// Weight rows that a task decodes at once; the panel of 16 rows of 5120 columns fits the second cache.
constexpr int64_t kPanelRows = 16;

/// out[m][w] = weight row (first_row + w) . in[m], for `count` weight rows and every m.
/// The same bits whatever `count`, `rows.rows` and the encoding's path are.
void multiply_rows(const Kernels& kernels, Scratch& scratch, const WeightMatrix& weight, int64_t first_row,
                   int64_t count, const DotRows& rows);

/// Rows of activations that one task should take: what fits the second cache beside the panel.
int64_t activation_block_rows(int64_t cols);

}  // namespace fathom::cpu
