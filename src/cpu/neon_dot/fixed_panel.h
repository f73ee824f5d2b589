// Panels of unpacked weight rows times many fixed-point rows; the order of summation is fixed_dot.h's.
//
// A panel row: codes [cols] as signed bytes in the order of FixedRow's, then for blocks of 256 their heads, for
// blocks of 32 their scales.
#pragma once

#include "cpu/neon_dot/fixed_dot.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE void store_codes(uint8_t* p, Codes codes) {
  vst1q_s8((int8_t*)p, codes.first);
  vst1q_s8((int8_t*)p + 16, codes.second);
}
static int64_t fixed_panel_row_bytes(const struct EncodedMatrix* m) {
  const int64_t numbers =
      is_block256(m->encoding) ? m->cols / 256 * (int64_t)sizeof(struct BlockHead) : m->cols / 32 * 4;
  // Off the multiples of 4 KiB, where rows would compete for the same few places of the first cache.
  return (m->cols + numbers + 63) / 64 * 64 + 64;
}
FATHOM_INLINE void fixed_decode_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t count, uint8_t* data) {
  const int64_t row_bytes = fixed_panel_row_bytes(m);
  for (int64_t r = row; r < row + count; ++r, data += row_bytes) {
    const uint8_t* p = m->data + r * m->row_bytes;
    if (!is_block256(encoding)) {
      const uint8_t* scales = scales_of(m, r);
      float* out = (float*)(data + m->cols);
      for (int64_t b = 0; b < m->cols / 32; ++b, p += run_bytes(encoding)) {
        store_codes(data + 32 * b, run_codes(encoding, p));
        out[b] = run_scale(encoding, p, scales, b);
      }
      continue;
    }
    struct BlockHead* heads = (struct BlockHead*)(data + m->cols);
    for (int64_t b = 0; b < m->cols / 256; ++b, p += block256_bytes(encoding)) {
      block_head(encoding, p, &heads[b]);
#pragma GCC unroll 8
      for (int part = 0; part < 8; ++part)
        store_codes(data + 256 * b + 32 * part, part_codes(encoding, p, &heads[b], part));
    }
  }
}

// Four weight rows of a panel, which stay in the first cache while all activation rows pass by.
FATHOM_INLINE void panel_strip(enum Encoding encoding, const struct Bf16Panel* panel, int64_t first,
                               const struct Bf16Rows* in) {
  const int64_t count = panel->rows - first;
  struct WeightRows weights;
  for (int w = 0; w < kWeights; ++w)
    weights.panel[w] = panel->data + (w < count ? first + w : panel->rows - 1) * panel->row_bytes;
  for (int64_t m = 0; m < in->rows; m += kMostRows) {
    const int is_last = m + 1 == in->rows;
    const struct FixedRow fixed[kMostRows] = {
        fixed_row(encoding, in->in[m], panel->cols),
        fixed_row(encoding, in->in[is_last ? m : m + 1], panel->cols)};
    if (is_last)
      rows_dot(encoding, 1, &weights, panel->cols, fixed, 1, in->out + m, first, count);
    else
      rows_dot(encoding, 1, &weights, panel->cols, fixed, 2, in->out + m, first, count);
  }
}
FATHOM_INLINE void fixed_panel_as(enum Encoding encoding, const struct Bf16Panel* panel,
                                  const struct Bf16Rows* in) {
  for (int64_t first = 0; first < panel->rows; first += kWeights) panel_strip(encoding, panel, first, in);
}

}  // namespace
}  // namespace fathom::cpu
