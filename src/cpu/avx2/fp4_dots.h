// Dot products of index keys with queries, both in FP4, in bytes. Included after avx2/vec.h.
#pragma once

#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

// Codes of columns 8 d + {0, 2, 4, 6} (low nibbles) or 8 d + {1, 3, 5, 7} in halves, 12 added.
FATHOM_INLINE I fp4_raised(I codes) {
  const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
}

// 32 columns of 8 keys: dword i of out[m] are four columns of key i, as Fp4Query orders them.
FATHOM_INLINE void fp4_columns(const uint8_t* const* keys, int64_t offset, I* out) {
  I rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    rows[i] = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)(keys[i] + offset))),
        _mm_loadu_si128((const __m128i*)(keys[i + 4] + offset)), 1);
  const I low01 = _mm256_unpacklo_epi32(rows[0], rows[1]), low23 = _mm256_unpacklo_epi32(rows[2], rows[3]);
  const I high01 = _mm256_unpackhi_epi32(rows[0], rows[1]), high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
  const I columns[4] = {_mm256_unpacklo_epi64(low01, low23), _mm256_unpackhi_epi64(low01, low23),
                        _mm256_unpacklo_epi64(high01, high23), _mm256_unpackhi_epi64(high01, high23)};
  const I nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) {
    out[2 * d] = fp4_raised(_mm256_and_si256(columns[d], nibble));
    out[2 * d + 1] = fp4_raised(_mm256_and_si256(_mm256_srli_epi16(columns[d], 4), nibble));
  }
}

// Powers of two as stored, one a key.
FATHOM_INLINE F fp4_key_scales(const uint8_t* const* keys, int64_t offset) {
  int32_t codes[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) codes[i] = keys[i][offset];
  const I bits = i_left(_mm256_loadu_si256((const __m256i*)codes), 23);
  return f_bits(_mm256_max_epi32(bits, i_set(0x400000)));  // code 0 is 2^-127
}

// Sums of pairs of columns fit 16 bits: 8 times 2 * 24 * 12.
static void fp4_dots(const uint8_t* const* keys, int64_t count, const struct Fp4Query* queries,
                     int64_t query_stride, int groups, int64_t query_count, float* out) {
  for (int g = 0; g < groups; ++g, queries += query_stride) {
    for (int64_t j = 0; j < count; j += 8) {
      const uint8_t* eight[8];
      for (int i = 0; i < 8; ++i) eight[i] = keys[j + i < count ? j + i : count - 1];
      I columns[8];
      fp4_columns(eight, 16 * g, columns);
      const F scales = fp4_key_scales(eight, 16 * groups + g);
      for (int64_t q = 0; q < query_count; ++q) {
        const struct Fp4Query* query = queries + q;
        I pairs[2] = {_mm256_maddubs_epi16(columns[0], i_set(query->codes[0])),
                      _mm256_maddubs_epi16(columns[1], i_set(query->codes[1]))};
#pragma GCC unroll 6
        for (int m = 2; m < 8; ++m)
          pairs[m % 2] =
              _mm256_add_epi16(pairs[m % 2], _mm256_maddubs_epi16(columns[m], i_set(query->codes[m])));
        const I sums =
            _mm256_madd_epi16(_mm256_add_epi16(pairs[0], pairs[1]), _mm256_set1_epi16(1));
        const F dots = f_mul(f_from_i(i_add(sums, i_set(query->start))), scales);
        float* to = out + q * 64 + j;
        f_store(to, g == 0 ? f_mul(dots, f_set(query->scale)) : f_fma(dots, f_set(query->scale), f_load(to)));
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
