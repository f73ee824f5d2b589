// Q8_0: 34 bytes hold 32 elements. docs/formats/blocks.md, "Q8_0".
#pragma once

#include <cstdint>

namespace fathom {

void decode_q8_0(const uint8_t* block, float* out);

}  // namespace fathom
