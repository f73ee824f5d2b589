// Whole rows through units: values as float32, and which rows the direct kinds can hold.
#pragma once

#include "cpu/avx512/decode_units.h"
#include "cpu/generic/decode.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int unit_cols(enum Encoding encoding) { return 32 * unit_vectors(encoding); }

FATHOM_INLINE int64_t unit_count(enum Encoding encoding, int64_t cols) {
  return (cols + unit_cols(encoding) - 1) / unit_cols(encoding);
}

// Most activation rows for which weights are decoded in registers.
enum { kMostRows = 2 };
// Sums of `weights` whole rows to their places from `weight` on.
FATHOM_INLINE void store_fused(__m512 (*sums)[kMostRows], const int weights, const struct Bf16Rows* in,
                               const int rows, int64_t weight) {
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) {
    float* out = in->out[r] + weight;
    if (weights == 1) *out = f_sum(sums[0][r]);
#pragma GCC unroll 2
    for (int w = 0; w + 4 <= weights; w += 4)
      store_sums4(out + w, sums[w][r], sums[w + 1][r], sums[w + 2][r], sums[w + 3][r]);
  }
}

// 32 float32 numbers that are bfloat16 numbers.
FATHOM_INLINE __m512i upper_halves(const float* in) {
  const __m512i odd_words = _mm512_add_epi16(_mm512_slli_epi16(load64(kWordNumber), 1), _mm512_set1_epi16(1));
  return _mm512_permutex2var_epi16(load64(in), odd_words, load64(in + 16));
}

// Which of 64 bytes are scales of MXFP4, by the number of the 64 bytes modulo 17.
struct Mxfp4ScaleBytes {
  uint64_t mask[17];
};
constexpr Mxfp4ScaleBytes mxfp4_scale_bytes() {
  Mxfp4ScaleBytes bytes{};
  for (int at = 0; at < 17 * 64; at += 17) bytes.mask[at / 64] |= uint64_t{1} << (at % 64);
  return bytes;
}
constexpr Mxfp4ScaleBytes kMxfp4ScaleBytes = mxfp4_scale_bytes();

// Whether the scales of a row are such that the direct kinds hold its weights exactly.
static int bf16_row_is_exact(const struct EncodedMatrix* m, int64_t row) {
  const int is_mxfp4 = m->encoding == kEncodingMxfp4;
  if (!is_mxfp4 && m->encoding != kEncodingFp8 && m->encoding != kEncodingFp4) return 1;
  const uint8_t* p = is_mxfp4 ? row_data(m, row) : row_scales(m, row);
  const int64_t count = is_mxfp4 ? m->cols / 32 * 17 : m->cols / 32;
  __mmask64 outside = 0;
  int number = 0;
  for (int64_t at = 0; at < count; at += 64) {
    __mmask64 mask = count - at >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (count - at)) - 1;
    const __m512i bytes = _mm512_maskz_loadu_epi8(mask, p + at);
    if (is_mxfp4) mask &= kMxfp4ScaleBytes.mask[number];
    const __m512i x = _mm512_sub_epi8(bytes, _mm512_set1_epi8(kLowestScale));
    outside |= _mm512_mask_cmpgt_epu8_mask(mask, x, _mm512_set1_epi8(kHighestScale - kLowestScale));
    number = number == 16 ? 0 : number + 1;
  }
  return outside == 0;
}

// The value of every code of a unit at its column.
FATHOM_INLINE void decode_floats_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                    int64_t count, float* panel, int64_t stride) {
  const int words = unit_cols(encoding), per_source = unit_vectors(encoding) / unit_sources(encoding);
  const __m512i halves = _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
  for (int64_t r = row; r < row + count; ++r, panel += stride) {
    const struct UnitRow where = unit_row(m, r);
    for (int64_t u = 0; u < unit_count(encoding, m->cols); ++u) {
      float value[256];
      uint8_t copy[kMostUnitBytes];
      const uint8_t* p = whole_unit(encoding, m, where.data + u * unit_bytes(encoding, m->bits), u, copy);
      const Scales scales = unit_scales(encoding, m, where, p, u);
      const __m512 floor =
          encoding == kEncodingQ5K ? _mm512_permutexvar_ps(halves, scales.floor) : scales.floor;
      const __m512i excess = _mm512_set1_epi32(code_excess(encoding));
      for (int j = 0; j < unit_vectors(encoding); ++j) {
        const __m512i codes =
            unit_vector(encoding, unit_source(encoding, m->bits, p, j / per_source, &scales), j);
        const __m512i even_codes = _mm512_srai_epi32(_mm512_slli_epi32(codes, 16), 16);
        __m512 even = _mm512_mul_ps(scales.scale, float_of(_mm512_sub_epi32(even_codes, excess)));
        __m512 odd =
            _mm512_mul_ps(scales.scale, float_of(_mm512_sub_epi32(_mm512_srai_epi32(codes, 16), excess)));
        if (has_floor(encoding)) {
          even = _mm512_sub_ps(even, floor);
          odd = _mm512_sub_ps(odd, floor);
        }
        _mm512_storeu_ps(value + 32 * j, even);
        _mm512_storeu_ps(value + 32 * j + 16, odd);
      }
      for (int w = 0; w < words; ++w) {
        const int64_t column = u * words + word_column(encoding, w);
        if (column < m->cols) panel[column] = value[w / 32 * 32 + w % 2 * 16 + w % 32 / 2];
      }
    }
    memset(panel + m->cols, 0, (size_t)(stride - m->cols) * sizeof(float));
  }
}

// With the encoding as a constant.
#define FATHOM_DIRECT_ENCODINGS(with) \
  with(kEncodingBf16) with(kEncodingFp8) with(kEncodingFp4) with(kEncodingMxfp4)
#define FATHOM_ENCODINGS(with)                                                                        \
  with(kEncodingQ3K) with(kEncodingQ5K) with(kEncodingQ6K) with(kEncodingIq1S) with(kEncodingIq1M)    \
  with(kEncodingIq2Xxs) with(kEncodingIq2Xs) with(kEncodingIq2S) with(kEncodingIq3Xxs)                \
  with(kEncodingIq3S) with(kEncodingIq4Nl) with(kEncodingIq4Xs)
#define FATHOM_FIXED_ENCODINGS(with) \
  with(kEncodingQ8_0) with(kEncodingQ2K) with(kEncodingQ4K) FATHOM_ENCODINGS(with)

static int decodes_all(enum Encoding) { return 1; }

static void decode_any(const struct EncodedMatrix* m, int64_t row, int64_t count, float* panel,
                       int64_t stride) {
  switch (m->encoding) {
#define FATHOM_CASE(encoding) \
  case encoding: return decode_floats_as(encoding, m, row, count, panel, stride);
    FATHOM_ENCODINGS(FATHOM_CASE)
    FATHOM_CASE(kEncodingAffine)
#undef FATHOM_CASE
    default: return decode(m, row, count, panel, stride);
  }
}

}  // namespace
}  // namespace fathom::cpu
