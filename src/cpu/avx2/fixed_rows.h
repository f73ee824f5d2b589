// Activation rows as fixed-point numbers, for products with the integer codes of weights.
//
// A block of activations (as many columns as a block of the weights has: 256 or 32) is q * 2^e, q a signed
// 16-bit integer and 2^e the power of two that brings the largest one to [2^14, 2^15). A bfloat16 number has
// eight bits, so it is exact down to 2^-7 of the block's largest; below that it is rounded to 2^-16 of it.
// Products of q with codes and integer scales are summed in 32-bit integers, exactly, and one float32 fused
// multiply-add a block collects them. So no cut of the rows can change a result.
#pragma once

#include "cpu/avx2/vec.h"
#include "cpu/generic/scales.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int is_block256(enum Encoding encoding) {
  switch (encoding) {
    case kEncodingQ2K:
    case kEncodingQ3K:
    case kEncodingQ4K:
    case kEncodingQ5K:
    case kEncodingQ6K:
    case kEncodingIq1S:
    case kEncodingIq1M:
    case kEncodingIq2Xxs:
    case kEncodingIq2Xs:
    case kEncodingIq2S:
    case kEncodingIq3Xxs:
    case kEncodingIq3S:
    case kEncodingIq4Xs: return 1;
    default: return 0;
  }
}
FATHOM_INLINE int is_run(enum Encoding encoding) {
  return encoding == kEncodingQ8_0 || encoding == kEncodingAffine;
}
// Numbers subtracted from a block of 256: one for each of so many equal runs of columns.
FATHOM_INLINE int floor_count(enum Encoding encoding) {
  return encoding == kEncodingQ2K ? 16 : encoding == kEncodingQ4K || encoding == kEncodingQ5K ? 8 : 0;
}
FATHOM_INLINE int block_columns(enum Encoding encoding) { return is_block256(encoding) ? 256 : 32; }

// A prepared row: q [cols], of every 32 columns the even ones first; the scale of each block; for encodings
// with floors, floor_count sums of activations a block (affine: one).
struct FixedRow {
  const uint8_t* q;
  const float* scales;
  const float* sums;
};
FATHOM_INLINE struct FixedRow fixed_row(enum Encoding encoding, const uint8_t* row, int64_t cols) {
  struct FixedRow result;
  result.q = row;
  result.scales = (const float*)(row + 2 * cols);
  result.sums = result.scales + (is_block256(encoding) ? cols / 256 : cols / 32);
  return result;
}

static int64_t fixed_row_bytes(const struct EncodedMatrix* m) {
  const enum Encoding encoding = m->encoding;
  const int64_t blocks = m->cols / block_columns(encoding);
  const int sums = encoding == kEncodingAffine ? 1 : floor_count(encoding);
  return (2 * m->cols + 4 * blocks * (1 + sums) + 63) / 64 * 64;
}

// Weights of the next rows, which follow these in memory: the processor's own prefetching pauses at every page.
FATHOM_INLINE void ask_for(const uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) _mm_prefetch((const char*)p + at, _MM_HINT_T0);
}

FATHOM_INLINE I i_load(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
FATHOM_INLINE I words_in_order(I low, I high) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

FATHOM_INLINE float largest_magnitude(const float* in, int count) {
  F largest = f_zero();
  const F magnitude = f_bits(i_set(0x7FFFFFFF));
  for (int k = 0; k < count; k += kLanes) largest = f_max(largest, _mm256_and_ps(f_load(in + k), magnitude));
  return f_largest(largest);
}

// 32 columns: the even ones, then the odd ones. Returns the sums of the first and of the last sixteen in the
// lanes 0 and 4.
FATHOM_INLINE I fix_columns(const float* in, F inverse, uint8_t* q) {
  I natural[2], even[2], odd[2];
  for (int half = 0; half < 2; ++half) {
    const I first = i_nearest(f_mul(f_load(in + 16 * half), inverse));
    const I second = i_nearest(f_mul(f_load(in + 16 * half + 8), inverse));
    natural[half] = words_in_order(first, second);
    even[half] = i_right_signed(i_left(natural[half], 16), 16);
    odd[half] = i_right_signed(natural[half], 16);
  }
  const I evens = words_in_order(even[0], even[1]);
  const I odds = words_in_order(odd[0], odd[1]);
  _mm256_storeu_si256((__m256i*)q, evens);
  _mm256_storeu_si256((__m256i*)(q + 32), odds);
  const I ones = _mm256_set1_epi16(1);
  const I four = i_add(_mm256_madd_epi16(evens, ones), _mm256_madd_epi16(odds, ones));
  const I two = i_add(four, _mm256_shuffle_epi32(four, 0xEE));
  return i_add(two, _mm256_shuffle_epi32(two, 0x55));
}

// Not below 2^-107: what is smaller than 2^-122 becomes zero. NaN where the largest is an infinity or a NaN.
struct BlockScale {
  float scale, inverse;
};
FATHOM_INLINE struct BlockScale block_scale(float largest) {
  uint32_t bits;
  memcpy(&bits, &largest, sizeof bits);
  const uint32_t exponent = bits >> 23 < 20 ? 20 : bits >> 23;
  struct BlockScale result;
  result.scale = exponent == 255 ? float_of_bits(0x7FC00000u) : float_of_bits((exponent - 14) << 23);
  result.inverse = float_of_bits((254 - (exponent - 14)) << 23);
  return result;
}

static void fixed_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const enum Encoding encoding = m->encoding;
  const int columns = block_columns(encoding);
  const int floors = encoding == kEncodingAffine ? 1 : floor_count(encoding);
  float* scales = (float*)(out + 2 * m->cols);
  float* sums = scales + m->cols / columns;
  for (int64_t k = 0; k < m->cols; k += columns, ++scales, sums += floors) {
    const struct BlockScale fix = block_scale(largest_magnitude(in + k, columns));
    *scales = fix.scale;
    for (int part = 0; part < columns / 32; ++part) {
      const I both = fix_columns(in + k + 32 * part, f_set(fix.inverse), out + 2 * (k + 32 * part));
      const float first = *scales * (float)_mm256_extract_epi32(both, 0);
      const float second = *scales * (float)_mm256_extract_epi32(both, 4);
      if (floors == 16) {
        sums[2 * part] = first;
        sums[2 * part + 1] = second;
      } else if (floors != 0) {
        sums[part] = first + second;
      }
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
