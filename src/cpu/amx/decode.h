// Weights of the direct kinds (units.h) as bfloat16 tiles: 32 columns of a row are a row of a tile.
#pragma once

#include "cpu/amx/tiles.h"
#include "cpu/avx512/bf16_rows.h"

namespace fathom::cpu {
namespace {

// `vectors` times 32 columns of a row from vector `first` on, whole units: 32 columns at `out`, each 32 more a
// tile later.
FATHOM_INLINE void decode_vectors(enum Encoding encoding, struct UnitRow where, int64_t first, int vectors,
                                  uint8_t* out) {
  const int step = unit_vectors(encoding);
  const int64_t begin = first / step, end = (first + vectors) / step;
  for (int64_t u = begin; u < end; ++u) {
    const Source source = direct_unit(encoding, where, u);
#pragma GCC unroll 2
    for (int j = 0; j < step; ++j, out += kTileBytes) _mm512_storeu_si512(out, j == 0 ? source.low : source.high);
  }
}

}  // namespace
}  // namespace fathom::cpu
