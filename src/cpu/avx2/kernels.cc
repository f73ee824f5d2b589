#include "cpu/kernels.h"
#include "cpu/avx2/vec.h"
#include "cpu/avx2/fp4_dots.h"
#include "cpu/generic/table.h"
#include "cpu/avx2/fixed_gemm.h"
#include "cpu/avx2/float_rows.h"
#include "cpu/avx2/fp8_rows.h"

namespace fathom::cpu {
namespace {

// With the encoding as a constant.
// clang-format off
#define FATHOM_FLOAT_ENCODINGS(with)  /* that generic/decode.h has not */                             \
  with(kEncodingIq4Nl) with(kEncodingQ3K) with(kEncodingQ5K) with(kEncodingQ6K) with(kEncodingIq1S)   \
  with(kEncodingIq1M) with(kEncodingIq2Xxs) with(kEncodingIq2Xs) with(kEncodingIq2S)                  \
  with(kEncodingIq3Xxs) with(kEncodingIq3S) with(kEncodingIq4Xs)
#define FATHOM_FIXED_ENCODINGS(with)                                                                  \
  with(kEncodingQ8_0) with(kEncodingMxfp4) with(kEncodingFp4) with(kEncodingQ2K) with(kEncodingQ4K)   \
  FATHOM_FLOAT_ENCODINGS(with)
// clang-format on

// With the width of the codes as a constant.
void affine_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  struct EncodedMatrix known = *m;
  switch (m->bits) {
#define FATHOM_CASE(width) \
  case width: known.bits = width; return fixed_dot_as(kEncodingAffine, &known, row, count, rows);
    FATHOM_CASE(2) FATHOM_CASE(3) FATHOM_CASE(4) FATHOM_CASE(5) FATHOM_CASE(6) FATHOM_CASE(8)
#undef FATHOM_CASE
    default: return;
  }
}
void dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* rows) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return fixed_dot_as(encoding, m, row, count, rows);
    FATHOM_FIXED_ENCODINGS(FATHOM_CASE)
    case kEncodingAffine: return affine_dot(m, row, count, rows);
    case kEncodingFp8: return fp8_dot(m, row, count, rows);
#undef FATHOM_CASE
    default: return;
  }
}

int decodes_all(enum Encoding) { return 1; }
void decode_affine_floats(const struct EncodedMatrix* m, int64_t row, int64_t count, float* panel,
                          int64_t stride) {
  struct EncodedMatrix known = *m;
  switch (m->bits) {
#define FATHOM_CASE(width) \
  case width: known.bits = width; return decode_floats_as(kEncodingAffine, &known, row, count, panel, stride);
    FATHOM_CASE(2) FATHOM_CASE(3) FATHOM_CASE(4) FATHOM_CASE(5) FATHOM_CASE(6) FATHOM_CASE(8)
#undef FATHOM_CASE
    default: return;
  }
}
void decode_floats(const struct EncodedMatrix* m, int64_t row, int64_t count, float* panel, int64_t stride) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return decode_floats_as(encoding, m, row, count, panel, stride);
    FATHOM_FLOAT_ENCODINGS(FATHOM_CASE)
    case kEncodingAffine: return decode_affine_floats(m, row, count, panel, stride);
#undef FATHOM_CASE
    default: return decode(m, row, count, panel, stride);
  }
}

void affine_decode(const struct EncodedMatrix* m, int64_t row, int64_t count, uint8_t* data) {
  struct EncodedMatrix known = *m;
  switch (m->bits) {
#define FATHOM_CASE(width) \
  case width: known.bits = width; return fixed_decode_as(kEncodingAffine, &known, row, count, data);
    FATHOM_CASE(2) FATHOM_CASE(3) FATHOM_CASE(4) FATHOM_CASE(5) FATHOM_CASE(6) FATHOM_CASE(8)
#undef FATHOM_CASE
    default: return;
  }
}
int64_t row_bytes(const struct EncodedMatrix* m) {
  if (is_fp8_tiles(m)) return 4 * fp8_cols(m);
  if (is_paired(m->encoding)) return pair_row_bytes(m);
  return is_block256(m->encoding) || is_run(m->encoding) ? fixed_row_bytes(m) : 0;
}
void prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  if (is_fp8_tiles(m)) return fp8_prepare(m, in, out);
  if (is_paired(m->encoding)) return pair_prepare(m, in, out);
  fixed_prepare(m, in, out);
}
int64_t panel_row_bytes(const struct EncodedMatrix* m) {
  return is_fp8_tiles(m) ? 4 * fp8_panel_stride(m) : fixed_panel_row_bytes(m);
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
  case encoding: return fixed_decode_as(encoding, m, row, count, data);
    FATHOM_FIXED_ENCODINGS(FATHOM_CASE)
    case kEncodingAffine: return affine_decode(m, row, count, data);
    case kEncodingFp8: return fp8_decode(m, row, count, data);
#undef FATHOM_CASE
    default: return;
  }
}

void dot_decoded(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  if (panel->encoding != kEncodingFp8) return fixed_dot_panel(panel, rows);
  const struct Panel floats = {.data = (const float*)panel->data,
                               .rows = panel->rows,
                               .stride = panel->row_bytes / 4,
                               .cols = (panel->cols + 31) / 32 * 32};
  const struct DotRows in = {.in = (const float* const*)rows->in, .out = rows->out, .rows = rows->rows};
  dot_panel(&floats, &in);
}

// Scales whose products with codes and with the scales of activations stay within float32; others go another way.
int row_is_exact(const struct EncodedMatrix* m, int64_t row) {
  enum { kFar = 80 };
  const int64_t blocks = (m->cols + 31) / 32;
  if (m->encoding == kEncodingFp8) return scales_are_within(row_scales(m, row), blocks, 127 - 40, 134);
  if (m->encoding == kEncodingFp4)
    return scales_are_within(row_scales(m, row), blocks, 127 - kFar, 127 + kFar);
  if (m->encoding != kEncodingMxfp4) return 1;
  const uint8_t* data = row_data(m, row);
  for (int64_t b = 0; b < blocks; ++b)
    if ((uint8_t)(data[17 * b] - (127 - kFar)) > 2 * kFar) return 0;
  return 1;
}

struct Kernels avx2_table() {
  grids = iq_tables();
  struct Kernels table = kernel_table("avx2");
  table.decodes = decodes_all;
  table.decode = decode_floats;
  table.bf16_row_bytes = row_bytes;
  table.bf16_prepare = prepare;
  table.bf16_row_is_exact = row_is_exact;
  table.bf16_fused_rows = kFusedRows;
  table.bf16_dot = dot;
  table.bf16_panel_row_bytes = panel_row_bytes;
  table.bf16_decode = decode_panel;
  table.bf16_dot_panel = dot_decoded;
  table.fp4_dots = fp4_dots;
  return table;
}

}  // namespace

const struct Kernels* avx2_kernels(void) {
  static const struct Kernels table = avx2_table();
  return &table;
}

}  // namespace fathom::cpu
