// Encodings of four bits with a scale for every 32 columns, two of those (a pair) at a time: each half of a
// vector belongs to one of the two, so that one conversion to float32 and one product with scales serve both.
#pragma once

#include "cpu/avx2/fixed_blocks.h"
#include "cpu/avx2/pair_rows.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int pair_bytes(enum Encoding encoding) {  // of 32 columns
  return encoding == kEncodingFp4 ? 16 : encoding == kEncodingMxfp4 ? 17 : 18;
}
FATHOM_INLINE __m128i fp4_values() {  // twice the value
  return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
}
// Codes are 256 times too large for FP4 and MXFP4: so a word is one operation away from its byte.
FATHOM_INLINE void pair_words(enum Encoding encoding, const uint8_t* first, const uint8_t* second, I* words) {
  const int skip = pair_bytes(encoding) - 16;
  const I x =
      encoding == kEncodingFp4
          ? i_load(first)
          : _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)(first + skip))),
                                    _mm_loadu_si128((const __m128i*)(second + skip)), 1);
  const I nibble = _mm256_set1_epi8(15);
  const I values = _mm256_broadcastsi128_si256(encoding == kEncodingIq4Nl ? iq4_values() : fp4_values());
  const I low = _mm256_shuffle_epi8(values, i_and(x, nibble));
  const I high = _mm256_shuffle_epi8(values, i_and(right16(x, 4), nibble));
  if (encoding == kEncodingIq4Nl) {
    split_signed(low, words, words + 1);
    return split_signed(high, words + 2, words + 3);
  }
  const I top = _mm256_set1_epi16((int16_t)0xFF00);
  words[0] = _mm256_slli_epi16(low, 8);
  words[1] = i_and(low, top);
  words[2] = _mm256_slli_epi16(high, 8);
  words[3] = i_and(high, top);
}
// The scales of two 32 columns, each in the lanes of its half; for FP4 and MXFP4 with what the codes are too
// large by.
FATHOM_INLINE F pair_scales(enum Encoding encoding, const uint8_t* first, const uint8_t* second,
                            const uint8_t* scales) {
  const I halves = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  if (encoding == kEncodingIq4Nl) {
    const __m128i both = _mm_cvtsi32_si128((int)(u16_at(first) | (uint32_t)u16_at(second) << 16));
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_cvtph_ps(both)), halves);
  }
  const __m128i codes = encoding == kEncodingFp4
                            ? _mm_cvtepu8_epi32(_mm_cvtsi32_si128(u16_at(scales)))
                            : _mm_cvtsi64_si128((int64_t)(*first | (uint64_t)*second << 32));
  const F powers = _mm256_castps128_ps256(_mm_castsi128_ps(_mm_slli_epi32(codes, 23)));
  return f_mul(_mm256_permutevar8x32_ps(powers, halves), f_set(0x1p-9f));
}
FATHOM_INLINE I dot_pair(const I* words, const uint8_t* q) {
  const I a = _mm256_madd_epi16(words[0], i_load(q)), b = _mm256_madd_epi16(words[1], i_load(q + 32));
  const I c = _mm256_madd_epi16(words[2], i_load(q + 64)), d = _mm256_madd_epi16(words[3], i_load(q + 96));
  return i_add(i_add(a, b), i_add(c, d));
}

// Where pair `pair` of a row is; `last` is room for a pair that is only half there.
struct PairPlace {
  const uint8_t *first, *second, *scales;
};
FATHOM_INLINE struct PairPlace pair_place(enum Encoding encoding, const uint8_t* codes, const uint8_t* scales,
                                          int64_t cols, int64_t pair, uint8_t* last) {
  const int bytes = pair_bytes(encoding);
  struct PairPlace place = {codes + 2 * bytes * pair, codes + 2 * bytes * pair + bytes, scales + 2 * pair};
  if (__builtin_expect(64 * pair + 64 > cols, 0)) {
    memset(last, 0, 40);
    memcpy(last, place.first, (size_t)bytes);
    if (encoding == kEncodingFp4) last[36] = *place.scales;
    place.first = last;
    place.second = last + bytes;
    place.scales = last + 36;
  }
  return place;
}

FATHOM_INLINE F add_rest(F sum, F scale, const I* words, const struct PairRow* x, int64_t pair) {
  const F both = f_mul(f_mul(scale, f_load(x->scales + 8 * pair)), f_set(0x1p-6f));
  return f_fma(f_from_i(dot_pair(words, x->rest + 128 * pair)), both, sum);
}

FATHOM_INLINE void pairs_dot(enum Encoding encoding, const struct EncodedMatrix* m, int64_t row,
                             const int weights, const struct Bf16Rows* in, const int rows, int64_t at) {
  const uint8_t *codes[2], *scales[2];
  struct PairRow x[2];
  F sum[2][2];
  for (int r = 0; r < rows; ++r) x[r] = pair_row(in->in[r], m->cols);
  for (int w = 0; w < weights; ++w) {
    codes[w] = row_data(m, row + w);
    scales[w] = row_scales(m, row + w);
    for (int r = 0; r < rows; ++r) sum[w][r] = f_zero();
  }
  for (int64_t pair = 0; pair < pair_count(m->cols); ++pair) {
#pragma GCC unroll 2
    for (int w = 0; w < weights; ++w) {
      uint8_t last[40];
      const struct PairPlace place = pair_place(encoding, codes[w], scales[w], m->cols, pair, last);
      ask_for(place.first + weights * m->row_bytes, 2 * pair_bytes(encoding));
      if (encoding == kEncodingFp4) ask_for(place.scales + weights * m->scale_row_bytes, 2);
      I words[4];
      pair_words(encoding, place.first, place.second, words);
      const F scale = pair_scales(encoding, place.first, place.second, place.scales);
#pragma GCC unroll 2
      for (int r = 0; r < rows; ++r) {
        const F both = f_mul(scale, f_load(x[r].scales + 8 * pair));
        sum[w][r] = f_fma(f_from_i(dot_pair(words, x[r].q + 128 * pair)), both, sum[w][r]);
      }
    }
  }
  for (int w = 0; w < weights; ++w)
    for (int r = 0; r < rows; ++r) {
      for (int n = 1; n <= x[r].with_rest[0]; ++n) {
        const int64_t pair = x[r].with_rest[n];
        uint8_t last[40];
        const struct PairPlace place = pair_place(encoding, codes[w], scales[w], m->cols, pair, last);
        I words[4];
        pair_words(encoding, place.first, place.second, words);
        const F scale = pair_scales(encoding, place.first, place.second, place.scales);
        sum[w][r] = add_rest(sum[w][r], scale, words, &x[r], pair);
      }
      in->out[r][at + w] = f_sum(sum[w][r]);
    }
}

}  // namespace
}  // namespace fathom::cpu
