// Encoders of the K formats and of IQ4_XS, whose blocks of 256 have scales on two levels.
// `weights` has a positive weight for each of the 256 values.
#pragma once

#include <cstdint>

namespace fathom {

void encode_q2_k(const float* values, const float* weights, uint8_t* block);
void encode_q3_k(const float* values, const float* weights, uint8_t* block);
void encode_q4_k(const float* values, const float* weights, uint8_t* block);
void encode_q5_k(const float* values, const float* weights, uint8_t* block);
void encode_q6_k(const float* values, const float* weights, uint8_t* block);
void encode_iq4_xs(const float* values, const float* weights, uint8_t* block);

}  // namespace fathom
