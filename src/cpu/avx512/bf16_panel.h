// Panels of decoded units times many prepared activation rows; the order of summation is bf16_dot.h's.
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

// Sums of the vectors of a unit, on top of what is there.
FATHOM_INLINE void add_vectors(const uint8_t* panel, int64_t panel_stride, const int weights,
                               const uint8_t* const* x, const int rows, int64_t at, const int vectors,
                               int64_t panel_at, __m512 (*sums)[kBf16TileRows]) {
#pragma GCC unroll 2
  for (int j = 0; j < vectors; ++j) {
    __m512i activation[kBf16TileRows];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) activation[r] = load64(x[r] + at + 64 * j);
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const __m512i codes = load64(panel + w * panel_stride + panel_at + 64 * j);
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) sums[w][r] = dot_pairs(sums[w][r], codes, activation[r]);
    }
  }
}

FATHOM_INLINE void direct_tile(const struct Bf16Panel* panel, int64_t weight, const int weights,
                               const uint8_t* const* x, const int rows, float* const* out) {
  __m512 sums[4][kBf16TileRows];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  const uint8_t* first = panel->data + weight * panel->row_bytes;
  for (int64_t at = 0; at < panel->row_bytes; at += 64)
    add_vectors(first, panel->row_bytes, weights, x, rows, at, 1, at, sums);
  store_bf16_tile(sums, weights, rows, out, weight);
}

FATHOM_INLINE void scaled_tile(const struct Bf16Panel* panel, int64_t weight, const int weights,
                               const uint8_t* const* x, const int rows, float* const* out,
                               const int vectors) {
  __m512 sums[4][kBf16TileRows];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  const int64_t stride = panel->row_bytes;
  const uint8_t* first = panel->data + weight * stride;
  const int64_t unit_bytes = 64 * (vectors + 1 + panel->has_floor);
  int64_t at = 0;
  for (int64_t panel_at = 0; panel_at < stride; panel_at += unit_bytes) {
    __m512 parts[4][kBf16TileRows];
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w)
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) parts[w][r] = _mm512_setzero_ps();
    add_vectors(first, stride, weights, x, rows, at, vectors, panel_at, parts);
    at += 64 * vectors;
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const float* scales = (const float*)(first + w * stride + panel_at + 64 * vectors);
      const __m512 scale = _mm512_loadu_ps(scales);
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_fmadd_ps(scale, parts[w][r], sums[w][r]);
      if (panel->has_floor) {
        const __m512 floor = _mm512_loadu_ps(scales + 16);
#pragma GCC unroll 6
        for (int r = 0; r < rows; ++r)
          sums[w][r] = _mm512_fnmadd_ps(floor, _mm512_loadu_ps((const float*)(x[r] + at)), sums[w][r]);
      }
    }
    if (panel->has_floor) at += 64;
  }
  store_bf16_tile(sums, weights, rows, out, weight);
}

FATHOM_INLINE void bf16_tile(const struct Bf16Panel* panel, int64_t weight, const int weights,
                             const struct Bf16Rows* in, int64_t first, const int rows, const int vectors) {
  const uint8_t* const* x = in->in + first;
  float* const* out = in->out + first;
  if (vectors == 0) return direct_tile(panel, weight, weights, x, rows, out);
  scaled_tile(panel, weight, weights, x, rows, out, vectors);
}

FATHOM_INLINE void bf16_strip(const struct Bf16Panel* panel, int64_t weight, const int weights,
                              const struct Bf16Rows* in, const int vectors) {
  int64_t r = 0;
  for (; r + kBf16TileRows <= in->rows; r += kBf16TileRows)
    bf16_tile(panel, weight, weights, in, r, kBf16TileRows, vectors);
  switch (in->rows - r) {
    case 1: return bf16_tile(panel, weight, weights, in, r, 1, vectors);
    case 2: return bf16_tile(panel, weight, weights, in, r, 2, vectors);
    case 3: return bf16_tile(panel, weight, weights, in, r, 3, vectors);
    case 4: return bf16_tile(panel, weight, weights, in, r, 4, vectors);
    case 5: return bf16_tile(panel, weight, weights, in, r, 5, vectors);
    default: return;
  }
}

// `vectors` of a scaled unit, 0 for the direct kinds; a constant where this is inlined.
FATHOM_INLINE void bf16_panel_as(const struct Bf16Panel* panel, const struct Bf16Rows* in,
                                 const int vectors) {
  int64_t weight = 0;
  for (; weight + 4 <= panel->rows; weight += 4) bf16_strip(panel, weight, 4, in, vectors);
  for (; weight < panel->rows; ++weight) bf16_strip(panel, weight, 1, in, vectors);
}

static void bf16_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* in) {
  switch (panel->scaled_vectors) {
    case 0: return bf16_panel_as(panel, in, 0);
    case 1: return bf16_panel_as(panel, in, 1);
    default: return bf16_panel_as(panel, in, 8);
  }
}

}  // namespace
}  // namespace fathom::cpu
