// Fixed-point rows for encodings of four bits (fixed_pairs.h): 64 columns, a pair of 32, at a time. The four
// vectors of words of a pair have, in every half, the columns `pair_column` says.
#pragma once

#include "cpu/avx2/fixed_rows.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE int is_paired(enum Encoding encoding) {
  return encoding == kEncodingFp4 || encoding == kEncodingMxfp4 || encoding == kEncodingIq4Nl;
}
// Column, within its 32, of word `place` (of eight) of vector `vector`: codes are nibbles of pairs of columns
// (FP4) or of the two halves; vectors have the low nibbles of even and odd bytes, then the high ones.
FATHOM_INLINE int pair_column(enum Encoding encoding, int vector, int place) {
  const int byte = 2 * place + vector % 2;
  return encoding == kEncodingFp4 ? 2 * byte + vector / 2 : byte + 16 * (vector / 2);
}
FATHOM_INLINE int64_t pair_count(int64_t cols) { return (cols + 63) / 64; }

// A prepared row: q [pairs][4][16]; the scales of each pair, four times the first, four times the second; what
// q leaves of the activations, 2^6 times finer, as words like q; how many pairs have such a rest, and which.
// Rests are for FP4, whose activations were rounded to FP8: an e4m3 number needs 18 bits beside the largest of
// its 32, so with both it is exact, and one pair in twenty has a rest. An odd 32 columns at the end are the
// first half of a pair whose second half is zero.
struct PairRow {
  const uint8_t* q;
  const float* scales;
  const uint8_t* rest;
  const uint16_t* with_rest;  // their number, then the pairs, ascending
};
FATHOM_INLINE struct PairRow pair_row(const uint8_t* row, int64_t cols) {
  const int64_t pairs = pair_count(cols);
  struct PairRow result = {row, (const float*)(row + 128 * pairs), row + 160 * pairs,
                           (const uint16_t*)(row + 288 * pairs)};
  return result;
}
FATHOM_INLINE int64_t pair_row_bytes(const struct EncodedMatrix* m) {
  return (pair_count(m->cols) * 290 + 2 + 63) / 64 * 64;
}

// A panel row (fixed_panel.h) has the first two of these.
FATHOM_INLINE const float* pair_scales_of(const uint8_t* row, int64_t cols) {
  return (const float*)(row + 128 * pair_count(cols));
}

// 32 columns as they are in half `half` of a pair.
FATHOM_INLINE void store_half(enum Encoding encoding, const int16_t* columns, int half, int16_t* words) {
  for (int vector = 0; vector < 4; ++vector)
    for (int place = 0; place < 8; ++place) {
      const int column = pair_column(encoding, vector, place);
      words[16 * vector + 8 * half + place] = columns[column / 2 + 16 * (column % 2)];
    }
}
// Like fix_columns, of what that left; whether it is not all zero.
FATHOM_INLINE int fix_rest(const float* in, F inverse, uint8_t* out) {
  float rest[32];
  F any = f_zero();
  for (int k = 0; k < 32; k += kLanes) {
    const F x = f_mul(f_load(in + k), inverse);
    const F left = f_mul(f_sub(x, f_from_i(i_nearest(x))), f_set(64.0f));
    f_store(rest + k, left);
    any = _mm256_or_ps(any, left);
  }
  fix_columns(rest, f_set(1.0f), out);
  return !_mm256_testz_si256(i_bits(any), i_set(0x7FFFFFFF));
}
static void pair_prepare(const struct EncodedMatrix* m, const float* in, uint8_t* out) {
  const struct PairRow row = pair_row(out, m->cols);
  uint16_t* with_rest = (uint16_t*)row.with_rest;
  with_rest[0] = 0;
  for (int64_t pair = 0; pair < pair_count(m->cols); ++pair) {
    int has_rest = 0;
    for (int half = 0; half < 2; ++half) {
      const int64_t k = 64 * pair + 32 * half;
      alignas(32) int16_t q[32] = {0}, rest[32] = {0};
      float scale = 0.0f;
      if (k < m->cols) {
        const struct BlockScale fix = block_scale(largest_magnitude(in + k, 32));
        fix_columns(in + k, f_set(fix.inverse), (uint8_t*)q);
        if (m->encoding == kEncodingFp4) has_rest |= fix_rest(in + k, f_set(fix.inverse), (uint8_t*)rest);
        scale = fix.scale;
      }
      store_half(m->encoding, q, half, (int16_t*)row.q + 64 * pair);
      store_half(m->encoding, rest, half, (int16_t*)row.rest + 64 * pair);
      for (int lane = 0; lane < 4; ++lane) ((float*)row.scales)[8 * pair + 4 * half + lane] = scale;
    }
    if (has_rest) with_rest[++with_rest[0]] = (uint16_t)pair;
  }
}

}  // namespace
}  // namespace fathom::cpu
