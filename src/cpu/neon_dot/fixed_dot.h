// Weight rows times fixed-point rows (fixed_rows.h), the codes unpacked in registers or read from a panel. Both
// are one function, so their sums are the same to the bit.
//
// A panel row: codes [cols] as signed bytes in the order of FixedRow's, then for blocks of 256 their heads, for
// blocks of 32 their scales.
#pragma once

#include "cpu/neon_dot/fixed_codes.h"

namespace fathom::cpu {
namespace {

// Activation rows at once, of a panel's and of encoded weights'.
enum { kPanelTileRows = 4, kFusedTileRows = 2 };

// What a weight row is read from; in a panel only `panel` is used.
struct WeightRow {
  const uint8_t* data;
  const uint8_t* scales;
  const uint8_t* panel;
};

FATHOM_INLINE Codes load_codes(const uint8_t* p) { return codes_of(vld1q_u8(p), vld1q_u8(p + 16)); }
FATHOM_INLINE void store_codes(uint8_t* p, Codes codes) {
  vst1q_s8((int8_t*)p, codes.first);
  vst1q_s8((int8_t*)p + 16, codes.second);
}

// Sums of 32 products for the high and the low bytes of activations, on top of what is there.
FATHOM_INLINE void dot_part(Codes codes, const int8_t* q, I* high, I* low) {
  *high = vdotq_s32(vdotq_s32(*high, codes.first, vld1q_s8(q)), codes.second, vld1q_s8(q + 16));
  *low = vdotq_s32(vdotq_s32(*low, codes.first, vld1q_s8(q + 32)), codes.second, vld1q_s8(q + 48));
}
// Below 2^24 either sum is exact in float32: at most 64 products of a lane, each at most 43 * 31 * 128.
FATHOM_INLINE F joined(I high, I low) { return f_fma(f_from_i(high), f_set(256.0f), f_from_i(low)); }

// `rows` and `is_panel` are constants where this is inlined.
FATHOM_INLINE void blocks_dot(enum Encoding encoding, const int is_panel, struct WeightRow weight, int64_t cols,
                              const struct FixedRow* in, const int rows, float* const* out, int64_t at) {
  F sum[kPanelTileRows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) sum[r] = f_zero();
  const uint8_t* block = weight.data;
  const struct BlockHead* heads = is_panel ? (const struct BlockHead*)(weight.panel + cols) : NULL;
  for (int64_t b = 0; b < cols / 256; ++b) {
    struct BlockHead own;
    if (!is_panel) block_head(encoding, block, &own);
    const struct BlockHead* head = is_panel ? heads + b : &own;
    I high[kPanelTileRows], low[kPanelTileRows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) high[r] = low[r] = i_set(0);
#pragma GCC unroll 8
    for (int part = 0; part < 8; ++part) {
      const Codes codes = is_panel ? load_codes(weight.panel + 256 * b + 32 * part)
                                   : part_codes(encoding, block, head, part);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const int8_t* q = in[r].q + 512 * b + 64 * part;
        if (encoding == kEncodingQ2K) {
          dot_part(codes, q, &high[r], &low[r]);
          continue;
        }
        I part_high = i_set(0), part_low = i_set(0);
        dot_part(codes, q, &part_high, &part_low);
        high[r] = vmlaq_n_s32(high[r], part_high, head->scale[part]);
        low[r] = vmlaq_n_s32(low[r], part_low, head->scale[part]);
      }
    }
    const int floors = floor_count(encoding);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      sum[r] = vfmaq_n_f32(sum[r], joined(high[r], low[r]), head->factor * in[r].scales[b]);
#pragma GCC unroll 4
      for (int k = 0; k < floors; k += kLanes)
        sum[r] = vfmsq_f32(sum[r], f_load(head->floor + k), f_load(in[r].sums + floors * b + k));
    }
    if (!is_panel) block += block256_bytes(encoding);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) out[r][at] = f_sum(sum[r]);
}

// Even and odd blocks have sums of their own: one chain would wait for itself.
FATHOM_INLINE void runs_dot(enum Encoding encoding, const int is_panel, struct WeightRow weight, int64_t cols,
                            const struct FixedRow* in, const int rows, float* const* out, int64_t at) {
  F sum[2][kPanelTileRows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) sum[0][r] = sum[1][r] = f_zero();
  const int64_t blocks = cols / 32;
  const float* scales = is_panel ? (const float*)(weight.panel + cols) : NULL;
  for (int64_t first = 0; first < blocks; first += 2) {
#pragma GCC unroll 2
    for (int second = 0; second < 2; ++second) {
      const int64_t b = first + second;
      if (second == 1 && b == blocks) break;
      const uint8_t* p = is_panel ? NULL : weight.data + b * run_bytes(encoding);
      const Codes codes = is_panel ? load_codes(weight.panel + 32 * b) : run_codes(encoding, p);
      const float scale = is_panel ? scales[b] : run_scale(encoding, p, weight.scales, b);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        I high = i_set(0), low = i_set(0);
        dot_part(codes, in[r].q + 64 * b, &high, &low);
        sum[second][r] = vfmaq_n_f32(sum[second][r], joined(high, low), scale * in[r].scales[b]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) out[r][at] = f_sum(f_add(sum[0][r], sum[1][r]));
}

FATHOM_INLINE void row_dot(enum Encoding encoding, const int is_panel, struct WeightRow weight, int64_t cols,
                           const struct FixedRow* in, const int rows, float* const* out, int64_t at) {
  if (is_block256(encoding)) return blocks_dot(encoding, is_panel, weight, cols, in, rows, out, at);
  runs_dot(encoding, is_panel, weight, cols, in, rows, out, at);
}

FATHOM_INLINE void fixed_dot_rows(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                  int64_t count, const struct Bf16Rows* in, const int rows) {
  struct FixedRow fixed[kFusedTileRows];
  for (int r = 0; r < rows; ++r) fixed[r] = fixed_row(encoding, in->in[r], m->cols);
  for (int64_t w = 0; w < count; ++w) {
    const struct WeightRow weight = {m->data + (row + w) * m->row_bytes,
                                     m->scales + ((row + w) >> m->scale_row_shift) * m->scale_row_bytes, NULL};
    row_dot(encoding, 0, weight, m->cols, fixed, rows, in->out, w);
  }
}
FATHOM_INLINE void fixed_dot_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t count,
                                const struct Bf16Rows* in) {
  if (in->rows == 2) return fixed_dot_rows(encoding, m, row, count, in, 2);
  fixed_dot_rows(encoding, m, row, count, in, 1);
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
      const uint8_t* scales = m->scales + (r >> m->scale_row_shift) * m->scale_row_bytes;
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

// All weight rows of a panel times `rows` activation rows.
FATHOM_INLINE void panel_strip(enum Encoding encoding, const struct Bf16Panel* panel, const struct Bf16Rows* in,
                               int64_t first, const int rows) {
  struct FixedRow fixed[kPanelTileRows];
  for (int r = 0; r < rows; ++r) fixed[r] = fixed_row(encoding, in->in[first + r], panel->cols);
  for (int64_t w = 0; w < panel->rows; ++w) {
    const struct WeightRow weight = {NULL, NULL, panel->data + w * panel->row_bytes};
    row_dot(encoding, 1, weight, panel->cols, fixed, rows, in->out + first, w);
  }
}
FATHOM_INLINE void fixed_panel_as(enum Encoding encoding, const struct Bf16Panel* panel,
                                  const struct Bf16Rows* in) {
  int64_t r = 0;
  for (; r + kPanelTileRows <= in->rows; r += kPanelTileRows) panel_strip(encoding, panel, in, r, kPanelTileRows);
  for (; r < in->rows; ++r) panel_strip(encoding, panel, in, r, 1);
}

}  // namespace
}  // namespace fathom::cpu
