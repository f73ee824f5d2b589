// Encodings with a float32 scale for every 32 columns, as integers: codes as 16-bit words, even columns in one
// vector and odd ones in another, so that weight = scale * code + bias.
#pragma once

#include "cpu/avx2/fixed_blocks.h"

namespace fathom::cpu {
namespace {

// Codes of `bits` (at most 6) bits from a bit stream of 4 * bits bytes; 16 + 2 * bits bytes are read. Every
// code is in a window of 16 bits that begins on its byte: a product moves it to the window's top.
FATHOM_INLINE I stream_words(I x, int bits, int first) {
  alignas(32) uint8_t index[32];
  alignas(32) uint16_t power[16];
#pragma GCC unroll 16
  for (int word = 0; word < 16; ++word) {
    const int bit = (word % 8 * 2 + first) * bits;  // in its half, which begins on a byte
    index[2 * word] = (uint8_t)(bit / 8);
    index[2 * word + 1] = (uint8_t)(bit / 8 + 1);
    power[word] = (uint16_t)(1 << (16 - bit % 8 - bits));
  }
  const I window = _mm256_shuffle_epi8(x, i_load(index));
  return right16(_mm256_mullo_epi16(window, i_load(power)), 16 - bits);
}
// Whether that reads beyond the row's end, which may be the end of the file, with `left` runs to go.
FATHOM_INLINE int affine_reads_beyond(int bits, int64_t left) { return 4 * bits * left < 16 + 2 * bits; }
FATHOM_INLINE void affine_words(const uint8_t* codes, int bits, I* even, I* odd) {
  if (bits == 8) return split_unsigned(i_load(codes), even, odd);
  const __m128i low = _mm_loadu_si128((const __m128i*)codes);
  const __m128i high = _mm_loadu_si128((const __m128i*)(codes + 2 * bits));
  const I x = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  *even = stream_words(x, bits, 0);
  *odd = stream_words(x, bits, 1);
}

FATHOM_INLINE void run_words(enum Encoding encoding, int bits, const uint8_t* codes, I* even, I* odd) {
  if (encoding == kEncodingQ8_0) return split_signed(i_load(codes + 2), even, odd);
  affine_words(codes, bits, even, odd);
}
FATHOM_INLINE int run_bytes(enum Encoding encoding, int bits) {
  return encoding == kEncodingQ8_0 ? 34 : 4 * bits;
}
FATHOM_INLINE float affine_number(const uint8_t* p, int64_t group, enum ScaleType type) {
  if (type == kScaleF32) return float_of_bits(u32_at(p + 4 * group));
  const uint16_t half = u16_at(p + 2 * group);
  return type == kScaleF16 ? half_to_float(half) : float_of_bits((uint32_t)half << 16);
}
// Of the 32 columns from `block` on.
FATHOM_INLINE float run_scale(enum Encoding encoding, const struct EncodedMatrix* m, const uint8_t* codes,
                              const uint8_t* scales, int64_t block) {
  if (encoding == kEncodingQ8_0) return half_to_float(u16_at(codes));
  return affine_number(scales, block * 32 / m->group, m->scale_type);
}

// On top of `sum`: biases times the sums of their columns, eight runs side by side.
FATHOM_INLINE F add_biases(F sum, const float* biases, const float* sums, int64_t count) {
  int64_t b = 0;
  for (; b + kLanes <= count; b += kLanes) sum = f_fma(f_load(biases + b), f_load(sums + b), sum);
  if (b == count) return sum;
  return f_fma(f_load_part(biases + b, count - b), f_load_part(sums + b, count - b), sum);
}

}  // namespace
}  // namespace fathom::cpu
