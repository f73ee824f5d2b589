// Panels of the direct kinds times many prepared activation rows; the order of summation is bf16_dot.h's.
#pragma once

#include "cpu/avx512/bf16_dot.h"

namespace fathom::cpu {
namespace {

enum { kBf16TileRows = 6 };

FATHOM_INLINE void store_bf16_tile(__m512 (*sums)[kBf16TileRows], const int weights, const int rows,
                                   float* const* out, int64_t weight) {
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    if (weights == 4)
      store_sums4(out[r] + weight, sums[0][r], sums[1][r], sums[2][r], sums[3][r]);
    else
      out[r][weight] = f_sum(sums[0][r]);
  }
}

FATHOM_INLINE void bf16_tile(const struct Bf16Panel* panel, int64_t weight, const int weights,
                             const struct Bf16Rows* in, int64_t first, const int rows) {
  const uint8_t* const* x = in->in + first;
  __m512 sums[4][kBf16TileRows];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  const uint8_t* codes = panel->data + weight * panel->row_bytes;
  for (int64_t at = 0; at < panel->row_bytes; at += 64, codes += 64) {
    __m512i activation[kBf16TileRows];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) activation[r] = load64(x[r] + at);
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const __m512i one = load64(codes + w * panel->row_bytes);
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) sums[w][r] = dot_pairs(sums[w][r], one, activation[r]);
    }
  }
  store_bf16_tile(sums, weights, rows, in->out + first, weight);
}

FATHOM_INLINE void bf16_strip(const struct Bf16Panel* panel, int64_t weight, const int weights,
                              const struct Bf16Rows* in) {
  int64_t r = 0;
  for (; r + kBf16TileRows <= in->rows; r += kBf16TileRows)
    bf16_tile(panel, weight, weights, in, r, kBf16TileRows);
  switch (in->rows - r) {
    case 1: return bf16_tile(panel, weight, weights, in, r, 1);
    case 2: return bf16_tile(panel, weight, weights, in, r, 2);
    case 3: return bf16_tile(panel, weight, weights, in, r, 3);
    case 4: return bf16_tile(panel, weight, weights, in, r, 4);
    case 5: return bf16_tile(panel, weight, weights, in, r, 5);
    default: return;
  }
}

static void bf16_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* in) {
  int64_t weight = 0;
  for (; weight + 4 <= panel->rows; weight += 4) bf16_strip(panel, weight, 4, in);
  for (; weight < panel->rows; ++weight) bf16_strip(panel, weight, 1, in);
}

}  // namespace
}  // namespace fathom::cpu
