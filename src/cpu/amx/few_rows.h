// Weight rows times up to 16 activation rows, at the speed of memory.
//
// Sixteen weight rows at a time are decoded in chunks of 256 columns. Between the rows the products of the chunk
// before are begun, so that the tiles' long latency passes while the next row is decoded. Two chunks and a row of
// activations fit the first cache.
#pragma once

#include "cpu/amx/activations.h"

namespace fathom::cpu {
namespace {

enum { kChunkVectors = 8, kChunkBytes = kChunkVectors * kTileBytes };
// Chunks that encoded weights are asked for ahead of their use.
enum { kChunksAhead = 2 };

// decode_vectors of one encoding.
typedef void (*Decoder)(const struct UnitRow* row, int64_t first, int vectors, uint8_t* out);

// A decoded chunk and its activations. Registers 0: results, 1: weights, 2: activations.
struct Chunk {
  const uint8_t* weights;
  const uint8_t* activations;
  int tiles;
};
// The activations' tiles: bytes from one to the next, and from row to row.
struct FewRows {
  const uint8_t* tiles;
  int64_t step, stride;
};

FATHOM_INLINE void add_product(const struct Chunk* chunk, int tile, const struct FewRows* x) {
  if (tile >= chunk->tiles) return;
  FATHOM_TILE_LOAD(1, chunk->weights + tile * kTileBytes, kTileRowBytes);
  FATHOM_TILE_LOAD(2, chunk->activations + tile * x->step, x->stride);
  FATHOM_TILE_DOT(0, 1, 2);
}

FATHOM_INLINE void ask_for(const uint8_t* p, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch((const char*)(p + at), _MM_HINT_T1);
}

// Whether it is one row that stands alone, which makes narrow tiles.
FATHOM_INLINE int is_row(const struct Bf16Rows* in) { return in->rows == 1 && !in->is_tiled; }

static void finish_few(const struct Bf16Rows* in, int64_t weight, int64_t weights) {
  alignas(64) uint8_t results[kTileBytes];
  if (is_row(in)) {
    FATHOM_TILE_STORE(0, results, 4);
    f_store_part(in->out[0] + weight, _mm512_load_ps(results), weights);
  } else {
    FATHOM_TILE_STORE(0, results, kTileRowBytes);
    store_results(results, weights, in->rows, in->out, weight);
  }
  FATHOM_TILE_ZERO(0);
}

// The row as it is, or tiles given, or tiles made behind the chunks.
static struct FewRows few_rows_tiles(const struct EncodedMatrix* m, const struct Bf16Rows* in) {
  if (is_row(in)) return {in->in[0], kTileRowBytes, 4};
  if (in->is_tiled) return {in->in[0], kTileBytes, kTileRowBytes};
  uint8_t* tiles = in->work + 2 * kChunkBytes;
  pack_tiles(in->in, in->rows, 0, m->cols / kTileCols, tiles);
  return {tiles, kTileBytes, kTileRowBytes};
}

static void multiply_few(Decoder decode, const struct EncodedMatrix* m, int64_t row, int64_t count,
                         const struct Bf16Rows* in) {
  const int64_t vectors = m->cols / kTileCols, chunks = (vectors + kChunkVectors - 1) / kChunkVectors;
  const int64_t chunk_bytes = m->row_bytes * kChunkVectors / vectors;
  const struct FewRows x = few_rows_tiles(m, in);
  set_tile_shapes(is_row(in) ? 5 : 0);
  FATHOM_TILE_ZERO(0);
  struct Chunk before = {0, 0, 0};
  int64_t number = 0;
  for (int64_t weight = 0; weight < count; weight += kTileWidth) {
    const int64_t weights = at_most(kTileWidth, count - weight);
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t first = c * kChunkVectors;
      const int n = (int)at_most(kChunkVectors, vectors - first);
      uint8_t* out = in->work + (number++ & 1) * kChunkBytes;
      // The same rows a few chunks on, or the beginning of the next sixteen rows, if they are of this call.
      int64_t ahead = kChunksAhead * chunk_bytes;
      if (c + kChunksAhead >= chunks)
        ahead = weight + kTileWidth < count ? ahead - chunks * chunk_bytes + kTileWidth * m->row_bytes : 0;
      for (int r = 0; r < kTileWidth; ++r) {
        if (r < weights) {
          const struct UnitRow where = unit_row(m, row + weight + r);
          if (ahead != 0) ask_for(where.data + c * chunk_bytes + ahead, chunk_bytes);
          decode(&where, first, n, out + r * kTileRowBytes);
        }
        if (r % 2 == 1) add_product(&before, r / 2, &x);
      }
      if (c == 0 && weight != 0) finish_few(in, weight - kTileWidth, kTileWidth);
      before = {out, x.tiles + first * x.step, n};
    }
  }
  for (int tile = 0; tile < kChunkVectors; ++tile) add_product(&before, tile, &x);
  const int64_t last = (count - 1) / kTileWidth * kTileWidth;
  finish_few(in, last, count - last);
  release_tiles();
}

}  // namespace
}  // namespace fathom::cpu
