// Weight rows times fixed-point rows (fixed_rows.h), the codes unpacked in registers or read from a panel. Both
// are one function, so their sums are the same to the bit.
//
// Order of summation of (row, output): the integer sums of a block over all its columns, then
// sum += (256 * high + low) * (scale of the weights * scale of the activations), then sum -= the floors times the
// sums of activations. Four weight rows are the lanes of a vector.
#pragma once

#include "cpu/neon_dot/fixed_codes.h"

namespace fathom::cpu {
namespace {

enum { kWeights = 4, kMostRows = 2 };

// What four weight rows are read from: encoded, or in a panel (fixed_panel.h).
struct WeightRows {
  const uint8_t* data[kWeights];
  const uint8_t* scales[kWeights];
  const uint8_t* panel[kWeights];
};

FATHOM_INLINE Codes load_codes(const uint8_t* p) { return codes_of(vld1q_u8(p), vld1q_u8(p + 16)); }
FATHOM_INLINE F four(const float* x) {
  const F lanes = {x[0], x[1], x[2], x[3]};
  return lanes;
}

// 32 columns of an activation row, the highest bytes first.
typedef struct {
  int8x16_t bytes[kMostPlanes][2];
} Part;
FATHOM_INLINE Part load_part(const int8_t* q, const int planes) {
  Part part;
#pragma GCC unroll 3
  for (int plane = 0; plane < planes; ++plane) {
    part.bytes[plane][0] = vld1q_s8(q + 32 * plane);
    part.bytes[plane][1] = vld1q_s8(q + 32 * plane + 16);
  }
  return part;
}
FATHOM_INLINE I dot32(I sum, Codes codes, const int8x16_t* q) {
  return vdotq_s32(vdotq_s32(sum, codes.first, q[0]), codes.second, q[1]);
}
// The lanes of each of four vectors added up. At most 256 * 43 * 31 * 128, far from overflow.
FATHOM_INLINE F add_lanes(const I* x) {
  return f_from_i(vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3])));
}
FATHOM_INLINE F joined(I (*x)[kWeights], const int planes) {
  F sum = add_lanes(x[0]);
#pragma GCC unroll 3
  for (int plane = 1; plane < planes; ++plane) sum = f_fma(sum, f_set(256.0f), add_lanes(x[plane]));
  return sum;
}

// Of one row: sums of activations times the floors of four weight rows.
FATHOM_INLINE F floor_products(enum Encoding encoding, const struct BlockHead* const* head, const float* sums) {
  F products[kWeights];
#pragma GCC unroll 4
  for (int w = 0; w < kWeights; ++w) {
    products[w] = f_mul(f_load(head[w]->floor), f_load(sums));
#pragma GCC unroll 4
    for (int k = kLanes; k < floor_count(encoding); k += kLanes)
      products[w] = f_fma(f_load(head[w]->floor + k), f_load(sums + k), products[w]);
  }
  return vpaddq_f32(vpaddq_f32(products[0], products[1]), vpaddq_f32(products[2], products[3]));
}

// `rows` and `is_panel` are constants where this is inlined.
FATHOM_INLINE void blocks_dot(enum Encoding encoding, const int is_panel, const struct WeightRows* weights,
                              int64_t cols, const struct FixedRow* in, const int rows, F* sum) {
  for (int64_t b = 0; b < cols / 256; ++b) {
    struct BlockHead own[kWeights];
    const uint8_t* block[kWeights];
    const struct BlockHead* head[kWeights];
    I total[kMostRows][2][kWeights];
    float factor[kWeights];
#pragma GCC unroll 4
    for (int w = 0; w < kWeights; ++w) {
      block[w] = is_panel ? weights->panel[w] + 256 * b : weights->data[w] + block256_bytes(encoding) * b;
      head[w] = is_panel ? (const struct BlockHead*)(weights->panel[w] + cols) + b : &own[w];
      if (!is_panel) block_head(encoding, block[w], &own[w]);
      factor[w] = head[w]->factor;
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) total[r][0][w] = total[r][1][w] = i_set(0);
    }
#pragma GCC unroll 8
    for (int part = 0; part < 8; ++part) {
      Part x[kMostRows];
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) x[r] = load_part(in[r].q + 512 * b + 64 * part, 2);
#pragma GCC unroll 4
      for (int w = 0; w < kWeights; ++w) {
        const Codes codes =
            is_panel ? load_codes(block[w] + 32 * part) : part_codes(encoding, block[w], head[w], part);
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
          for (int plane = 0; plane < 2; ++plane) {
            I* to = &total[r][plane][w];
            *to = encoding == kEncodingQ2K
                      ? dot32(*to, codes, x[r].bytes[plane])
                      : vmlaq_n_s32(*to, dot32(i_set(0), codes, x[r].bytes[plane]), head[w]->scale[part]);
          }
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) {
      sum[r] = f_fma(joined(total[r], 2), vmulq_n_f32(four(factor), in[r].scales[b]), sum[r]);
      const int floors = floor_count(encoding);
      if (floors != 0) sum[r] = f_sub(sum[r], floor_products(encoding, head, in[r].sums + floors * b));
    }
  }
}

FATHOM_INLINE void runs_dot(enum Encoding encoding, const int is_panel, const struct WeightRows* weights,
                            int64_t cols, const struct FixedRow* in, const int rows, F* sum) {
  const int planes = plane_count(encoding);
  for (int64_t b = 0; b < cols / 32; ++b) {
    Codes codes[kWeights];
    float scale[kWeights];
#pragma GCC unroll 4
    for (int w = 0; w < kWeights; ++w) {
      if (is_panel) {
        codes[w] = load_codes(weights->panel[w] + 32 * b);
        scale[w] = ((const float*)(weights->panel[w] + cols))[b];
      } else {
        const uint8_t* p = weights->data[w] + b * run_bytes(encoding);
        codes[w] = run_codes(encoding, p);
        scale[w] = run_scale(encoding, p, weights->scales[w], b);
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) {
      const Part x = load_part(in[r].q + 32 * planes * b, planes);
      I total[kMostPlanes][kWeights];
#pragma GCC unroll 4
      for (int w = 0; w < kWeights; ++w)
#pragma GCC unroll 3
        for (int plane = 0; plane < planes; ++plane)
          total[plane][w] = dot32(i_set(0), codes[w], x.bytes[plane]);
      sum[r] = f_fma(joined(total, planes), vmulq_n_f32(four(scale), in[r].scales[b]), sum[r]);
    }
  }
}

// Results of four weight rows, or of the `count` that are there, from `at` on.
FATHOM_INLINE void rows_dot(enum Encoding encoding, const int is_panel, const struct WeightRows* weights,
                            int64_t cols, const struct FixedRow* in, const int rows, float* const* out,
                            int64_t at, int64_t count) {
  F sum[kMostRows];
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) sum[r] = f_zero();
  if (is_block256(encoding))
    blocks_dot(encoding, is_panel, weights, cols, in, rows, sum);
  else
    runs_dot(encoding, is_panel, weights, cols, in, rows, sum);
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) f_store_part(out[r] + at, sum[r], count);
}

FATHOM_INLINE const uint8_t* scales_of(const struct EncodedMatrix* m, int64_t row) {
  return m->scales + (row >> m->scale_row_shift) * m->scale_row_bytes;
}
FATHOM_INLINE void fixed_dot_rows(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                  int64_t count, const struct Bf16Rows* in, const int rows) {
  struct FixedRow fixed[kMostRows];
  for (int r = 0; r < rows; ++r) fixed[r] = fixed_row(encoding, in->in[r], m->cols);
  for (int64_t first = 0; first < count; first += kWeights) {
    struct WeightRows weights;
    for (int w = 0; w < kWeights; ++w) {
      const int64_t at = row + (first + w < count ? first + w : count - 1);
      weights.data[w] = m->data + at * m->row_bytes;
      weights.scales[w] = scales_of(m, at);
    }
    rows_dot(encoding, 0, &weights, m->cols, fixed, rows, in->out, first, count - first);
  }
}
FATHOM_INLINE void fixed_dot_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t count,
                                const struct Bf16Rows* in) {
  if (in->rows == 2) return fixed_dot_rows(encoding, m, row, count, in, 2);
  fixed_dot_rows(encoding, m, row, count, in, 1);
}

}  // namespace
}  // namespace fathom::cpu
