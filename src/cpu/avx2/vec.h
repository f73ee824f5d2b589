// The vector vocabulary of cpu/generic/ in AVX2 with FMA and F16C: 8 lanes.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace fathom::cpu {
namespace {

#define FATHOM_INLINE static inline __attribute__((always_inline))

#define FATHOM_TILE_ROWS 3
#define FATHOM_FUSED_ROWS 2
static const int kLanes = 8;
static const int kTileRows = FATHOM_TILE_ROWS;
static const int kFusedRows = FATHOM_FUSED_ROWS;
typedef __m256 F;
typedef __m256i I;

FATHOM_INLINE F f_zero() { return _mm256_setzero_ps(); }
FATHOM_INLINE F f_set(float x) { return _mm256_set1_ps(x); }
FATHOM_INLINE F f_load(const float* p) { return _mm256_loadu_ps(p); }
FATHOM_INLINE void f_store(float* p, F x) { _mm256_storeu_ps(p, x); }
FATHOM_INLINE I tail_mask(int64_t count) {
  const int lanes = count >= 8 ? 8 : count <= 0 ? 0 : (int)count;
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// The first `count` lanes; the others are zero.
FATHOM_INLINE F f_load_part(const float* p, int64_t count) { return _mm256_maskload_ps(p, tail_mask(count)); }
FATHOM_INLINE void f_store_part(float* p, F x, int64_t count) { _mm256_maskstore_ps(p, tail_mask(count), x); }
FATHOM_INLINE F f_add(F a, F b) { return _mm256_add_ps(a, b); }
FATHOM_INLINE F f_sub(F a, F b) { return _mm256_sub_ps(a, b); }
FATHOM_INLINE F f_mul(F a, F b) { return _mm256_mul_ps(a, b); }
FATHOM_INLINE F f_div(F a, F b) { return _mm256_div_ps(a, b); }
FATHOM_INLINE F f_fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
FATHOM_INLINE F f_min(F a, F b) { return _mm256_min_ps(a, b); }
FATHOM_INLINE F f_max(F a, F b) { return _mm256_max_ps(a, b); }

FATHOM_INLINE I i_set(int32_t x) { return _mm256_set1_epi32(x); }
FATHOM_INLINE I i_add(I a, I b) { return _mm256_add_epi32(a, b); }
FATHOM_INLINE I i_sub(I a, I b) { return _mm256_sub_epi32(a, b); }
FATHOM_INLINE I i_and(I a, I b) { return _mm256_and_si256(a, b); }
FATHOM_INLINE I i_or(I a, I b) { return _mm256_or_si256(a, b); }
FATHOM_INLINE I i_left(I a, int bits) { return _mm256_slli_epi32(a, bits); }
FATHOM_INLINE I i_right(I a, int bits) { return _mm256_srli_epi32(a, bits); }
FATHOM_INLINE I i_right_signed(I a, int bits) { return _mm256_srai_epi32(a, bits); }
FATHOM_INLINE F f_bits(I a) { return _mm256_castsi256_ps(a); }
FATHOM_INLINE I i_bits(F a) { return _mm256_castps_si256(a); }
FATHOM_INLINE F f_from_i(I a) { return _mm256_cvtepi32_ps(a); }
FATHOM_INLINE I i_nearest(F a) { return _mm256_cvtps_epi32(a); }
// a < b ? yes : no
FATHOM_INLINE F f_select_less(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

FATHOM_INLINE I i_widen_i8(const uint8_t* p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
}
FATHOM_INLINE I i_widen_u16(const uint8_t* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
}
FATHOM_INLINE F f_widen_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
FATHOM_INLINE float half_to_float(uint16_t half) { return _cvtsh_ss(half); }

// Sum in the fixed tree: lane i takes lane i + 4, then i + 2, i + 1.
FATHOM_INLINE __m128 fold_to_4(F x) {
  return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}
FATHOM_INLINE float f_sum(F x) {
  const __m128 four = fold_to_4(x);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
FATHOM_INLINE float f_largest(F x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
// f_sum of each of the four, stored to out[0..3].
FATHOM_INLINE void store_sums4(float* out, F a, F b, F c, F d) {
  const __m128 a4 = fold_to_4(a), b4 = fold_to_4(b), c4 = fold_to_4(c), d4 = fold_to_4(d);
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a4, b4), _mm_unpackhi_ps(a4, b4));
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c4, d4), _mm_unpackhi_ps(c4, d4));
  _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}

// Half the scale: codes are looked up as twice their value. Both are exact.
typedef __m256 Fp4Table;
FATHOM_INLINE Fp4Table fp4_table(float scale) { return _mm256_set1_ps(0.5f * scale); }
FATHOM_INLINE __m128i fp4_doubled(__m128i codes) {
  const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  return _mm_shuffle_epi8(values, codes);
}
FATHOM_INLINE F fp4_scaled8(__m128i doubled, Fp4Table table) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(doubled)), table);
}
// 32 columns of 16 bytes, the even column in the low nibble.
FATHOM_INLINE void fp4_pairs32(const uint8_t* p, Fp4Table table, F* out) {
  const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i even = fp4_doubled(_mm_and_si128(bytes, nibble));
  const __m128i odd = fp4_doubled(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
  const __m128i first = _mm_unpacklo_epi8(even, odd);
  const __m128i second = _mm_unpackhi_epi8(even, odd);
  out[0] = fp4_scaled8(first, table);
  out[1] = fp4_scaled8(_mm_srli_si128(first, 8), table);
  out[2] = fp4_scaled8(second, table);
  out[3] = fp4_scaled8(_mm_srli_si128(second, 8), table);
}
// 16 columns of 8 bytes.
FATHOM_INLINE void fp4_pairs16(const uint8_t* p, Fp4Table table, float* out) {
  const __m128i bytes = _mm_loadl_epi64((const __m128i*)p);
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i even = fp4_doubled(_mm_and_si128(bytes, nibble));
  const __m128i odd = fp4_doubled(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
  const __m128i first = _mm_unpacklo_epi8(even, odd);
  f_store(out, fp4_scaled8(first, table));
  f_store(out + 8, fp4_scaled8(_mm_srli_si128(first, 8), table));
}
// 32 columns of 16 bytes: the low nibbles, then the high nibbles.
FATHOM_INLINE void fp4_halves32(const uint8_t* p, Fp4Table table, F* out) {
  const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i low = fp4_doubled(_mm_and_si128(bytes, nibble));
  const __m128i high = fp4_doubled(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
  out[0] = fp4_scaled8(low, table);
  out[1] = fp4_scaled8(_mm_srli_si128(low, 8), table);
  out[2] = fp4_scaled8(high, table);
  out[3] = fp4_scaled8(_mm_srli_si128(high, 8), table);
}

}  // namespace
}  // namespace fathom::cpu
