#include "cpu/kernels.h"
#include "cpu/neon_dot/fixed_panel.h"

namespace fathom::cpu {
namespace {

// With the encoding as a constant.
#define FATHOM_FIXED_ENCODINGS(with)                                                                      \
  with(kEncodingQ8_0) with(kEncodingMxfp4) with(kEncodingFp4) with(kEncodingQ2K) with(kEncodingQ4K)       \
  with(kEncodingIq2Xxs)

void fixed_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return fixed_dot_as(encoding, m, row, count, rows);
    FATHOM_FIXED_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: return;
  }
}

void fixed_decode(const struct EncodedMatrix* m, int64_t row, int64_t count, struct Bf16Panel* panel,
                  uint8_t* data) {
  panel->data = data;
  panel->rows = count;
  panel->row_bytes = fixed_panel_row_bytes(m);
  panel->encoding = m->encoding;
  panel->cols = m->cols;
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return fixed_decode_as(encoding, m, row, count, data);
    FATHOM_FIXED_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: return;
  }
}

void fixed_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  switch (panel->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return fixed_panel_as(encoding, panel, rows);
    FATHOM_FIXED_ENCODINGS(FATHOM_CASE)
#undef FATHOM_CASE
    default: return;
  }
}

// Whether no scale leaves float32 when multiplied with those of activations.
int fixed_row_is_exact(const struct EncodedMatrix* m, int64_t row) {
  if (m->encoding != kEncodingFp4 && m->encoding != kEncodingMxfp4) return 1;
  const int is_apart = m->encoding == kEncodingFp4;
  const uint8_t* scales = is_apart ? m->scales + row * m->scale_row_bytes : m->data + row * m->row_bytes;
  unsigned worst = 0;
  for (int64_t b = 0; b < m->cols / 32; ++b) {
    const int scale = scales[is_apart ? b : 17 * b];
    const unsigned far = (unsigned)(scale < 127 ? 127 - scale : scale - 127);
    worst = far > worst ? far : worst;
  }
  return worst <= 80;
}

struct Kernels neon_dot_table() {
  make_iq2_xxs_tables();
  struct Kernels table = *neon_kernels();
  table.name = "neon_dot";
  table.bf16_row_bytes = fixed_row_bytes;
  table.bf16_prepare = fixed_prepare;
  table.bf16_row_is_exact = fixed_row_is_exact;
  table.bf16_fused_rows = 2;
  table.bf16_dot = fixed_dot;
  table.bf16_panel_row_bytes = fixed_panel_row_bytes;
  table.bf16_decode = fixed_decode;
  table.bf16_dot_panel = fixed_dot_panel;
  return table;
}

}  // namespace

// The kernels of neon/ with products of integers added.
const struct Kernels* neon_dot_kernels(void) {
  static const struct Kernels table = neon_dot_table();
  return &table;
}

}  // namespace fathom::cpu
