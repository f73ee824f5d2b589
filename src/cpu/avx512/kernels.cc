// g++ 12 warns about the undefined operands inside its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "cpu/kernels.h"
#include "cpu/avx512/vec.h"
#include "cpu/generic/table.h"
#include "cpu/avx512/bf16_panel.h"
#include "cpu/avx512/fixed_calls.h"

namespace fathom::cpu {
namespace {

void dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return bf16_dot_as(encoding, m, row, count, rows);
    FATHOM_DIRECT_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: return fixed_dot(m, row, count, rows);
  }
}
int64_t row_bytes(const struct EncodedMatrix* m) {
  if (m->encoding == kEncodingF32 || m->encoding == kEncodingF16) return 0;
  return is_direct(m->encoding) ? bf16_row_bytes(m) : fixed_row_bytes(m);
}
void prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  if (is_direct(m->encoding)) return bf16_prepare(m, in, out);
  fixed_prepare(m, in, out);
}
int64_t panel_row_bytes(const struct EncodedMatrix* m) {
  return is_direct(m->encoding) ? bf16_row_bytes(m) : fixed_panel_row_bytes(m);
}
void decode_panel(const struct EncodedMatrix* m, int64_t row, int64_t count, struct Bf16Panel* panel,
                  uint8_t* data) {
  panel->data = data;
  panel->rows = count;
  panel->row_bytes = panel_row_bytes(m);
  panel->encoding = m->encoding;
  panel->cols = m->cols;
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return bf16_decode_as(encoding, m, row, count, data);
    FATHOM_DIRECT_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: return fixed_decode(m, row, count, panel, data);
  }
}
void dot_decoded(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  if (is_direct(panel->encoding)) return bf16_dot_panel(panel, rows);
  fixed_dot_panel(panel, rows);
}

struct Kernels avx512_table() {
  make_grid_tables();
  struct Kernels table = kernel_table("avx512");
  table.decodes = decodes_all;
  table.decode = decode_any;
  table.bf16_row_bytes = row_bytes;
  table.bf16_prepare = prepare;
  table.bf16_row_is_exact = bf16_row_is_exact;
  table.bf16_fused_rows = kMostRows;
  table.bf16_dot = dot;
  table.bf16_panel_row_bytes = panel_row_bytes;
  table.bf16_decode = decode_panel;
  table.bf16_dot_panel = dot_decoded;
  return table;
}

}  // namespace

const struct Kernels* avx512_kernels(void) {
  static const struct Kernels table = avx512_table();
  return &table;
}

}  // namespace fathom::cpu
