// Rows of Engram tables. Values are rounded to bfloat16 after decoding.
// docs/formats/blocks.md, "Engram rows".
#pragma once

#include <cstdint>

namespace fathom {

/// `width` columns, a multiple of 32, from as many e4m3 codes and width/32 E8M0 scales, which may lie in
/// different tensors or one behind the other (264 bytes for 256 columns). False if a code is NaN (0x7F, 0xFF)
/// or a scale is (255): no writer makes such a row, so the bytes are not a row. `out` is filled anyway.
bool decode_engram_row_fp8(const uint8_t* codes, const uint8_t* scales, int64_t width, float* out);

/// lloyd4_e5m3_32_r136: 256 columns from 128 bytes of 4-bit codes and 8 scale bytes. Every byte is valid.
void decode_engram_row_lloyd4(const uint8_t* row, float* out);

}  // namespace fathom
