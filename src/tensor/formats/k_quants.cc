#include "tensor/formats/k_quants.h"

#include "tensor/formats/little_endian.h"

namespace fathom {
namespace {

// Scale and minimum of one of the eight sub-blocks of Q4_K and Q5_K, six bits each in twelve bytes.
struct ScaleAndMin {
  int scale;
  int min;
};
ScaleAndMin scale_and_min(const uint8_t* scales, int sub_block) {
  if (sub_block < 4) return {scales[sub_block] & 63, scales[sub_block + 4] & 63};
  const uint8_t low = scales[sub_block + 4];
  return {(low & 15) | (scales[sub_block - 4] >> 6) << 4, (low >> 4) | (scales[sub_block] >> 6) << 4};
}

}  // namespace

void decode_q2_k(const uint8_t* block, float* out) {
  const uint8_t* scales = block;
  const uint8_t* qs = block + 16;
  const float d = load_f16(block + 80);
  const float dmin = load_f16(block + 82);
  for (int element = 0; element < 256; ++element) {
    const int half = element / 128;
    const int q = (qs[32 * half + element % 32] >> (2 * (element / 32 % 4))) & 3;
    const uint8_t scale = scales[element / 16];
    out[element] = (d * static_cast<float>(scale & 15)) * static_cast<float>(q) -
                   dmin * static_cast<float>(scale >> 4);
  }
}

void decode_q3_k(const uint8_t* block, float* out) {
  const uint8_t* hmask = block;
  const uint8_t* qs = block + 32;
  const uint8_t* scales = block + 96;
  const float d = load_f16(block + 108);
  for (int element = 0; element < 256; ++element) {
    const int sub_block = element / 16;
    const int scale = nibble(scales[sub_block % 8], sub_block / 8) |
                      ((scales[8 + sub_block % 4] >> (2 * (sub_block / 4))) & 3) << 4;
    const int half = element / 128;
    const int low = (qs[32 * half + element % 32] >> (2 * (element / 32 % 4))) & 3;
    const bool high = ((hmask[element % 32] >> (element / 32)) & 1) != 0;
    out[element] = (d * static_cast<float>(scale - 32)) * static_cast<float>(low - (high ? 0 : 4));
  }
}

void decode_q4_k(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const uint8_t* qs = block + 16;
  for (int sub_block = 0; sub_block < 8; ++sub_block) {
    const auto [scale, min] = scale_and_min(block + 4, sub_block);
    const float step = d * static_cast<float>(scale);
    const float floor = dmin * static_cast<float>(min);
    for (int element = 0; element < 32; ++element) {
      const int q = nibble(qs[32 * (sub_block / 2) + element], sub_block % 2);
      out[32 * sub_block + element] = step * static_cast<float>(q) - floor;
    }
  }
}

void decode_q5_k(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const uint8_t* qh = block + 16;
  const uint8_t* qs = block + 48;
  for (int sub_block = 0; sub_block < 8; ++sub_block) {
    const auto [scale, min] = scale_and_min(block + 4, sub_block);
    const float step = d * static_cast<float>(scale);
    const float floor = dmin * static_cast<float>(min);
    for (int element = 0; element < 32; ++element) {
      const int low = nibble(qs[32 * (sub_block / 2) + element], sub_block % 2);
      const int high = (qh[element] >> sub_block) & 1;
      out[32 * sub_block + element] = step * static_cast<float>(low | high << 4) - floor;
    }
  }
}

void decode_q6_k(const uint8_t* block, float* out) {
  const float d = load_f16(block + 208);
  for (int element = 0; element < 256; ++element) {
    const int half = element / 128;
    const int quarter = element / 32 % 4;
    const int low = nibble(block[64 * half + 32 * (quarter % 2) + element % 32], quarter / 2);
    const int high = (block[128 + 32 * half + element % 32] >> (2 * quarter)) & 3;
    const int8_t scale = static_cast<int8_t>(block[192 + element / 16]);
    out[element] = (d * static_cast<float>(scale)) * static_cast<float>((low | high << 4) - 32);
  }
}

}  // namespace fathom
