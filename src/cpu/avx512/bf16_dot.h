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

// A product waits some twelve cycles for the sum before it, so eight rows are summed side by side.
enum { kPrefetchBytes = 2048, kMostWeights = 8, kMostRows = 2 };

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

// Bytes of a unit in a weight row; of a grid's 32 columns about an eighth of its block.
FATHOM_INLINE int64_t data_unit_bytes(enum Encoding encoding, const struct EncodedMatrix* m) {
  switch (encoding) {
    case kEncodingBf16:
    case kEncodingFp8: return 64;
    case kEncodingFp4: return 16;
    case kEncodingMxfp4: return 17;
    case kEncodingQ8_0: return 34;
    case kEncodingIq4Nl: return 18;
    case kEncodingAffine: return 4 * m->bits;
    default: return is_block256(encoding) ? unit_block_bytes(encoding) : unit_block_bytes(encoding) / 8;
  }
}

// Units that are taken together, so that a row's addresses are worked out once for some 64 bytes of it.
FATHOM_INLINE int group_units(enum Encoding encoding) {
  if (is_block256(encoding)) return 1;
  return encoding == kEncodingFp8 ? 2 : encoding == kEncodingBf16 ? 1 : 4;
}

// `count` units from `u` on of `weights` rows times `rows` prepared activation rows at `x`, decoded in registers.
// The activations are loaded once for all weight rows.
FATHOM_INLINE void fused_units(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row, int64_t u,
                               const int count, const int weights, const uint8_t* const* x, const int rows,
                               __m512 (*sums)[kMostRows]) {
  const int vectors = unit_vectors(encoding);
  const int per_source = vectors / unit_sources(encoding);
  const int64_t unit_bytes = activation_unit_bytes(encoding);
  __m512i activation[kMostRows][8];
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < count * vectors; ++v)
      activation[r][v] = load64(x[r] + v / vectors * unit_bytes + 64 * (v % vectors));
  struct UnitRow where = unit_row(m, row);
  const int64_t data_offset = data_unit_bytes(encoding, m) * u;
  // Kept from being eight pointers, for which there are no registers.
  int64_t row_bytes = m->row_bytes;
  __asm__("" : "+r"(row_bytes));
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w) {
    _mm_prefetch((const char*)(where.data + data_offset + kPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 4
    for (int n = 0; n < count; ++n) {
      __m512 parts[kMostRows];
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) parts[r] = is_direct(encoding) ? sums[w][r] : _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int s = 0; s < unit_sources(encoding); ++s) {
        const Source source = unit_source(encoding, m, where, u + n, s);
#pragma GCC unroll 8
        for (int j = s * per_source; j < (s + 1) * per_source; ++j) {
          const __m512i codes = unit_vector(encoding, source, j);
#pragma GCC unroll 2
          for (int r = 0; r < rows; ++r)
            parts[r] = dot_pairs(parts[r], codes, activation[r][n * vectors + j]);
        }
      }
      const Scales scales = unit_scales(encoding, m, where, u + n);
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) {
        sums[w][r] = is_direct(encoding) ? parts[r] : _mm512_fmadd_ps(scales.scale, parts[r], sums[w][r]);
        if (has_floor(encoding))
          sums[w][r] = _mm512_fnmadd_ps(
              whole_floor(encoding, scales), _mm512_loadu_ps((const float*)(x[r] + n * unit_bytes + 64 * vectors)), sums[w][r]);
      }
    }
    where.data += row_bytes;
    where.scales = row_scales(m, row + w + 1);
    where.biases += m->bias_row_bytes;
  }
}

// Whole rows. `weights` and `rows` are constants.
FATHOM_INLINE void bf16_fused_tile(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                                   int64_t weight, const int weights, const struct Bf16Rows* in,
                                   const int rows) {
  __m512 sums[kMostWeights][kMostRows];
#pragma GCC unroll 8
  for (int w = 0; w < weights; ++w)
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) sums[w][r] = _mm512_setzero_ps();
  const int64_t units = m->cols / unit_cols(encoding);
  const int group = group_units(encoding);
  const uint8_t* x[kMostRows] = {in->in[0], in->in[rows - 1]};
  int64_t u = 0;
  for (; u + group <= units; u += group) {
    fused_units(encoding, m, row + weight, u, group, weights, x, rows, sums);
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) x[r] += group * activation_unit_bytes(encoding);
  }
  for (; u < units; ++u) {
    fused_units(encoding, m, row + weight, u, 1, weights, x, rows, sums);
#pragma GCC unroll 2
    for (int r = 0; r < rows; ++r) x[r] += activation_unit_bytes(encoding);
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; ++r) {
    float* out = in->out[r] + weight;
    if (weights == 1) *out = f_sum(sums[0][r]);
#pragma GCC unroll 2
    for (int w = 0; w + 4 <= weights; w += 4)
      store_sums4(out + w, sums[w][r], sums[w + 1][r], sums[w + 2][r], sums[w + 3][r]);
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
  for (; weight + 8 <= count; weight += 8) bf16_fused_tile(encoding, m, row, weight, 8, in, 1);
  for (; weight < count; ++weight) bf16_fused_tile(encoding, m, row, weight, 1, in, 1);
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
