#include "tensor/formats/fp4.h"

#include "tensor/formats/little_endian.h"

namespace fathom {

void decode_mxfp4(const uint8_t* block, float* out) {
  const float scale = float_from_e8m0(block[0]);
  for (int element = 0; element < 32; ++element) {
    const int code = nibble(block[1 + element % 16], element / 16);
    // GGUF takes the codes as integers, which have one zero: code 8 is +0 here and -0 in decode_fp4_row().
    out[element] = code == 8 ? 0.0f * scale : float_from_e2m1(static_cast<uint8_t>(code)) * scale;
  }
}

void decode_fp4_row(const uint8_t* codes, const uint8_t* scales, int64_t cols, float* out) {
  for (int64_t col = 0; col < cols; ++col) {
    const int code = nibble(codes[col / 2], static_cast<int>(col % 2));
    out[col] = float_from_e2m1(static_cast<uint8_t>(code)) * float_from_e8m0(scales[col / 32]);
  }
}

}  // namespace fathom
