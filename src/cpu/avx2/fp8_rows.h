// e4m3 weights with a scale for every tile of 32 x 32, in float32. Of every 32 columns, vector j has the
// columns 4 * lane + j: one load gives the bytes of four vectors. Activations stand in the same order.
//
// The scales are powers of two, so multiplying the activations with them, once for the rows of a tile, gives
// the same products to the bit as multiplying the weights.
#pragma once

#include "cpu/avx2/fixed_rows.h"

namespace fathom::cpu {
namespace {

enum { kFp8Slice = 1024, kFp8Rows = 2 };

FATHOM_INLINE int is_fp8_tiles(const struct EncodedMatrix* m) {
  return m->encoding == kEncodingFp8 && m->scale_row_shift == 5;
}
FATHOM_INLINE int64_t fp8_cols(const struct EncodedMatrix* m) { return (m->cols + 31) / 32 * 32; }

FATHOM_INLINE void columns_apart(const float* in, F* out) {
  F x[4];
  for (int i = 0; i < 4; ++i)
    x[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(in + 4 * i)), _mm_loadu_ps(in + 16 + 4 * i),
                                1);
  const F a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
  const F c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
  out[0] = _mm256_shuffle_ps(a, c, 0x44);
  out[1] = _mm256_shuffle_ps(a, c, 0xEE);
  out[2] = _mm256_shuffle_ps(b, d, 0x44);
  out[3] = _mm256_shuffle_ps(b, d, 0xEE);
}
static void fp8_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  float* row = (float*)out;
  for (int64_t k = 0; k < m->cols; k += 32) {
    float last[32] = {0};
    const float* source = in + k;
    if (m->cols - k < 32) {
      memcpy(last, source, (size_t)(m->cols - k) * sizeof(float));
      source = last;
    }
    F x[4];
    columns_apart(source, x);
    for (int j = 0; j < 4; ++j) f_store(row + k + 8 * j, x[j]);
  }
}

// Times 2^-120.
FATHOM_INLINE void fp8_vectors(I codes, F* out) {
  const I mask = i_set((int32_t)0x87F00000u);
  out[0] = f_bits(i_and(i_right_signed(i_left(codes, 24), 4), mask));
  out[1] = f_bits(i_and(i_right_signed(i_left(codes, 16), 4), mask));
  out[2] = f_bits(i_and(i_right_signed(i_left(codes, 8), 4), mask));
  out[3] = f_bits(i_and(i_right_signed(codes, 4), mask));
}
FATHOM_INLINE I fp8_codes(const struct EncodedMatrix* m, const uint8_t* row, int64_t k) {
  if (__builtin_expect(m->cols - k >= 32, 1)) return i_load(row + k);
  uint8_t last[32] = {0};
  memcpy(last, row + k, (size_t)(m->cols - k));
  return i_load(last);
}

static int scales_are_within(const uint8_t* scales, int64_t count, uint8_t lowest, uint8_t highest) {
  const I least = _mm256_set1_epi8((char)lowest), range = _mm256_set1_epi8((char)(highest - lowest));
  int64_t b = 0;
  for (; b + 32 <= count; b += 32) {
    const I above = _mm256_sub_epi8(i_load(scales + b), least);
    const I inside = _mm256_cmpeq_epi8(_mm256_min_epu8(above, range), above);
    if (_mm256_movemask_epi8(inside) != -1) return 0;
  }
  for (; b < count; ++b)
    if (scales[b] < lowest || scales[b] > highest) return 0;
  return 1;
}

// A slice of columns of `weights` rows on top of `sums`. `x` is scaled by 2^60 and the tiles' scales.
FATHOM_INLINE void fp8_tile(const struct EncodedMatrix* m, int64_t row, const int weights, int64_t begin,
                            int64_t end, const float (*x)[kFp8Slice], const int rows, F (*sums)[kFp8Rows]) {
  F sum[4][kFp8Rows];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) sum[w][r] = sums[w][r];
  for (int64_t k = begin; k < end; k += 32) {
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      F value[4];
      if (k % 64 == 0) ask_for(row_data(m, row + w + weights) + k, 64);
      fp8_vectors(fp8_codes(m, row_data(m, row + w), k), value);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        for (int r = 0; r < rows; ++r)
          sum[w][r] = f_fma(value[j], f_load(x[r] + (k - begin) + 8 * j), sum[w][r]);
    }
  }
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) sums[w][r] = sum[w][r];
}

// Up to 32 rows that share their scales.
FATHOM_INLINE void fp8_tile_rows(const struct EncodedMatrix* m, int64_t row, int64_t count,
                                 const struct Bf16Rows* in, const int rows, int64_t at) {
  const uint8_t* scales = row_scales(m, row);
  const int64_t cols = fp8_cols(m);
  F sums[32][kFp8Rows];
  for (int64_t w = 0; w < count; ++w)
    for (int r = 0; r < rows; ++r) sums[w][r] = f_zero();
  alignas(32) float x[kFp8Rows][kFp8Slice];
  for (int64_t begin = 0; begin < cols; begin += kFp8Slice) {
    const int64_t end = begin + kFp8Slice < cols ? begin + kFp8Slice : cols;
    for (int r = 0; r < rows; ++r)
      for (int64_t k = begin; k < end; k += 32) {
        const F scale = f_set(e8m0((uint8_t)(scales[k / 32] + 60)));
        for (int v = 0; v < 32; v += kLanes)
          f_store(x[r] + (k - begin) + v, f_mul(f_load((const float*)in->in[r] + k + v), scale));
      }
    int64_t w = 0;
    for (; w + 4 <= count; w += 4) fp8_tile(m, row + w, 4, begin, end, x, rows, sums + w);
    for (; w < count; ++w) fp8_tile(m, row + w, 1, begin, end, x, rows, sums + w);
  }
  for (int64_t w = 0; w < count; ++w)
    for (int r = 0; r < rows; ++r) in->out[r][at + w] = f_sum(sums[w][r]) * 0x1p60f;
}
static void fp8_dot(const struct EncodedMatrix* m, int64_t row, int64_t count, const struct Bf16Rows* in) {
  for (int64_t done = 0; done < count;) {
    const int64_t to_next = 32 - (row + done) % 32;
    const int64_t some = count - done < to_next ? count - done : to_next;
    if (in->rows == 2)
      fp8_tile_rows(m, row + done, some, in, 2, done);
    else
      fp8_tile_rows(m, row + done, some, in, 1, done);
    done += some;
  }
}

// A panel for dot_panel of generic/dot.h.
FATHOM_INLINE int64_t fp8_panel_stride(const struct EncodedMatrix* m) { return fp8_cols(m) + 16; }
static void fp8_decode(const struct EncodedMatrix* m, int64_t row, int64_t count, uint8_t* data) {
  for (int64_t r = row; r < row + count; ++r, data += 4 * fp8_panel_stride(m)) {
    const uint8_t* scales = row_scales(m, r);
    for (int64_t k = 0; k < fp8_cols(m); k += 32) {
      F value[4];
      fp8_vectors(fp8_codes(m, row_data(m, r), k), value);
      // Other scales than these are not multiplied here (fp8_row_is_exact).
      const F scale = f_set(e8m0((uint8_t)(scales[k / 32] > 134 ? 254 : scales[k / 32] + 120)));
      for (int j = 0; j < 4; ++j) f_store((float*)data + k + 8 * j, f_mul(value[j], scale));
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
