// How units of 256 columns are taken apart: which bits become which word of which vector.
//
// A block is eight vectors of 32 codes, and a lane (two words) belongs to one sub-block in all eight. So the
// eight products of a block are summed first and scaled once, by a vector with the scale of each lane's
// sub-block. Vectors 2a and 2a + 1 come from one source, in which every lane holds the four bytes of its
// sub-block's columns 4a to 4a + 3: a rotation brings their bits to the low end of the bytes, and the first and
// the third byte are words of the one vector, the second and the fourth of the other.
#pragma once

#include <stdint.h>

#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

struct Layout {
  alignas(64) uint32_t low_index[4][16];   // four bytes of the low bits, by source and lane
  alignas(64) uint32_t high_index[4][16];  // and of the high bits
  alignas(64) uint32_t low_shift[16];  // rotation by lane
  alignas(64) uint32_t high_shift[16];
  uint8_t sub_block[16];  // of a lane
  uint8_t column[256];    // of a word
};

// Lane `lane`: its bytes begin at number `low` (or `high`) of the groups of four, its codes are rotated down
// by `low_bit`; its first column.
struct Place {
  int low, low_bit, high, high_bit, column;
};
constexpr Place place_of(enum Encoding encoding, int lane) {
  // Sub-blocks of 16 columns: half h of the block, group g of 32 columns, second 16 columns s.
  const int h = lane / 8, g = lane / 2 % 4, s = lane % 2, column = 128 * h + 32 * g + 16 * s;
  // Sub-blocks of 32 columns, two lanes each.
  const int sub = lane / 2;
  switch (encoding) {
    case kEncodingQ2K: return {8 * h + 4 * s, 2 * g, 0, 0, column};
    case kEncodingQ3K: return {8 * h + 4 * s, 2 * g, 4 * s, 4 * h + g - 2, column};
    case kEncodingQ4K: return {8 * (sub / 2) + 4 * s, 4 * (sub % 2), 0, 0, 16 * lane};
    case kEncodingQ5K: return {8 * (sub / 2) + 4 * s, 4 * (sub % 2), 4 * s, sub - 4, 16 * lane};
    case kEncodingQ6K: return {16 * h + 8 * (g % 2) + 4 * s, 4 * (g / 2), 8 * h + 4 * s, 2 * g - 4, column};
    // Two halves of two times 32 columns make a lane's number within 128 bits, so that a transposition gathers.
    case kEncodingQ8_0: return {0, 0, 0, 0, 64 * (lane % 4) + 16 * (lane / 4)};
    default: return {4 * sub, 4 * s, 0, 0, 16 * lane};  // IQ4_XS and IQ4_NL
  }
}

constexpr int columns_a_sub_block(enum Encoding encoding) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ3K || encoding == kEncodingQ6K ? 16 : 32;
}

constexpr Layout layout_of(enum Encoding encoding) {
  Layout layout{};
  for (int lane = 0; lane < 16; ++lane) {
    const Place place = place_of(encoding, lane);
    layout.sub_block[lane] = (uint8_t)(place.column / columns_a_sub_block(encoding));
    layout.low_shift[lane] = (uint32_t)place.low_bit & 31;
    layout.high_shift[lane] = (uint32_t)place.high_bit & 31;
    for (int source = 0; source < 4; ++source) {
      layout.low_index[source][lane] = (uint32_t)(place.low + source);
      layout.high_index[source][lane] = (uint32_t)(place.high + source);
      for (int byte = 0; byte < 4; ++byte) {
        const int vector = 2 * source + byte % 2;
        layout.column[32 * vector + 2 * lane + byte / 2] = (uint8_t)(place.column + 4 * source + byte);
      }
    }
  }
  return layout;
}

// IQ2_XXS is taken apart otherwise (grids.h): a word is a run of eight columns, a vector an element of them.
constexpr Layout iq2_xxs_layout() {
  Layout layout{};
  for (int word = 0; word < 32; ++word)
    for (int j = 0; j < 8; ++j) layout.column[32 * j + word] = (uint8_t)(8 * word + j);
  return layout;
}

constexpr Layout kQ2Layout = layout_of(kEncodingQ2K);
constexpr Layout kQ3Layout = layout_of(kEncodingQ3K);
constexpr Layout kQ4Layout = layout_of(kEncodingQ4K);
constexpr Layout kQ5Layout = layout_of(kEncodingQ5K);
constexpr Layout kQ6Layout = layout_of(kEncodingQ6K);
constexpr Layout kIq4Layout = layout_of(kEncodingIq4Xs);
constexpr Layout kQ8Layout = layout_of(kEncodingQ8_0);
constexpr Layout kIq2XxsLayout = iq2_xxs_layout();

FATHOM_INLINE const Layout* layout(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingQ2K: return &kQ2Layout;
    case kEncodingQ3K: return &kQ3Layout;
    case kEncodingQ4K: return &kQ4Layout;
    case kEncodingQ5K: return &kQ5Layout;
    case kEncodingQ6K: return &kQ6Layout;
    case kEncodingIq4Xs:
    case kEncodingIq4Nl: return &kIq4Layout;
    case kEncodingQ8_0: return &kQ8Layout;
    default: return &kIq2XxsLayout;
  }
}

}  // namespace
}  // namespace fathom::cpu
