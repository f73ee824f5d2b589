#include "tensor/formats/affine.h"

namespace fathom {

void decode_affine_group(const AffineGroup& group, float* out) {
  for (int element = 0; element < group.count; ++element) {
    const int bit = element * group.bits;
    const int shift = bit % 8;
    uint32_t window = group.codes[bit / 8];
    // A second byte is read only where the code reaches into it: the last code ends the row.
    if (shift + group.bits > 8) window |= uint32_t{group.codes[bit / 8 + 1]} << 8;
    const uint32_t code = (window >> shift) & ((1u << group.bits) - 1);
    out[element] = group.scale * static_cast<float>(code) + group.bias;
  }
}

}  // namespace fathom
