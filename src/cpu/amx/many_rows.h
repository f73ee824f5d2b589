// Weight rows times more than 16 activation rows, at the speed of the tiles.
//
// Blocks of 256 columns: the weights are decoded to tiles of their own, then 32 activation rows at a time stay in
// the first cache while the weights pass by, 32 rows at a time, and the next block's activations are asked for.
// Sums rest in memory between two blocks, as float32.
#pragma once

#include "cpu/amx/few_rows.h"

namespace fathom::cpu {
namespace {

// kSoon: steps of 32 columns that weights are brought near ahead of their use.
enum { kDepth = 8, kStripBytes = kDepth * kTileBytes, kSoon = 2 };

// Where the pieces of a call are.
struct Blocks {
  uint8_t* weights;  // [weight tiles, kDepth tiles]
  uint8_t* results;  // [weight tiles, groups]
  uint8_t* packed;   // [groups, kDepth], for rows that are not given as tiles
  int64_t weight_tiles, groups;
};

FATHOM_INLINE int64_t tiles_for(int64_t rows) { return (rows + kTileWidth - 1) / kTileWidth; }

// One or two weight tiles times one or two groups (`rows`), over `depth` tiles. Tiles 0 to 3: results, 4 and 5:
// weights, 6 and 7: activations. The numbers of tiles are constants. With every tile of activations `ahead` more
// bytes are asked for, `ahead_at` after it.
FATHOM_INLINE void multiply_tiles(const uint8_t* weights, const int weight_tiles, const uint8_t* const* x,
                                  const int rows, int depth, uint8_t* results, int64_t result_stride,
                                  int is_first, int64_t ahead_at, int64_t ahead) {
  const int64_t stride = kTileRowBytes, weight_stride = kStripBytes;
  if (is_first) {
    FATHOM_TILE_ZERO(0);
    FATHOM_TILE_ZERO(1);
    FATHOM_TILE_ZERO(2);
    FATHOM_TILE_ZERO(3);
  } else {
    FATHOM_TILE_LOAD(0, results, stride);
    if (rows == 2) FATHOM_TILE_LOAD(1, results + kTileBytes, stride);
    if (weight_tiles == 2) FATHOM_TILE_LOAD(2, results + result_stride, stride);
    if (weight_tiles == 2 && rows == 2) FATHOM_TILE_LOAD(3, results + result_stride + kTileBytes, stride);
  }
  for (int v = 0; v < depth; ++v) {
    // Tiles that the second cache still has to hand over come half as fast as they are multiplied.
    const uint8_t* soon = weights + (int64_t)kSoon * kTileBytes + (v + kSoon < depth ? 0 : weight_stride);
    for (int64_t at = 0; at < kTileBytes; at += 64) {
      _mm_prefetch((const char*)(soon + at), _MM_HINT_T0);
      if (weight_tiles == 2) _mm_prefetch((const char*)(soon + weight_stride + at), _MM_HINT_T0);
    }
    FATHOM_TILE_LOAD(6, x[0] + v * kTileBytes, stride);
    if (rows == 2) FATHOM_TILE_LOAD(7, x[1] + v * kTileBytes, stride);
    for (int r = 0; r < rows; ++r) ask_for(x[r] + ahead_at + v * ahead, ahead);
    FATHOM_TILE_LOAD(4, weights, stride);
    FATHOM_TILE_DOT(0, 4, 6);
    if (rows == 2) FATHOM_TILE_DOT(1, 4, 7);
    if (weight_tiles == 2) {
      FATHOM_TILE_LOAD(5, weights + weight_stride, stride);
      FATHOM_TILE_DOT(2, 5, 6);
      if (rows == 2) FATHOM_TILE_DOT(3, 5, 7);
    }
    weights += kTileBytes;
  }
  FATHOM_TILE_STORE(0, results, stride);
  if (rows == 2) FATHOM_TILE_STORE(1, results + kTileBytes, stride);
  if (weight_tiles == 2) FATHOM_TILE_STORE(2, results + result_stride, stride);
  if (weight_tiles == 2 && rows == 2) FATHOM_TILE_STORE(3, results + result_stride + kTileBytes, stride);
}

// All weight tiles times one or two groups. If these are tiles that go on, the next block of them is asked for, a
// piece with every pair of weight tiles.
FATHOM_INLINE void multiply_groups(const struct Blocks* blocks, int64_t group, const uint8_t* const* x,
                                   const int rows, int depth, int is_first, int goes_on) {
  const int64_t result_stride = blocks->groups * kTileBytes, strip = kStripBytes;
  uint8_t* results = blocks->results + group * kTileBytes;
  const uint8_t* weights = blocks->weights;
  const int64_t pairs = (blocks->weight_tiles + 1) / 2;
  const int64_t ahead = goes_on ? (kTileBytes / pairs + 63) / 64 * 64 : 0;
  int64_t ahead_at = kStripBytes;
  int64_t w = 0;
  for (; w + 2 <= blocks->weight_tiles; w += 2, weights += 2 * strip, results += 2 * result_stride) {
    multiply_tiles(weights, 2, x, rows, depth, results, result_stride, is_first, ahead_at, ahead);
    ahead_at += kDepth * ahead;
  }
  if (w < blocks->weight_tiles)
    multiply_tiles(weights, 1, x, rows, depth, results, result_stride, is_first, ahead_at, ahead);
}

// Columns [32 * first, 32 * (first + depth)) of sixteen rows.
FATHOM_INLINE const uint8_t* group_tiles(const struct Bf16Rows* in, const struct Blocks* blocks, int64_t group,
                                         int64_t first, int depth) {
  const uint8_t* const* rows = in->in + group * kTileWidth;
  if (in->is_tiled) return rows[0] + first * kTileBytes;
  uint8_t* packed = blocks->packed + group * kStripBytes;
  const int64_t left = in->rows - group * kTileWidth;
  pack_tiles(rows, at_most(kTileWidth, left), first * kTileRowBytes, depth, packed);
  return packed;
}

static void multiply_many(Decoder decode, const struct EncodedMatrix* m, int64_t row, int64_t count,
                          const struct Bf16Rows* in) {
  struct Blocks blocks;
  blocks.weight_tiles = tiles_for(count);
  blocks.groups = tiles_for(in->rows);
  blocks.weights = in->work;
  blocks.results = blocks.weights + blocks.weight_tiles * kStripBytes;
  blocks.packed = blocks.results + blocks.weight_tiles * blocks.groups * kTileBytes;
  const int64_t vectors = m->cols / kTileCols;
  const int64_t strip_bytes = m->row_bytes * kDepth / vectors;  // of an encoded row
  set_tile_shapes(0);
  for (int64_t first = 0; first < vectors; first += kDepth) {
    const int depth = (int)at_most(kDepth, vectors - first);
    for (int64_t r = 0; r < count; ++r) {
      const struct UnitRow where = unit_row(m, row + r);
      if (first + kDepth < vectors) ask_for(where.data + (first / kDepth + 1) * strip_bytes, strip_bytes);
      decode(&where, first, depth,
             blocks.weights + r / kTileWidth * kStripBytes + r % kTileWidth * kTileRowBytes);
    }
    const int goes_on = in->is_tiled && first + kDepth < vectors;
    for (int64_t group = 0; group < blocks.groups; group += 2) {
      const uint8_t* x[2] = {group_tiles(in, &blocks, group, first, depth), 0};
      if (group + 1 == blocks.groups) {
        multiply_groups(&blocks, group, x, 1, depth, first == 0, goes_on);
      } else {
        x[1] = group_tiles(in, &blocks, group + 1, first, depth);
        multiply_groups(&blocks, group, x, 2, depth, first == 0, goes_on);
      }
    }
  }
  release_tiles();
  for (int64_t group = 0; group < blocks.groups; ++group) {
    const int64_t begin = group * kTileWidth, rows = at_most(kTileWidth, in->rows - begin);
    for (int64_t w = 0; w < blocks.weight_tiles; ++w)
      store_results(blocks.results + (w * blocks.groups + group) * kTileBytes,
                    at_most(kTileWidth, count - w * kTileWidth), rows, in->out + begin, w * kTileWidth);
  }
}

static int64_t bf16_work_bytes(const struct EncodedMatrix* m, int64_t count, int64_t rows) {
  if (rows <= kTileWidth) return 2 * kChunkBytes + m->cols / kTileCols * kTileBytes;
  return tiles_for(count) * (kStripBytes + tiles_for(rows) * kTileBytes) + tiles_for(rows) * kStripBytes;
}

}  // namespace
}  // namespace fathom::cpu
