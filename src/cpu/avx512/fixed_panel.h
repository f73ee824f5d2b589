// Panels of decoded units times many fixed-point rows; the order of summation is fixed_dot.h's.
//
// A panel row has units: vectors of codes, then a vector of scales and, where there are any, one of floors.
// The columns are walked a slice at a time: of the panel it stays in the first cache while the activation
// rows pass by, six at a time. The float32 sums wait in memory meanwhile.
#pragma once

#include "cpu/avx512/fixed_dot.h"

namespace fathom::cpu {
namespace {

enum { kGemmWeights = 4, kGemmRows = 6, kGemmGroup = 24, kGemmPanel = 16, kGemmSlice = 512 };

FATHOM_INLINE int panel_unit_bytes(enum Encoding encoding) {
  return 64 * (unit_vectors(encoding) + 1 + has_floor(encoding));
}
// Off the multiples of 4 KiB, where the rows of a tile would compete for places of the first cache.
static int64_t fixed_panel_row_bytes(const struct EncodedMatrix* m) {
  return unit_count(m->encoding, m->cols) * panel_unit_bytes(m->encoding) / 512 * 512 + 576;
}

FATHOM_INLINE void fixed_decode_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t count, uint8_t* panel) {
  const int per_source = unit_vectors(encoding) / unit_sources(encoding);
  const int bytes = unit_bytes(encoding, m->bits);
  const int64_t row_bytes = fixed_panel_row_bytes(m);
  for (int64_t r = row; r < row + count; ++r, panel += row_bytes) {
    const struct UnitRow where = unit_row(m, r);
    uint8_t* out = panel;
    for (int64_t u = 0; u < unit_count(encoding, m->cols); ++u) {
      uint8_t copy[kMostUnitBytes];
      const uint8_t* p = whole_unit(encoding, m, where.data + u * bytes, u, copy);
      const Scales scales = unit_scales(encoding, m, where, p, u);
#pragma GCC unroll 8
      for (int s = 0; s < unit_sources(encoding); ++s) {
        const Source source = unit_source(encoding, m->bits, p, s, &scales);
#pragma GCC unroll 8
        for (int j = s * per_source; j < (s + 1) * per_source; ++j, out += 64)
          _mm512_storeu_si512(out, unit_vector(encoding, source, j));
      }
      _mm512_storeu_ps((float*)out, scales.scale);
      out += 64;
      if (!has_floor(encoding)) continue;
      _mm512_storeu_ps((float*)out, scales.floor);
      out += 64;
    }
  }
}

// Sums of [rows][weights], in memory.
struct GemmSums {
  alignas(64) float lane[kGemmGroup][kGemmPanel][16];
};
// What a tile works on: weight rows from `weight` on, activation rows from `row` on, units [begin, end).
struct GemmTile {
  const struct Bf16Panel* panel;
  const struct FixedRow* x;
  struct GemmSums* sums;
  int64_t weight, begin, end;
  int row;
};

// sum += products of x with codes. As assembly: a compiler that sees an intrinsic moves each sum to another
// register and back.
FATHOM_INLINE void add_products(__m512i* sum, __m512i codes, __m512i x) {
  __asm__("vpdpwssd %[x], %[codes], %[sum]" : [sum] "+v"(*sum) : [codes] "v"(codes), [x] "v"(x));
}

// `vectors` of a unit is a constant, like `weights` and `rows`.
FATHOM_INLINE void gemm_tile(const struct GemmTile* tile, const int vectors, const int weights,
                             const int rows) {
  const enum Encoding encoding = tile->panel->encoding;
  const int floors = has_floor(encoding), excess = code_excess(encoding);
  const int64_t x_step = fixed_unit_bytes(encoding), w_step = panel_unit_bytes(encoding);
  const int64_t w_stride = tile->panel->row_bytes;
  const uint8_t* w = tile->panel->data + tile->weight * w_stride + tile->begin * w_step;
  const uint8_t* q[kGemmRows];
  const float* x_scales[kGemmRows];
  float(*sums)[kGemmPanel][16] = tile->sums->lane + tile->row;
  const int64_t first = tile->weight, end = tile->end;
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    q[r] = tile->x[tile->row + r].units + tile->begin * x_step;
    x_scales[r] = tile->x[tile->row + r].scales;
  }
  for (int64_t u = tile->begin; u < end; ++u, w += w_step) {
    __m512i integers[kGemmWeights][kGemmRows];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const __m512i before = excess != 0 ? load64(q[r] + 64 * vectors) : _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int i = 0; i < weights; ++i) integers[i][r] = before;
    }
    for (int j = 0; j < vectors; ++j) {
      __m512i x[kGemmRows];
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) x[r] = load64(q[r] + 64 * j);
#pragma GCC unroll 4
      for (int i = 0; i < weights; ++i) {
        const __m512i codes = load64(w + i * w_stride + 64 * j);
#pragma GCC unroll 6
        for (int r = 0; r < rows; ++r) add_products(&integers[i][r], codes, x[r]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < weights; ++i) {
      const float* scales = (const float*)(w + i * w_stride + 64 * vectors);
      const __m512 scale = _mm512_loadu_ps(scales);
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) {
        float* at = sums[r][first + i];
        __m512 sum = add_unit(_mm512_load_ps(at), integers[i][r], scale, x_scales[r][u]);
        if (floors) sum = without_floor(sum, _mm512_loadu_ps(scales + 16), q[r] + 64 * vectors);
        _mm512_store_ps(at, sum);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) q[r] += x_step;
  }
}

FATHOM_INLINE void gemm_any_tile(const struct GemmTile* tile, const int vectors, int weights, int rows) {
#define FATHOM_TILE(r)                                                                        \
  if (rows == r && weights == kGemmWeights) return gemm_tile(tile, vectors, kGemmWeights, r); \
  if (rows == r) return gemm_tile(tile, vectors, 1, r);
  FATHOM_TILE(6) FATHOM_TILE(5) FATHOM_TILE(4) FATHOM_TILE(3) FATHOM_TILE(2) FATHOM_TILE(1)
#undef FATHOM_TILE
}
static void gemm_blocks(const struct GemmTile* tile, int weights, int rows) {
  gemm_any_tile(tile, 8, weights, rows);
}
static void gemm_runs(const struct GemmTile* tile, int weights, int rows) {
  gemm_any_tile(tile, 1, weights, rows);
}

// Weight rows [first, first + weights) times at most kGemmGroup activation rows.
static void gemm_group(const struct Bf16Panel* panel, int64_t first, int weights, const struct FixedRow* x,
                       int rows, float* const* out) {
  struct GemmSums sums;
  struct Bf16Panel part = *panel;
  part.data += first * panel->row_bytes;
  struct GemmTile tile = {&part, x, &sums, 0, 0, 0, 0};
  const int is_block = is_block256(panel->encoding);
  const int64_t units = unit_count(panel->encoding, panel->cols);
  const int64_t slice = kGemmSlice / unit_cols(panel->encoding);
  for (int r = 0; r < rows; ++r) memset(sums.lane[r], 0, sizeof sums.lane[r]);
  for (tile.begin = 0; tile.begin < units; tile.begin = tile.end) {
    tile.end = tile.begin + slice < units ? tile.begin + slice : units;
    for (tile.row = 0; tile.row < rows; tile.row += kGemmRows) {
      const int some = rows - tile.row < kGemmRows ? rows - tile.row : kGemmRows;
      for (tile.weight = 0; tile.weight < weights;) {
        const int side_by_side = weights - tile.weight >= kGemmWeights ? kGemmWeights : 1;
        if (is_block)
          gemm_blocks(&tile, side_by_side, some);
        else
          gemm_runs(&tile, side_by_side, some);
        tile.weight += side_by_side;
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    float(*lane)[16] = sums.lane[r];
    int w = 0;
    for (; w + 4 <= weights; w += 4)
      store_sums4(out[r] + first + w, _mm512_load_ps(lane[w]), _mm512_load_ps(lane[w + 1]),
                  _mm512_load_ps(lane[w + 2]), _mm512_load_ps(lane[w + 3]));
    for (; w < weights; ++w) out[r][first + w] = f_sum(_mm512_load_ps(lane[w]));
  }
}

static void fixed_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  for (int64_t m = 0; m < rows->rows; m += kGemmGroup) {
    const int some = rows->rows - m < kGemmGroup ? (int)(rows->rows - m) : kGemmGroup;
    struct FixedRow x[kGemmGroup];
    for (int r = 0; r < some; ++r) x[r] = fixed_row(panel->encoding, panel->cols, rows->in[m + r]);
    for (int64_t w = 0; w < panel->rows; w += kGemmPanel)
      gemm_group(panel, w, panel->rows - w < kGemmPanel ? (int)(panel->rows - w) : kGemmPanel, x, some,
                 rows->out + m);
  }
}

}  // namespace
}  // namespace fathom::cpu
