#include "tensor/formats/iq_grids.h"

#include "tensor/formats/codebooks.h"
#include "tensor/formats/little_endian.h"

namespace fathom {
namespace {

// out[j] = scale * grid[j], negated where bit j of `signs` is set.
void write_signed(const int8_t* grid, int count, float scale, int signs, float* out) {
  for (int element = 0; element < count; ++element) {
    const float magnitude = scale * static_cast<float>(grid[element]);
    out[element] = ((signs >> element) & 1) != 0 ? -magnitude : magnitude;
  }
}

float quarter_scale(float d, int code) { return d * (0.5f + static_cast<float>(code)) * 0.25f; }

void write_iq1(int index, float scale, bool minus_delta, float* out) {
  const float delta = minus_delta ? -0.125f : 0.125f;
  for (int element = 0; element < 8; ++element)
    out[element] = scale * (static_cast<float>(kIq1Grid.value[index][element]) + delta);
}

}  // namespace

void decode_iq1_s(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const int qh = load_u16(block + 34 + 2 * group);
    const float scale = d * static_cast<float>(2 * ((qh >> 12) & 7) + 1);
    for (int run = 0; run < 4; ++run) {
      const int index = block[2 + 4 * group + run] | ((qh >> (3 * run)) & 7) << 8;
      write_iq1(index, scale, (qh & 0x8000) != 0, out + 32 * group + 8 * run);
    }
  }
}

void decode_iq1_m(const uint8_t* block, float* out) {
  const uint8_t* scales = block + 48;
  int half = 0;
  for (int word = 0; word < 4; ++word) half |= (load_u16(scales + 2 * word) >> 12) << (4 * word);
  const float d = float_from_f16(static_cast<uint16_t>(half));
  for (int run = 0; run < 32; ++run) {
    const int group = run / 2;
    const int code = (load_u16(scales + 2 * (group / 4)) >> (3 * (group % 4))) & 7;
    const int high = nibble(block[32 + group], run % 2);
    const float scale = d * static_cast<float>(2 * code + 1);
    write_iq1(block[run] | (high & 7) << 8, scale, (high & 8) != 0, out + 8 * run);
  }
}

void decode_iq2_xxs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* indices = block + 2 + 8 * group;
    const uint32_t tail = load_u32(indices + 4);
    const float scale = quarter_scale(d, static_cast<int>(tail >> 28));
    for (int run = 0; run < 4; ++run) {
      const int signs = kIqEvenSigns.value[(tail >> (7 * run)) & 127];
      write_signed(kIq2XxsGrid.value[indices[run]], 8, scale, signs, out + 32 * group + 8 * run);
    }
  }
}

void decode_iq2_xs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int run = 0; run < 32; ++run) {
    const int code = load_u16(block + 2 + 2 * run);
    const float scale = quarter_scale(d, nibble(block[66 + run / 4], run / 2 % 2));
    write_signed(kIq2XsGrid.value[code & 511], 8, scale, kIqEvenSigns.value[code >> 9], out + 8 * run);
  }
}

void decode_iq2_s(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int run = 0; run < 32; ++run) {
    const int high = (block[66 + run / 4] >> (2 * (run % 4))) & 3;
    const int index = block[2 + run] | high << 8;
    const float scale = quarter_scale(d, nibble(block[74 + run / 4], run / 2 % 2));
    write_signed(kIq2SGrid.value[index], 8, scale, block[34 + run], out + 8 * run);
  }
}

void decode_iq3_xxs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const uint32_t tail = load_u32(block + 66 + 4 * group);
    const float scale = d * (0.5f + static_cast<float>(tail >> 28)) * 0.5f;
    for (int run = 0; run < 8; ++run) {
      const int signs = kIqEvenSigns.value[(tail >> (7 * (run / 2))) & 127] >> (4 * (run % 2));
      const int8_t* grid = kIq3XxsGrid.value[block[2 + 8 * group + run]];
      write_signed(grid, 4, scale, signs, out + 32 * group + 4 * run);
    }
  }
}

void decode_iq3_s(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(1 + 2 * nibble(block[106 + group / 2], group % 2));
    for (int run = 0; run < 8; ++run) {
      const int index = block[2 + 8 * group + run] | ((block[66 + group] >> run) & 1) << 8;
      const int signs = block[74 + 4 * group + run / 2] >> (4 * (run % 2));
      write_signed(kIq3SGrid.value[index], 4, scale, signs, out + 32 * group + 4 * run);
    }
  }
}

}  // namespace fathom
