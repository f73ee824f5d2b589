// e2m1 codes under E8M0 scales: GGUF's MXFP4 blocks and the rows of the official checkpoint and of MLX.
// docs/formats/blocks.md, "FP4".
#pragma once

#include <cstdint>

namespace fathom {

/// 17 bytes hold 32 elements; the low nibbles are elements 0..15, the high ones 16..31.
void decode_mxfp4(const uint8_t* block, float* out);

/// `cols` columns, a multiple of 32, from cols/2 bytes of codes (even column in the low nibble) and cols/32
/// scales.
void decode_fp4_row(const uint8_t* codes, const uint8_t* scales, int64_t cols, float* out);

}  // namespace fathom
