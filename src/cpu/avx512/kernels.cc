// g++ 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "cpu/kernels.h"
#include "cpu/avx512/vec.h"
#include "cpu/generic/table.h"
#include "cpu/avx512/bf16_panel.h"

namespace fathom::cpu {
namespace {

// With the width of the codes as a constant.
void bf16_dot_affine(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  struct EncodedMatrix known = *m;
  switch (m->bits) {
#define FATHOM_CASE(width) \
  case width: known.bits = width; return bf16_dot_as(kEncodingAffine, &known, row, count, rows);
    FATHOM_CASE(2) FATHOM_CASE(3) FATHOM_CASE(4) FATHOM_CASE(5) FATHOM_CASE(6) FATHOM_CASE(8)
#undef FATHOM_CASE
    default: return;
  }
}

void bf16_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return bf16_dot_as(encoding, m, row, count, rows);
    FATHOM_BF16_ENCODINGS(FATHOM_CASE)
    case kEncodingAffine: return bf16_dot_affine(m, row, count, rows);
#undef FATHOM_CASE
    default: return;
  }
}

void bf16_decode(const struct EncodedMatrix* m, int64_t row, int64_t count, struct Bf16Panel* panel,
                 uint8_t* data) {
  panel->data = data;
  panel->rows = count;
  panel->row_bytes = bf16_panel_row_bytes(m);
  panel->scaled_vectors = is_direct(m->encoding) ? 0 : unit_vectors(m->encoding);
  panel->has_floor = has_floor(m->encoding);
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return decode_panel_as(encoding, m, row, count, data);
    FATHOM_BF16_ENCODINGS(FATHOM_CASE)
    FATHOM_CASE(kEncodingAffine)
#undef FATHOM_CASE
    default: return;
  }
}

struct Kernels avx512_table() {
  make_grid_tables();
  struct Kernels table = kernel_table("avx512");
  table.decodes = decodes_all;
  table.decode = decode_any;
  table.bf16_row_bytes = bf16_row_bytes;
  table.bf16_prepare = bf16_prepare;
  table.bf16_row_is_exact = bf16_row_is_exact;
  table.bf16_fused_rows = kFusedRows;
  table.bf16_dot = bf16_dot;
  table.bf16_panel_row_bytes = bf16_panel_row_bytes;
  table.bf16_decode = bf16_decode;
  table.bf16_dot_panel = bf16_dot_panel;
  return table;
}

}  // namespace

const struct Kernels* avx512_kernels(void) {
  static const struct Kernels table = avx512_table();
  return &table;
}

}  // namespace fathom::cpu
