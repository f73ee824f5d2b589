#include "tensor/formats/engram_row.h"

#include "tensor/formats/fp8.h"
#include "tensor/formats/little_endian.h"

namespace fathom {
namespace {

constexpr float kLloyd4Levels[8] = {0.0f, 0.095f, 0.1901f, 0.2944f, 0.4126f, 0.5586f, 0.7484f, 1.0f};

// e5m3: (8 + mantissa) / 16 * 2^(exponent - 16). 2^-16 at the least, so always a normal float32.
float lloyd4_scale(uint8_t byte) {
  const float mantissa = static_cast<float>(8 + (byte & 7)) / 16.0f;
  return mantissa * float_from_e8m0(static_cast<uint8_t>((byte >> 3) - 16 + 127));
}

}  // namespace

bool decode_engram_row_fp8(const uint8_t* codes, const uint8_t* scales, int64_t width, float* out) {
  bool valid = true;
  for (int64_t col = 0; col < width; ++col) valid = valid && (codes[col] & 0x7F) != 0x7F;
  for (int64_t group = 0; group < width / 32; ++group) valid = valid && scales[group] != 255;
  decode_fp8_row(codes, scales, width, out);
  for (int64_t col = 0; col < width; ++col) out[col] = round_to_bf16(out[col]);
  return valid;
}

void decode_engram_row_lloyd4(const uint8_t* row, float* out) {
  for (int col = 0; col < 256; ++col) {
    const int code = nibble(row[col / 2], col % 2);
    const float level = (code & 8) != 0 ? -kLloyd4Levels[code & 7] : kLloyd4Levels[code & 7];
    out[col] = round_to_bf16(level * lloyd4_scale(row[128 + col / 32]));
  }
}

}  // namespace fathom
