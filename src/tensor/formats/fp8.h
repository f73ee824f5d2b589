// e4m3 codes under E8M0 scales: tiles of the official checkpoint and rows of MLX's mxfp8.
// docs/formats/blocks.md, "FP8".
#pragma once

#include <cstdint>

namespace fathom {

/// `cols` columns from as many codes and ceil(cols/32) scales. For tiles, `scales` is the row of scales of
/// the tile row.
void decode_fp8_row(const uint8_t* codes, const uint8_t* scales, int64_t cols, float* out);

}  // namespace fathom
