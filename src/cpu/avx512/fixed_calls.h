// The functions of fixed_dot.h and fixed_panel.h for any encoding, each compiled with its encoding as a constant.
#pragma once

#include "cpu/avx512/fixed_panel.h"

namespace fathom::cpu {
namespace {

// With the width of the codes as a constant.
static void affine_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  struct EncodedMatrix known = *m;
  switch (m->bits) {
#define FATHOM_CASE(width) \
  case width: known.bits = width; return fixed_dot_as(kEncodingAffine, &known, row, count, rows);
    FATHOM_CASE(2) FATHOM_CASE(3) FATHOM_CASE(4) FATHOM_CASE(5) FATHOM_CASE(6) FATHOM_CASE(8)
#undef FATHOM_CASE
    default: return;
  }
}
static void fixed_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return fixed_dot_as(encoding, m, row, count, rows);
    FATHOM_FIXED_ENCODINGS(FATHOM_CASE)
    case kEncodingAffine: return affine_dot(m, row, count, rows);
#undef FATHOM_CASE
    default: return;
  }
}

static void fixed_decode(const struct EncodedMatrix* m, int64_t row, int64_t count, struct Bf16Panel* panel,
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
    FATHOM_CASE(kEncodingAffine)
#undef FATHOM_CASE
    default: return;
  }
}

}  // namespace
}  // namespace fathom::cpu
