// Products in bfloat16 pairs, for activations that are bfloat16 numbers: exact products, float32 sums.
//
// Order of summation of (row, output): direct kinds, one accumulator of 16 lanes over all vectors; scaled
// kinds, the sum of a unit's vectors from zero, then sum += scale * it, then sum -= floor * (the activations'
// own sum over each lane, prepared with them). Then the tree of f_sum. Decoding in registers and through a
// panel run the same operations.
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

// Whether the scales of a row are such that the direct kinds hold its weights exactly.
static int bf16_row_is_exact(const struct EncodedMatrix* m, int64_t row) {
  if (m->encoding == kEncodingMxfp4) {
    const uint8_t* p = row_data(m, row);
    int outside = 0;
    for (int64_t block = 0; block < m->cols / 32; ++block)
      outside |= (uint8_t)(p[17 * block] - kLowestScale) > kHighestScale - kLowestScale;
    return !outside;
  }
  if (m->encoding != kEncodingFp8 && m->encoding != kEncodingFp4) return 1;
  const uint8_t* p = row_scales(m, row);
  const int64_t count = m->cols / 32;
  __mmask64 outside = 0;
  for (int64_t at = 0; at < count; at += 64) {
    const __mmask64 mask = count - at >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (count - at)) - 1;
    const __m512i x = _mm512_sub_epi8(_mm512_maskz_loadu_epi8(mask, p + at), _mm512_set1_epi8(kLowestScale));
    outside |= _mm512_mask_cmpgt_epu8_mask(mask, x, _mm512_set1_epi8(kHighestScale - kLowestScale));
  }
  return outside == 0;
}

FATHOM_INLINE void store_unit(enum Encoding encoding, const Unit* unit, uint8_t* out) {
#pragma GCC unroll 8
  for (int j = 0; j < unit_vectors(encoding); ++j, out += 64)
    _mm512_storeu_si512(out, unit_vector(encoding, unit, j));
  if (!is_direct(encoding)) _mm512_storeu_ps((float*)out, unit->scale);
  if (has_floor(encoding)) _mm512_storeu_ps((float*)(out + 64), unit->floor);
}

FATHOM_INLINE void decode_panel_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t count, uint8_t* panel) {
  const int64_t units = m->cols / unit_cols(encoding);
  for (int64_t r = row; r < row + count; ++r) {
    const uint8_t* data = row_data(m, r);
    const uint8_t* scales = row_scales(m, r);
    const uint8_t* biases = row_biases(m, r);
    for (int64_t u = 0; u < units; ++u, panel += panel_unit_bytes(encoding)) {
      Unit unit;
      decode_unit(encoding, m, data, scales, biases, u, &unit);
      store_unit(encoding, &unit, panel);
    }
  }
}

// `weights` rows times `rows` prepared activation rows, decoded in registers. All three constants.
FATHOM_INLINE void bf16_fused_tile(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t weight, const int weights, const struct Bf16Rows* in,
                                   const int rows) {
  const uint8_t* data[4];
  const uint8_t* scales[4];
  const uint8_t* biases[4];
  __m512 sums[4][2];
#pragma GCC unroll 4
  for (int w = 0; w < weights; ++w) {
    data[w] = row_data(m, row + weight + w);
    scales[w] = row_scales(m, row + weight + w);
    biases[w] = row_biases(m, row + weight + w);
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  }
  const int64_t ahead = weights * m->row_bytes;  // the same place of the next tile
  const int64_t units = m->cols / unit_cols(encoding);
  const int64_t unit_bytes = m->row_bytes / units;
  const uint8_t* x[2] = {in->in[0], in->in[rows - 1]};
  for (int64_t u = 0; u < units; ++u) {
#pragma GCC unroll 4
    for (int w = 0; w < weights; ++w) {
      _mm_prefetch((const char*)(data[w] + ahead + u * unit_bytes), _MM_HINT_T0);
      if (is_block256(encoding)) _mm_prefetch((const char*)(data[w] + ahead + u * unit_bytes + 64), _MM_HINT_T0);
      Unit unit;
      decode_unit(encoding, m, data[w], scales[w], biases[w], u, &unit);
      __m512 parts[2];
      if (!is_direct(encoding)) parts[0] = parts[1] = _mm512_setzero_ps();
      __m512* to = is_direct(encoding) ? sums[w] : parts;
#pragma GCC unroll 8
      for (int j = 0; j < unit_vectors(encoding); ++j) {
        const __m512i codes = unit_vector(encoding, &unit, j);
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r) to[r] = dot_pairs(to[r], codes, load64(x[r] + 64 * j));
      }
      if (!is_direct(encoding)) {
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_fmadd_ps(unit.scale, parts[r], sums[w][r]);
      }
      if (has_floor(encoding)) {
#pragma GCC unroll 2
        for (int r = 0; r < rows; ++r)
          sums[w][r] = _mm512_fnmadd_ps(
              unit.floor, _mm512_loadu_ps((const float*)(x[r] + 64 * unit_vectors(encoding))), sums[w][r]);
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) x[r] += activation_unit_bytes(encoding);
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) {
    float* out = in->out[r] + weight;
    if (weights == 4) store_sums4(out, sums[0][r], sums[1][r], sums[2][r], sums[3][r]);
    else *out = f_sum(sums[0][r]);
  }
}

FATHOM_INLINE void bf16_dot_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                               int64_t count, const struct Bf16Rows* in) {
  int64_t weight = 0;
  if (in->rows == 2) {
    for (; weight + 4 <= count; weight += 4) bf16_fused_tile(encoding, m, row, weight, 4, in, 2);
    for (; weight < count; ++weight) bf16_fused_tile(encoding, m, row, weight, 1, in, 2);
    return;
  }
  for (; weight + 4 <= count; weight += 4) bf16_fused_tile(encoding, m, row, weight, 4, in, 1);
  for (; weight < count; ++weight) bf16_fused_tile(encoding, m, row, weight, 1, in, 1);
}

// The value of every code of a unit at its column.
FATHOM_INLINE void decode_floats_as(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                    int64_t count, float* panel, int64_t stride) {
  const int words = unit_cols(encoding);
  for (int64_t r = row; r < row + count; ++r, panel += stride) {
    for (int64_t u = 0; u < m->cols / words; ++u) {
      Unit unit;
      float value[256];
      decode_unit(encoding, m, row_data(m, r), row_scales(m, r), row_biases(m, r), u, &unit);
      for (int j = 0; j < unit_vectors(encoding); ++j) {
        // Even words of the lanes, then odd ones.
        const __m512i codes = unit_vector(encoding, &unit, j);
        __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(codes, 16));
        __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(codes, _mm512_set1_epi32((int)0xFFFF0000u)));
        even = _mm512_mul_ps(unit.scale, even);
        odd = _mm512_mul_ps(unit.scale, odd);
        if (has_floor(encoding)) {
          even = _mm512_sub_ps(even, unit.floor);
          odd = _mm512_sub_ps(odd, unit.floor);
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
