#include "tensor/formats/fp8.h"

#include "base/float_types.h"

namespace fathom {

void decode_fp8_row(const uint8_t* codes, const uint8_t* scales, int64_t cols, float* out) {
  for (int64_t col = 0; col < cols; ++col)
    out[col] = float_from_e4m3(codes[col]) * float_from_e8m0(scales[col / 32]);
}

}  // namespace fathom
