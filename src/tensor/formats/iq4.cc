#include "tensor/formats/iq4.h"

#include "tensor/formats/codebooks.h"
#include "tensor/formats/little_endian.h"

namespace fathom {
namespace {

// 32 elements in 16 bytes: low nibbles first.
void write_levels(const uint8_t* qs, float scale, float* out) {
  for (int element = 0; element < 32; ++element)
    out[element] = scale * static_cast<float>(kIq4Levels[nibble(qs[element % 16], element / 16)]);
}

}  // namespace

void decode_iq4_nl(const uint8_t* block, float* out) { write_levels(block + 2, load_f16(block), out); }

void decode_iq4_xs(const uint8_t* block, float* out) {
  const float d = load_f16(block);
  const int scales_h = load_u16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int code = nibble(block[4 + group / 2], group % 2) | ((scales_h >> (2 * group)) & 3) << 4;
    write_levels(block + 8 + 16 * group, d * static_cast<float>(code - 32), out + 32 * group);
  }
}

}  // namespace fathom
