// Products of activations that are bfloat16 numbers in AMX tiles; everything else as with AVX-512.

// g++ 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "cpu/kernels.h"
#include "cpu/avx512/vec.h"
#include "cpu/generic/table.h"
#include "cpu/amx/many_rows.h"

namespace fathom::cpu {
namespace {

#define FATHOM_DECODER(name, encoding, width)                                                               \
  void name(const struct EncodedMatrix* m, const struct UnitRow* where, int64_t first, int vectors,         \
            uint8_t* out) {                                                                                  \
    struct EncodedMatrix known = *m;                                                                        \
    known.bits = width;                                                                                     \
    decode_vectors(encoding, &known, *where, first, vectors, out);                                          \
  }
#define FATHOM_NAMED(encoding) FATHOM_DECODER(decode_##encoding, encoding, 0)
FATHOM_BF16_ENCODINGS(FATHOM_NAMED)
#undef FATHOM_NAMED
#define FATHOM_AFFINE(with) with(2) with(3) with(4) with(5) with(6) with(8)
#define FATHOM_NAMED(width) FATHOM_DECODER(decode_affine##width, kEncodingAffine, width)
FATHOM_AFFINE(FATHOM_NAMED)
#undef FATHOM_NAMED

struct Decoder decoder_of(const struct EncodedMatrix* m) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return {decode_##encoding, tile_parts(encoding)};
    FATHOM_BF16_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: break;
  }
  switch (m->bits) {
#define FATHOM_CASE(width) \
  case width: return {decode_affine##width, tile_parts(kEncodingAffine)};
    FATHOM_AFFINE(FATHOM_CASE)
#undef FATHOM_CASE
    default: return {0, 0};
  }
}

void bf16_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  const struct Decoder decoder = decoder_of(m);
  if (rows->rows <= kTileWidth) multiply_few(&decoder, m, row, count, rows);
  else multiply_many(&decoder, m, row, count, rows);
}

struct Kernels amx_table() {
  make_grid_tables();
  struct Kernels table = kernel_table("amx");
  table.decodes = decodes_all;
  table.decode = decode_any;
  table.bf16_row_bytes = bf16_row_bytes;
  table.bf16_prepare = bf16_prepare;
  table.bf16_row_is_exact = bf16_row_is_exact;
  table.bf16_fused_rows = INT64_MAX;
  table.bf16_dot = bf16_dot;
  table.bf16_pack = bf16_pack;
  table.bf16_work_bytes = bf16_work_bytes;
  table.bf16_block_rows = 512;
  table.bf16_block_weights = 256;
  return table;
}

}  // namespace

const struct Kernels* amx_kernels(void) {
  static const struct Kernels table = amx_table();
  return &table;
}

}  // namespace fathom::cpu
