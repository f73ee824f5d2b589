// MLX affine groups: codes of 2 to 8 bits in a bit stream, one scale and one bias for all of them.
// docs/formats/blocks.md, "Affine".
#pragma once

#include <cstdint>

namespace fathom {

struct AffineGroup {
  const uint8_t* codes;  // count * bits / 8 bytes, little-endian bit stream
  float scale;           // either sign
  float bias;
  int bits;   // 2, 3, 4, 5, 6 or 8
  int count;  // 32, 64 or 128
};
void decode_affine_group(const AffineGroup& group, float* out);

}  // namespace fathom
