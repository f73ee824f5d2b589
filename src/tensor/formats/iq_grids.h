// The IQ1, IQ2 and IQ3 formats: blocks of 256 elements whose codes are indices into grids
// (formats/codebooks.h). docs/formats/blocks.md, "IQ formats".
#pragma once

#include <cstdint>

namespace fathom {

void decode_iq1_s(const uint8_t* block, float* out);    // 50 bytes
void decode_iq1_m(const uint8_t* block, float* out);    // 56 bytes
void decode_iq2_xxs(const uint8_t* block, float* out);  // 66 bytes
void decode_iq2_xs(const uint8_t* block, float* out);   // 74 bytes
void decode_iq2_s(const uint8_t* block, float* out);    // 82 bytes
void decode_iq3_xxs(const uint8_t* block, float* out);  // 98 bytes
void decode_iq3_s(const uint8_t* block, float* out);    // 110 bytes

}  // namespace fathom
