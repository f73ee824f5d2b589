// Encoder of MLX affine groups.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace fathom {

struct AffineGroupOut {
  uint8_t* codes;   // group * bits / 8 bytes
  uint8_t* scale;   // one element of scale_type
  uint8_t* bias;
  DType scale_type;
  int bits;
  int group;  // 32, 64 or 128
};
/// `weights` has a positive weight for each of the group's values.
void encode_affine_group(const float* values, const float* weights, const AffineGroupOut& out);

}  // namespace fathom
