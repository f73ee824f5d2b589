// Rows in bfloat16: activations in the order of an encoding's units, and weights decoded to panels.
#pragma once

#include "cpu/avx512/decode_units.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE __m512 dot_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

FATHOM_INLINE int unit_cols(enum Encoding encoding) { return 32 * unit_vectors(encoding); }
// Of a unit of prepared activations: the vectors, then the lanes' sums.
FATHOM_INLINE int64_t activation_unit_bytes(enum Encoding encoding) {
  return 64 * (unit_vectors(encoding) + has_floor(encoding));
}
// Of a unit of a panel: the vectors, then scale and floor.
FATHOM_INLINE int64_t panel_unit_bytes(enum Encoding encoding) {
  return 64 * (unit_vectors(encoding) + !is_direct(encoding) + has_floor(encoding));
}

// What is taken off for a code of zero.
FATHOM_INLINE __m512 whole_floor(enum Encoding encoding, Scales scales) {
  if (code_excess(encoding) == 0) return scales.floor;
  return _mm512_fmadd_ps(_mm512_set1_ps(code_excess(encoding)), scales.scale, scales.floor);
}

static int64_t bf16_row_bytes(const struct EncodedMatrix* m) {
  if (m->encoding == kEncodingF32 || m->encoding == kEncodingF16) return 0;
  if (m->cols % unit_cols(m->encoding) != 0) return 0;
  return m->cols / unit_cols(m->encoding) * activation_unit_bytes(m->encoding);
}
static int64_t bf16_panel_row_bytes(const struct EncodedMatrix* m) {
  return m->cols / unit_cols(m->encoding) * panel_unit_bytes(m->encoding);
}

// 32 float32 numbers that are bfloat16 numbers.
FATHOM_INLINE __m512i upper_halves(const float* in) {
  const __m512i odd_words = _mm512_add_epi16(_mm512_slli_epi16(load64(kWordNumber), 1), _mm512_set1_epi16(1));
  return _mm512_permutex2var_epi16(load64(in), odd_words, load64(in + 16));
}

static void bf16_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const enum Encoding encoding = m->encoding;
  const int words = unit_cols(encoding);
  const __m512i ones = _mm512_set1_epi16((int16_t)bf16_bits(1.0f));
  uint16_t column[256];
  for (int w = 0; w < words; ++w) column[w] = (uint16_t)word_column(encoding, w);
  for (int64_t first = 0; first < m->cols; first += words, out += activation_unit_bytes(encoding)) {
    uint16_t natural[256], word[256];
    for (int w = 0; w < words; w += 32) _mm512_storeu_si512(natural + w, upper_halves(in + first + w));
    if (words == 256) {
      for (int w = 0; w < words; ++w) word[w] = natural[column[w]];
    } else {
      const __m512i low = load64(natural), high = words == 64 ? load64(natural + 32) : low;
      for (int w = 0; w < words; w += 32)
        _mm512_storeu_si512(word + w, _mm512_permutex2var_epi16(low, load64(column + w), high));
    }
    memcpy(out, word, (size_t)words * 2);
    if (!has_floor(encoding)) continue;
    __m512 sum = _mm512_setzero_ps();
    for (int w = 0; w < words; w += 32) sum = dot_pairs(sum, load64(word + w), ones);
    _mm512_storeu_ps((float*)(out + 2 * words), sum);
  }
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

FATHOM_INLINE void decode_panel_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t count, uint8_t* panel) {
  const int64_t units = m->cols / unit_cols(encoding);
  const int per_source = unit_vectors(encoding) / unit_sources(encoding);
  for (int64_t r = row; r < row + count; ++r) {
    const struct UnitRow where = unit_row(m, r);
    for (int64_t u = 0; u < units; ++u) {
#pragma GCC unroll 4
      for (int s = 0; s < unit_sources(encoding); ++s) {
        const Source source = unit_source(encoding, m, where, u, s);
#pragma GCC unroll 8
        for (int j = s * per_source; j < (s + 1) * per_source; ++j, panel += 64)
          _mm512_storeu_si512(panel, unit_vector(encoding, source, j));
      }
      if (is_direct(encoding)) continue;
      const Scales scales = unit_scales(encoding, m, where, u);
      _mm512_storeu_ps((float*)panel, scales.scale);
      panel += 64;
      if (!has_floor(encoding)) continue;
      _mm512_storeu_ps((float*)panel, whole_floor(encoding, scales));
      panel += 64;
    }
  }
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

}  // namespace
}  // namespace fathom::cpu
