// How the blocks of 256 columns are taken apart: which bits become which word of which vector.
//
// A block is eight vectors of 32 codes, and a lane (two words) belongs to one sub-block in all eight. So the
// eight products of a block are summed first and scaled once, by a vector with the scale of each lane's
// sub-block. vpmultishiftqb picks a code for every word from the quadword it lies in.
#pragma once

#include <stdint.h>

#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

struct Layout {
  alignas(64) uint64_t low_index[4][8];   // quadword of the low bits, by source and output quadword
  alignas(64) uint64_t high_index[4][8];  // and of the high bits
  alignas(64) uint8_t low_shift[8][64];   // first bit, by vector and byte; of a word the low byte counts
  alignas(64) uint8_t high_shift[8][64];
  uint8_t sub_block[16];  // of a lane
  uint8_t column[256];    // of a word
};

struct Place {
  int low_qword, low_bit, high_qword, high_bit, column;
};

// Word `k` (0..3) of output quadword `q` of vector `j`.
constexpr Place place_of(enum Encoding encoding, int j, int q, int k) {
  // Sub-blocks of 16: lane = (half h, second 16 columns s, two of the four groups of 32), vector = column pair.
  const int h = q / 4, s = q / 2 % 2, column = 16 * s + 2 * j + k % 2, byte = 2 * (j % 4) + k % 2;
  const int pair = 2 * (q % 2) + k / 2;   // group of 32, Q2_K and Q3_K
  const int group = q % 2 + 2 * (k / 2);  // the same for Q6_K, whose low bits lie elsewhere
  // Sub-blocks of 32: q is the sub-block, vector = four columns.
  const int four = 4 * j + k;
  const int nibble = 4 * (j % 4) + k;
  switch (encoding) {
    case kEncodingQ2K: return {4 * h + 2 * s + j / 4, 8 * byte + 2 * pair, 0, 0, 128 * h + 32 * pair + column};
    case kEncodingQ3K:
      return {4 * h + 2 * s + j / 4, 8 * byte + 2 * pair, 2 * s + j / 4, 8 * byte + 4 * h + pair - 2,
              128 * h + 32 * pair + column};
    case kEncodingQ4K: return {4 * (q / 2) + j / 2, 8 * (four % 8) + 4 * (q % 2), 0, 0, 32 * q + four};
    case kEncodingQ5K:
      return {4 * (q / 2) + j / 2, 8 * (four % 8) + 4 * (q % 2), j / 2, 8 * (four % 8) + q - 4, 32 * q + four};
    case kEncodingQ6K:
      return {8 * h + 4 * (q % 2) + 2 * s + j / 4, 8 * byte + 4 * (k / 2), 4 * h + 2 * s + j / 4,
              8 * byte + 2 * group - 4, 128 * h + 32 * group + column};
    case kEncodingIq4Xs:
      return {2 * q + j / 4, 4 * nibble, 0, 0, 32 * q + 8 * (j / 4) + nibble / 2 + 16 * (nibble % 2)};
    default: return {0, 0, 0, 0, 32 * q + 8 * k + j};  // IQ2_XXS: word = run of eight, vector = its element
  }
}

// Vectors that share a source: eight by the number of sources.
constexpr int vectors_a_source(enum Encoding encoding) {
  return encoding == kEncodingQ4K || encoding == kEncodingQ5K ? 2 : 4;
}
constexpr int columns_a_sub_block(enum Encoding encoding) {
  return encoding == kEncodingQ2K || encoding == kEncodingQ3K || encoding == kEncodingQ6K ? 16 : 32;
}

constexpr Layout layout_of(enum Encoding encoding) {
  Layout layout{};
  for (int j = 0; j < 8; ++j) {
    const int source = j / vectors_a_source(encoding);
    for (int q = 0; q < 8; ++q) {
      for (int k = 0; k < 4; ++k) {
        const Place place = place_of(encoding, j, q, k);
        layout.low_index[source][q] = (uint64_t)place.low_qword;
        layout.high_index[source][q] = (uint64_t)place.high_qword;
        for (int byte = 0; byte < 2; ++byte) {
          layout.low_shift[j][8 * q + 2 * k + byte] = (uint8_t)(place.low_bit & 63);
          layout.high_shift[j][8 * q + 2 * k + byte] = (uint8_t)(place.high_bit & 63);
        }
        layout.column[32 * j + 4 * q + k] = (uint8_t)place.column;
        layout.sub_block[2 * q + k / 2] = (uint8_t)(place.column / columns_a_sub_block(encoding));
      }
    }
  }
  return layout;
}

constexpr Layout kQ2Layout = layout_of(kEncodingQ2K);
constexpr Layout kQ3Layout = layout_of(kEncodingQ3K);
constexpr Layout kQ4Layout = layout_of(kEncodingQ4K);
constexpr Layout kQ5Layout = layout_of(kEncodingQ5K);
constexpr Layout kQ6Layout = layout_of(kEncodingQ6K);
constexpr Layout kIq4XsLayout = layout_of(kEncodingIq4Xs);
constexpr Layout kIq2XxsLayout = layout_of(kEncodingIq2Xxs);

FATHOM_INLINE const Layout* layout(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingQ2K: return &kQ2Layout;
    case kEncodingQ3K: return &kQ3Layout;
    case kEncodingQ4K: return &kQ4Layout;
    case kEncodingQ5K: return &kQ5Layout;
    case kEncodingQ6K: return &kQ6Layout;
    case kEncodingIq4Xs: return &kIq4XsLayout;
    default: return &kIq2XxsLayout;
  }
}

}  // namespace
}  // namespace fathom::cpu
