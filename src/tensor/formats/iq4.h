// IQ4_NL and IQ4_XS: 4-bit codes into sixteen fixed levels. docs/formats/blocks.md, "IQ formats".
#pragma once

#include <cstdint>

namespace fathom {

void decode_iq4_nl(const uint8_t* block, float* out);  // 18 bytes, 32 elements
void decode_iq4_xs(const uint8_t* block, float* out);  // 136 bytes, 256 elements

}  // namespace fathom
