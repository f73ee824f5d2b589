// Panels of unpacked weight rows times many fixed-point rows; the same integer sums and the same order of
// float32 sums as fixed_dot.h.
//
// A panel row of blocks of 256: words (code times integer scale) [cols], then for each block a factor and its
// floors. Of runs of 32: words (codes) [cols], the scale of each run, for affine codes also its bias.
#pragma once

#include "cpu/avx2/fixed_dot.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int panel_floats(enum Encoding encoding) {
  return 1 + (encoding == kEncodingAffine ? 1 : floor_count(encoding));
}
static int64_t fixed_panel_row_bytes(const struct EncodedMatrix* m) {
  const int64_t blocks = m->cols / block_columns(m->encoding);
  // Off the multiples of 4 KiB, where the rows of a tile would compete for places of the first cache.
  return (2 * m->cols + 4 * blocks * panel_floats(m->encoding) + 63) / 64 * 64 + 64;
}

FATHOM_INLINE void store_words(uint8_t* out, I even, I odd) {
  _mm256_storeu_si256((__m256i*)out, even);
  _mm256_storeu_si256((__m256i*)(out + 32), odd);
}
FATHOM_INLINE void panel_of_blocks(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   uint8_t* out) {
  const uint8_t* block = row_data(m, row);
  float* factors = (float*)(out + 2 * m->cols);
  float* floors = factors + m->cols / 256;
  for (int64_t b = 0; b < m->cols / 256; ++b, block += block256_bytes(encoding), out += 512) {
    struct BlockScales scales;
    block_scales(encoding, block, &scales);
    factors[b] = scales.factor;
    memcpy(floors + floor_count(encoding) * b, scales.floor, (size_t)(4 * floor_count(encoding)));
#pragma GCC unroll 8
    for (int part = 0; part < 8; ++part) {
      I even, odd;
      block_part(encoding, block, part, &even, &odd);
      const I wide = part_scales(&scales, part);
      const I scale = _mm256_packs_epi32(wide, wide);
      store_words(out + 64 * part, _mm256_mullo_epi16(even, scale), _mm256_mullo_epi16(odd, scale));
    }
  }
}
FATHOM_INLINE void panel_of_runs(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, uint8_t* out) {
  const int bits = encoding == kEncodingAffine ? m->bits : 0;
  const int bytes = run_bytes(encoding, bits);
  const int64_t blocks = m->cols / 32;
  const uint8_t* codes = row_data(m, row);
  float* scales = (float*)(out + 2 * m->cols);
  for (int64_t b = 0; b < blocks; ++b, codes += bytes, out += 64) {
    uint8_t last[64] = {0};
    const uint8_t* p = codes;
    if (encoding == kEncodingAffine && b + 1 == blocks) {
      memcpy(last, p, (size_t)bytes);
      p = last;
    }
    I even, odd;
    run_words(encoding, bits, p, &even, &odd);
    store_words(out, even, odd);
    scales[b] = run_scale(encoding, m, p, row_scales(m, row), b);
    if (encoding == kEncodingAffine)
      scales[blocks + b] = affine_number(row_biases(m, row), b * 32 / m->group, m->scale_type);
  }
}
FATHOM_INLINE void fixed_decode_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t count,
                                   uint8_t* data) {
  const int64_t row_bytes = fixed_panel_row_bytes(m);
  for (int64_t r = row; r < row + count; ++r, data += row_bytes) {
    if (is_block256(encoding))
      panel_of_blocks(encoding, m, r, data);
    else
      panel_of_runs(encoding, m, r, data);
  }
}

FATHOM_INLINE void block_panel_tile(enum Encoding encoding, const struct Bf16Panel* panel, int64_t weight,
                                    const int weights, const struct FixedRow* in, const int rows,
                                    float* const* out) {
  enum { kRows = 3, kWeights = 4 };
  F sums[kWeights][kRows];
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) sums[w][r] = f_zero();
  const uint8_t* first = panel->data + weight * panel->row_bytes;
  const int64_t blocks = panel->cols / 256;
  const int parts = parts_of_sum(encoding);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int begin = 0; begin < 8; begin += parts) {
      I integers[kWeights][kRows];
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w)
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) integers[w][r] = i_set(0);
      for (int half = 2 * begin; half < 2 * (begin + parts); ++half) {
        const int64_t at = 512 * b + 32 * half;
        I x[kRows];
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r) x[r] = i_load(in[r].q + at);
#pragma GCC unroll 4
        for (int w = 0; w < weights; ++w) {
          const uint8_t* words = first + w * panel->row_bytes + at;
#pragma GCC unroll 3
          for (int r = 0; r < rows; ++r)
            integers[w][r] = i_add(integers[w][r], _mm256_madd_epi16(x[r], i_load(words)));
        }
      }
#pragma GCC unroll 4
      for (int w = 0; w < weights; ++w) {
        const float* factors = (const float*)(first + w * panel->row_bytes + 2 * panel->cols);
#pragma GCC unroll 3
        for (int r = 0; r < rows; ++r)
          sums[w][r] = f_fma(f_from_i(integers[w][r]), f_set(factors[b] * in[r].scales[b]), sums[w][r]);
      }
    }
    if (floor_count(encoding) == 0) continue;
    for (int w = 0; w < weights; ++w) {
      const float* floors = (const float*)(first + w * panel->row_bytes + 2 * panel->cols) + blocks;
      for (int r = 0; r < rows; ++r)
        sums[w][r] = without_floors(encoding, sums[w][r], floors + floor_count(encoding) * b,
                                    in[r].sums + floor_count(encoding) * b);
    }
  }
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) out[r][weight + w] = f_sum(sums[w][r]);
}

FATHOM_INLINE void run_panel_tile(enum Encoding encoding, const struct Bf16Panel* panel, int64_t weight,
                                  const int weights, const struct FixedRow* in, const int rows,
                                  float* const* out) {
  enum { kRows = 2, kWeights = 4 };
  F sums[kWeights][kRows];
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) sums[w][r] = f_zero();
  const uint8_t* first = panel->data + weight * panel->row_bytes;
  const int64_t blocks = panel->cols / 32;
  for (int64_t b = 0; b < blocks; ++b) {
    I even[kRows], odd[kRows];
    F scale[kRows];
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) {
      even[r] = i_load(in[r].q + 64 * b);
      odd[r] = i_load(in[r].q + 64 * b + 32);
      scale[r] = f_set(in[r].scales[b]);
    }
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      const uint8_t* row = first + w * panel->row_bytes;
      const F weight_scale = f_set(((const float*)(row + 2 * panel->cols))[b]);
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) {
        const I products = i_add(_mm256_madd_epi16(even[r], i_load(row + 64 * b)),
                                 _mm256_madd_epi16(odd[r], i_load(row + 64 * b + 32)));
        sums[w][r] = f_fma(f_from_i(products), f_mul(weight_scale, scale[r]), sums[w][r]);
      }
    }
  }
  for (int w = 0; w < weights; ++w) {
    const float* biases = (const float*)(first + w * panel->row_bytes + 2 * panel->cols) + blocks;
    for (int r = 0; r < rows; ++r) {
      float bias_sum = 0.0f;
      if (encoding == kEncodingAffine)
        for (int64_t b = 0; b < blocks; ++b) bias_sum += biases[b] * in[r].sums[b];
      out[r][weight + w] = f_sum(sums[w][r]) + bias_sum;
    }
  }
}

FATHOM_INLINE void fixed_tile(const struct Bf16Panel* panel, int64_t weight, const int weights,
                              const struct FixedRow* in, const int rows, float* const* out) {
  if (is_block256(panel->encoding))
    block_panel_tile(panel->encoding, panel, weight, weights, in, rows, out);
  else
    run_panel_tile(panel->encoding, panel, weight, weights, in, rows < 2 ? rows : 2, out);
}
static void fixed_strip(const struct Bf16Panel* panel, int64_t weight, int weights, const struct Bf16Rows* rows) {
  const int most = is_block256(panel->encoding) ? 3 : 2;
  struct FixedRow in[3];
  for (int64_t m = 0; m < rows->rows; m += most) {
    const int count = rows->rows - m < most ? (int)(rows->rows - m) : most;
    for (int r = 0; r < count; ++r) in[r] = fixed_row(panel->encoding, rows->in[m + r], panel->cols);
    float* const* out = rows->out + m;
#define FATHOM_TILE(w, r) \
  if (weights == w && count == r) fixed_tile(panel, weight, w, in, r, out);
    FATHOM_TILE(4, 3) FATHOM_TILE(4, 2) FATHOM_TILE(4, 1) FATHOM_TILE(1, 3) FATHOM_TILE(1, 2) FATHOM_TILE(1, 1)
#undef FATHOM_TILE
  }
}
static void fixed_dot_panel(const struct Bf16Panel* panel, const struct Bf16Rows* rows) {
  int64_t weight = 0;
  for (; weight + 4 <= panel->rows; weight += 4) fixed_strip(panel, weight, 4, rows);
  for (; weight < panel->rows; ++weight) fixed_strip(panel, weight, 1, rows);
}

}  // namespace
}  // namespace fathom::cpu
