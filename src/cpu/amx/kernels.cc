// Products of the direct kinds (avx512/units.h) with activations that are bfloat16 numbers in AMX tiles;
// everything else as with AVX-512.

// g++ 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "cpu/kernels.h"
#include "cpu/avx512/vec.h"
#include "cpu/generic/table.h"
#include "cpu/amx/many_rows.h"
#include "cpu/avx512/fixed_calls.h"

namespace fathom::cpu {
namespace {

#define FATHOM_DECODER(encoding)                                                                     \
  void decode_##encoding(const struct UnitRow* row, int64_t first, int vectors, uint8_t* out) {      \
    decode_vectors(encoding, *row, first, vectors, out);                                             \
  }
FATHOM_DIRECT_ENCODINGS(FATHOM_DECODER)
#undef FATHOM_DECODER

Decoder decoder_of(const struct EncodedMatrix* m) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return decode_##encoding;
    FATHOM_DIRECT_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: return 0;
  }
}

void dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  if (!is_direct(m->encoding)) return fixed_dot(m, row, count, rows);
  if (rows->rows <= kTileWidth) multiply_few(decoder_of(m), m, row, count, rows);
  else multiply_many(decoder_of(m), m, row, count, rows);
}
int64_t row_bytes(const struct EncodedMatrix* m) {
  if (m->encoding == kEncodingF32 || m->encoding == kEncodingF16) return 0;
  return is_direct(m->encoding) ? bf16_row_bytes(m) : fixed_row_bytes(m);
}
void prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  if (is_direct(m->encoding)) return bf16_prepare(m, in, out);
  fixed_prepare(m, in, out);
}
int is_tiled(enum Encoding encoding) { return is_direct(encoding); }

struct Kernels amx_table() {
  make_grid_tables();
  struct Kernels table = kernel_table("amx");
  table.decodes = decodes_all;
  table.decode = decode_any;
  table.bf16_row_bytes = row_bytes;
  table.bf16_prepare = prepare;
  table.bf16_row_is_exact = bf16_row_is_exact;
  table.bf16_fused_rows = kMostRows;
  table.bf16_dot = dot;
  table.bf16_panel_row_bytes = fixed_panel_row_bytes;
  table.bf16_decode = fixed_decode;
  table.bf16_dot_panel = fixed_dot_panel;
  table.bf16_is_tiled = is_tiled;
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
