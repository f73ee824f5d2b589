// Encoded weight rows times one or two fixed-point rows, unpacked in registers (fixed_rows.h).
#pragma once

#include "cpu/avx2/fixed_pairs.h"
#include "cpu/avx2/fixed_runs.h"

namespace fathom::cpu {
namespace {

// Columns after which the integer sums of a block are converted: with 256 of these codes and scales they could
// pass 2^31.
FATHOM_INLINE int parts_of_sum(enum Encoding encoding) {
  return encoding == kEncodingQ6K || encoding == kEncodingIq4Xs ? 4 : 8;
}
// The scales of a part, in the lanes of its columns.
FATHOM_INLINE I part_scales(enum Encoding encoding, const struct BlockScales* scales, int part) {
  if (has_wide_scales(encoding)) return i_set(scales->scale[part]);
  return _mm256_blend_epi32(i_set(scales->scale[2 * part]), i_set(scales->scale[2 * part + 1]), 0xF0);
}
// Scales are broadcast from memory, which costs the load unit only; a compiler that knows where they come from
// would permute registers instead.
FATHOM_INLINE void block_scales_in_memory(enum Encoding encoding, const uint8_t* block,
                                          struct BlockScales* out) {
  block_scales(encoding, block, out);
  asm("" : "+m"(out->scale));
}
FATHOM_INLINE I dot_words(I even, I odd, const uint8_t* q) {
  return i_add(_mm256_madd_epi16(even, i_load(q)), _mm256_madd_epi16(odd, i_load(q + 32)));
}
// sum -= floor . sums, lane by lane
FATHOM_INLINE F without_floors(enum Encoding encoding, F sum, const float* floor, const float* sums) {
  for (int k = 0; k < floor_count(encoding); k += kLanes)
    sum = _mm256_fnmadd_ps(f_load(floor + k), f_load(sums + k), sum);
  return sum;
}

FATHOM_INLINE void blocks_dot(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                              const struct FixedRow* in, const int rows, float* const* out, int64_t at) {
  const uint8_t* block = row_data(m, row);
  F sum[2] = {f_zero(), f_zero()};
  for (int64_t b = 0; b < m->cols / 256; ++b, block += block256_bytes(encoding)) {
    ask_for(block + m->row_bytes, block256_bytes(encoding));
    struct BlockScales scales;
    block_scales_in_memory(encoding, block, &scales);
    I integers[2] = {i_set(0), i_set(0)};
#pragma GCC unroll 8
    for (int part = 0; part < 8; ++part) {
      I even, odd;
      block_part(encoding, block, part, &even, &odd);
      const I scale = part_scales(encoding, &scales, part);
      for (int r = 0; r < rows; ++r) {
        const I products = dot_words(even, odd, in[r].q + 512 * b + 64 * part);
        integers[r] = i_add(integers[r], _mm256_mullo_epi32(products, scale));
      }
      if ((part + 1) % parts_of_sum(encoding) != 0) continue;
      for (int r = 0; r < rows; ++r) {
        sum[r] = f_fma(f_from_i(integers[r]), f_set(scales.factor * in[r].scales[b]), sum[r]);
        integers[r] = i_set(0);
      }
    }
    for (int r = 0; r < rows; ++r)
      sum[r] = without_floors(encoding, sum[r], scales.floor, in[r].sums + floor_count(encoding) * b);
  }
  for (int r = 0; r < rows; ++r) out[r][at] = f_sum(sum[r]);
}

// `weights` rows side by side: one chain of float32 sums would wait for itself.
FATHOM_INLINE void runs_dot(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                            const int weights, const struct FixedRow* in, const int rows, float* const* out,
                            int64_t at) {
  const int bits = encoding == kEncodingAffine ? m->bits : 0;
  const int bytes = run_bytes(encoding, bits);
  const int64_t blocks = m->cols / 32;
  const uint8_t *codes[2], *scales[2], *biases[2];
  F sum[2][2];
  enum { kBiases = 64 };  // a multiple of the lanes
  float bias[2][kBiases];
  F bias_sum[2][2];
  for (int w = 0; w < weights; ++w) {
    codes[w] = row_data(m, row + w);
    scales[w] = row_scales(m, row + w);
    biases[w] = row_biases(m, row + w);
    for (int r = 0; r < rows; ++r) {
      sum[w][r] = f_zero();
      bias_sum[w][r] = f_zero();
    }
  }
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t last[2][64];
#pragma GCC unroll 2
    for (int w = 0; w < weights; ++w) {
      const uint8_t* p = codes[w] + b * bytes;
      ask_for(p + weights * m->row_bytes, bytes);
      if (encoding == kEncodingAffine && affine_reads_beyond(bits, blocks - b)) {
        memset(last[w], 0, sizeof last[w]);
        memcpy(last[w], p, (size_t)bytes);
        p = last[w];
      }
      I even, odd;
      run_words(encoding, bits, p, &even, &odd);
      const float scale = run_scale(encoding, m, p, scales[w], b);
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) {
        const I products = dot_words(even, odd, in[r].q + 64 * b);
        sum[w][r] = f_fma(f_from_i(products), f_set(scale * in[r].scales[b]), sum[w][r]);
      }
      if (encoding != kEncodingAffine) continue;
      const int64_t place = b % kBiases;
      bias[w][place] = affine_number(biases[w], b * 32 / m->group, m->scale_type);
      if (place + 1 < kBiases && b + 1 < blocks) continue;
      for (int r = 0; r < rows; ++r)
        bias_sum[w][r] = add_biases(bias_sum[w][r], bias[w], in[r].sums + b - place, place + 1);
    }
  }
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) out[r][at + w] = f_sum(sum[w][r]) + f_sum(bias_sum[w][r]);
}

FATHOM_INLINE void fixed_dot_rows(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                  int64_t count, const struct Bf16Rows* in, const int rows) {
  int64_t w = 0;
  if (is_paired(encoding)) {
    for (; w + 2 <= count; w += 2) pairs_dot(encoding, m, row + w, 2, in, rows, w);
    for (; w < count; ++w) pairs_dot(encoding, m, row + w, 1, in, rows, w);
    return;
  }
  struct FixedRow fixed[2];
  for (int r = 0; r < rows; ++r) fixed[r] = fixed_row(encoding, in->in[r], m->cols);
  if (is_block256(encoding)) {
    for (; w < count; ++w) blocks_dot(encoding, m, row + w, fixed, rows, in->out, w);
    return;
  }
  for (; w + 2 <= count; w += 2) runs_dot(encoding, m, row + w, 2, fixed, rows, in->out, w);
  for (; w < count; ++w) runs_dot(encoding, m, row + w, 1, fixed, rows, in->out, w);
}
FATHOM_INLINE void fixed_dot_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                int64_t count, const struct Bf16Rows* in) {
  if (in->rows == 2) return fixed_dot_rows(encoding, m, row, count, in, 2);
  fixed_dot_rows(encoding, m, row, count, in, 1);
}

}  // namespace
}  // namespace fathom::cpu
