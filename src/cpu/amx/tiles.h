// Tile registers: eight of them, each up to 16 rows of 64 bytes. Assembly, because the compiler's own functions
// do not tell it everywhere that they read and write memory.
//
// FATHOM_TILE_DOT(c, a, b): c[m][n] += the sum over p of a[m][2p] * b[p][2n] and a[m][2p + 1] * b[p][2n + 1],
// bfloat16 pairs into float32. A sum depends on row m of `a` and column n of `b` only and runs in a fixed
// order, so that tiles of other shapes give the same bits. Subnormal numbers count as zero.
#pragma once

#include <stdint.h>
#include <string.h>

namespace fathom::cpu {
namespace {

#define FATHOM_TILE_LOAD(tile, from, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(stride)) : "memory")
#define FATHOM_TILE_STORE(tile, to, stride) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(stride)) : "memory")
#define FATHOM_TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define FATHOM_TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

enum { kTileBytes = 1024, kTileRowBytes = 64, kTileWidth = 16, kTileCols = 32, kTiles = 8 };

struct TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// All tiles with 16 rows of 64 bytes, but `narrow` ones with 16 rows of four.
static inline void set_tile_shapes(int narrow) {
  struct TileShapes shapes;
  memset(&shapes, 0, sizeof shapes);
  shapes.palette = 1;
  for (int tile = 0; tile < kTiles; ++tile) {
    shapes.rows[tile] = kTileWidth;
    shapes.row_bytes[tile] = (narrow >> tile & 1) != 0 ? 4 : kTileRowBytes;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}
static inline int64_t at_most(int64_t most, int64_t x) { return x < most ? x : most; }
static inline void release_tiles() { __asm__ volatile("tilerelease" : :); }

}  // namespace
}  // namespace fathom::cpu
