// Whole rows through units: values as float32, bfloat16 activations, and which rows the direct kinds can hold.
// What every instruction set with these units shares.
#pragma once

#include "cpu/avx512/decode_units.h"
#include "cpu/generic/decode.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int unit_cols(enum Encoding encoding) { return 32 * unit_vectors(encoding); }

// What is taken off for a code of zero.
FATHOM_INLINE __m512 whole_floor(enum Encoding encoding, Scales scales) {
  if (code_excess(encoding) == 0) return scales.floor;
  return _mm512_fmadd_ps(_mm512_set1_ps(code_excess(encoding)), scales.scale, scales.floor);
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
  const int words = unit_cols(encoding);
  for (int64_t r = row; r < row + count; ++r, panel += stride) {
    for (int64_t u = 0; u < m->cols / words; ++u) {
      float value[256];
      const struct UnitRow where = unit_row(m, r);
      const Scales scales = unit_scales(encoding, m, where, u);
      const int per_source = unit_vectors(encoding) / unit_sources(encoding);
      for (int j = 0; j < unit_vectors(encoding); ++j) {
        const __m512i codes = unit_vector(encoding, unit_source(encoding, m, where, u, j / per_source), j);
        const __m512i odd_words = _mm512_and_si512(codes, _mm512_set1_epi32((int)0xFFFF0000u));
        const __m512 excess = _mm512_set1_ps(code_excess(encoding));
        const __m512 even_codes = _mm512_castsi512_ps(_mm512_slli_epi32(codes, 16));
        __m512 even = _mm512_mul_ps(scales.scale, _mm512_sub_ps(even_codes, excess));
        __m512 odd = _mm512_mul_ps(scales.scale, _mm512_sub_ps(_mm512_castsi512_ps(odd_words), excess));
        if (has_floor(encoding)) {
          even = _mm512_sub_ps(even, scales.floor);
          odd = _mm512_sub_ps(odd, scales.floor);
        }
        _mm512_storeu_ps(value + 32 * j, even);
        _mm512_storeu_ps(value + 32 * j + 16, odd);
      }
      for (int w = 0; w < words; ++w)
        panel[u * words + word_column(encoding, w)] = value[w / 32 * 32 + w % 2 * 16 + w % 32 / 2];
    }
    memset(panel + m->cols, 0, (size_t)(stride - m->cols) * sizeof(float));
  }
}

// Calls `call(encoding)` with the encoding as a constant.
#define FATHOM_ENCODINGS(with)                                                                        \
  with(kEncodingQ3K) with(kEncodingQ5K) with(kEncodingQ6K) with(kEncodingIq1S) with(kEncodingIq1M)    \
  with(kEncodingIq2Xxs) with(kEncodingIq2Xs) with(kEncodingIq2S) with(kEncodingIq3Xxs)                \
  with(kEncodingIq3S) with(kEncodingIq4Nl) with(kEncodingIq4Xs)
#define FATHOM_BF16_ENCODINGS(with)                                                                   \
  with(kEncodingBf16) with(kEncodingFp8) with(kEncodingFp4) with(kEncodingMxfp4) with(kEncodingQ8_0)  \
  with(kEncodingQ2K) with(kEncodingQ4K) FATHOM_ENCODINGS(with)

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
