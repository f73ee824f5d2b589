// The K formats: blocks of 256 elements with a two-level scale. docs/formats/blocks.md, "K formats".
#pragma once

#include <cstdint>

namespace fathom {

void decode_q2_k(const uint8_t* block, float* out);  // 84 bytes
void decode_q3_k(const uint8_t* block, float* out);  // 110 bytes
void decode_q4_k(const uint8_t* block, float* out);  // 144 bytes
void decode_q5_k(const uint8_t* block, float* out);  // 176 bytes
void decode_q6_k(const uint8_t* block, float* out);  // 210 bytes

}  // namespace fathom
