// Weights that no arithmetic survives.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/weight.h"

namespace fathom {

/// First row of the matrix with a value that is not finite: an E8M0 scale of 255, an e4m3 code 0x7F, a half or
/// bfloat16 or float that is infinite or NaN. Nothing if all rows are usable. Reads codes and scales only, at
/// about the speed of memory; for 32x32 tiles the row is the first of its tile.
std::optional<int64_t> first_unusable_row(const WeightMatrix& weight);

}  // namespace fathom
