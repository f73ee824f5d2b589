// Activation rows as tiles: one row as it is, with tile rows of one pair of columns; up to 16 rows side by side,
// pair by pair.
#pragma once

#include "cpu/amx/decode.h"

namespace fathom::cpu {
namespace {

// Transposes 16 x 16 words of 32 bits.
FATHOM_INLINE void transpose16(__m512i* row) {
  __m512i pair[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pair[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    pair[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  // row[4q + c]: column c of every lane of 128 bits, of rows 4q to 4q + 3.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    row[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
    row[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
    row[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
    row[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    pair[c] = _mm512_shuffle_i32x4(row[c], row[4 + c], 0x44);
    pair[4 + c] = _mm512_shuffle_i32x4(row[c], row[4 + c], 0xEE);
    pair[8 + c] = _mm512_shuffle_i32x4(row[8 + c], row[12 + c], 0x44);
    pair[12 + c] = _mm512_shuffle_i32x4(row[8 + c], row[12 + c], 0xEE);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    row[c] = _mm512_shuffle_i32x4(pair[c], pair[8 + c], 0x88);
    row[4 + c] = _mm512_shuffle_i32x4(pair[c], pair[8 + c], 0xDD);
    row[8 + c] = _mm512_shuffle_i32x4(pair[4 + c], pair[12 + c], 0x88);
    row[12 + c] = _mm512_shuffle_i32x4(pair[4 + c], pair[12 + c], 0xDD);
  }
}

// Bytes [begin, begin + 64 * vectors) of up to 16 prepared rows, a tile for 64 bytes. Absent rows are zero.
FATHOM_INLINE void pack_tiles(const uint8_t* const* rows, int64_t count, int64_t begin, int64_t vectors,
                              uint8_t* out) {
  for (int64_t v = 0; v < vectors; ++v, out += kTileBytes) {
    __m512i x[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
      x[r] = r < count ? load64(rows[r] + begin + 64 * v) : _mm512_setzero_si512();
    transpose16(x);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) _mm512_storeu_si512(out + kTileRowBytes * r, x[r]);
  }
}

static void bf16_pack(const uint8_t* const* rows, int64_t count, int64_t row_bytes, uint8_t* out) {
  pack_tiles(rows, count, 0, row_bytes / kTileRowBytes, out);
}

// A tile of results [weights, rows] to the rows' places from `weight` on.
FATHOM_INLINE void store_results(const uint8_t* tile, int64_t weights, int64_t rows, float* const* out,
                                 int64_t weight) {
  __m512i x[16];
#pragma GCC unroll 16
  for (int w = 0; w < 16; ++w) x[w] = load64(tile + kTileRowBytes * w);
  transpose16(x);
  for (int64_t r = 0; r < rows; ++r) f_store_part(out[r] + weight, _mm512_castsi512_ps(x[r]), weights);
}

}  // namespace
}  // namespace fathom::cpu
