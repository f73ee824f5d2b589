// Encoders of blocks of 32: Q8_0, IQ4_NL and the e2m1 and e4m3 codes under E8M0 scales.
// `weights` has a positive weight for each of the 32 values.
#pragma once

#include <cstdint>

namespace fathom {

void encode_q8_0(const float* values, const float* weights, uint8_t* block);
void encode_iq4_nl(const float* values, const float* weights, uint8_t* block);
void encode_mxfp4(const float* values, const float* weights, uint8_t* block);

/// Sixteen bytes with the even column in the low nibble; returns the scale.
uint8_t encode_fp4_group(const float* values, const float* weights, uint8_t* codes);

/// Smallest E8M0 scale at which no magnitude up to `largest` saturates e4m3.
uint8_t fp8_scale(float largest);
/// e4m3 codes of `count` values under a scale.
void encode_fp8_codes(const float* values, int64_t count, uint8_t scale, uint8_t* codes);

}  // namespace fathom
