// Weight rows as float32, for activations that are not bfloat16 numbers: the values of the decoders of
// tensor/formats/, to the bit, from the integers of fixed_blocks.h, fixed_runs.h and fixed_pairs.h.
#pragma once

#include "cpu/avx2/fixed_dot.h"

namespace fathom::cpu {
namespace {

// scale * code - floor of 32 columns; the halves of the words have scales and floors of their own.
FATHOM_INLINE void store_columns(I even, I odd, const float* scale, const float* floor, float* out) {
  const I low = _mm256_unpacklo_epi16(even, odd), high = _mm256_unpackhi_epi16(even, odd);
  const __m128i eight[4] = {_mm256_castsi256_si128(low), _mm256_castsi256_si128(high),
                            _mm256_extracti128_si256(low, 1), _mm256_extracti128_si256(high, 1)};
  for (int v = 0; v < 4; ++v)
    f_store(out + 8 * v, f_sub(f_mul(f_set(scale[v / 2]), f_from_i(_mm256_cvtepi16_epi32(eight[v]))),
                               f_set(floor[v / 2])));
}

FATHOM_INLINE void floats_of_blocks(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                    float* out) {
  const uint8_t* block = row_data(m, row);
  const int floors = floor_count(encoding);
  for (int64_t b = 0; b < m->cols / 256; ++b, block += block256_bytes(encoding)) {
    struct BlockScales scales;
    block_scales(encoding, block, &scales);
    for (int part = 0; part < 8; ++part, out += 32) {
      float scale[2], floor[2];
      for (int half = 0; half < 2; ++half) {
        scale[half] = scales.factor * (float)scales.scale[has_wide_scales(encoding) ? part : 2 * part + half];
        floor[half] = floors == 0 ? 0.0f : scales.floor[floors == 8 ? part : 2 * part + half];
      }
      I even, odd;
      block_part(encoding, block, part, &even, &odd);
      store_columns(even, odd, scale, floor, out);
    }
  }
}
FATHOM_INLINE void floats_of_affine(const struct EncodedMatrix* m, int64_t row, float* out) {
  const int bytes = run_bytes(kEncodingAffine, m->bits);
  const int64_t blocks = m->cols / 32;
  for (int64_t b = 0; b < blocks; ++b, out += 32) {
    const uint8_t* p = row_data(m, row) + b * bytes;
    uint8_t last[64] = {0};
    if (affine_reads_beyond(m->bits, blocks - b)) {
      memcpy(last, p, (size_t)bytes);
      p = last;
    }
    const float one = run_scale(kEncodingAffine, m, p, row_scales(m, row), b);
    const float bias = affine_number(row_biases(m, row), b * 32 / m->group, m->scale_type);
    const float scale[2] = {one, one}, floor[2] = {-bias, -bias};
    I even, odd;
    affine_words(p, m->bits, &even, &odd);
    store_columns(even, odd, scale, floor, out);
  }
}
FATHOM_INLINE void floats_of_iq4_nl(const struct EncodedMatrix* m, int64_t row, float* out) {
  const uint8_t* block = row_data(m, row);
  for (int64_t b = 0; b < m->cols / 32; ++b, block += 18, out += 32) {
    const float one = half_to_float(u16_at(block));
    const float scale[2] = {one, one}, floor[2] = {0.0f, 0.0f};
    I even, odd;
    split_signed(nibble_halves(block + 2, iq4_values()), &even, &odd);
    store_columns(even, odd, scale, floor, out);
  }
}
FATHOM_INLINE void decode_floats_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                    int64_t count, float* panel, int64_t stride) {
  for (int64_t r = row; r < row + count; ++r, panel += stride) {
    if (encoding == kEncodingAffine)
      floats_of_affine(m, r, panel);
    else if (encoding == kEncodingIq4Nl)
      floats_of_iq4_nl(m, r, panel);
    else
      floats_of_blocks(encoding, m, r, panel);
    memset(panel + m->cols, 0, (size_t)(stride - m->cols) * sizeof(float));
  }
}

}  // namespace
}  // namespace fathom::cpu
