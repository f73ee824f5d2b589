#include "tensor/formats/q8_0.h"

#include "tensor/formats/little_endian.h"

namespace fathom {

void decode_q8_0(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int element = 0; element < 32; ++element)
    out[element] = static_cast<float>(static_cast<int8_t>(block[2 + element])) * d;
}

}  // namespace fathom
