// Encoders of IQ2_XXS and IQ3_XXS. `weights` has a positive weight for each of the 256 values.
#pragma once

#include <cstdint>

namespace fathom {

void encode_iq2_xxs(const float* values, const float* weights, uint8_t* block);
void encode_iq3_xxs(const float* values, const float* weights, uint8_t* block);

}  // namespace fathom
