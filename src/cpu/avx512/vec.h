// The vector vocabulary of cpu/generic/ in AVX-512: 16 lanes.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace fathom::cpu {
namespace {

#define FATHOM_INLINE static inline __attribute__((always_inline))

#define FATHOM_TILE_ROWS 6
#define FATHOM_FUSED_ROWS 2
static const int kLanes = 16;
static const int kTileRows = FATHOM_TILE_ROWS;
static const int kFusedRows = FATHOM_FUSED_ROWS;
typedef __m512 F;
typedef __m512i I;
typedef __mmask16 M;

FATHOM_INLINE F f_zero() { return _mm512_setzero_ps(); }
FATHOM_INLINE F f_set(float x) { return _mm512_set1_ps(x); }
FATHOM_INLINE F f_load(const float* p) { return _mm512_loadu_ps(p); }
FATHOM_INLINE void f_store(float* p, F x) { _mm512_storeu_ps(p, x); }
FATHOM_INLINE M tail_mask(int64_t count) {
  return count >= 16 ? 0xFFFF : count <= 0 ? 0 : (M)((1u << count) - 1u);
}
// The first `count` lanes; the others are zero.
FATHOM_INLINE F f_load_part(const float* p, int64_t count) {
  return _mm512_maskz_loadu_ps(tail_mask(count), p);
}
FATHOM_INLINE void f_store_part(float* p, F x, int64_t count) {
  _mm512_mask_storeu_ps(p, tail_mask(count), x);
}
FATHOM_INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
FATHOM_INLINE F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
FATHOM_INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
FATHOM_INLINE F f_div(F a, F b) { return _mm512_div_ps(a, b); }
FATHOM_INLINE F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
FATHOM_INLINE F f_min(F a, F b) { return _mm512_min_ps(a, b); }
FATHOM_INLINE F f_max(F a, F b) { return _mm512_max_ps(a, b); }

FATHOM_INLINE I i_set(int32_t x) { return _mm512_set1_epi32(x); }
FATHOM_INLINE I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
FATHOM_INLINE I i_sub(I a, I b) { return _mm512_sub_epi32(a, b); }
FATHOM_INLINE I i_and(I a, I b) { return _mm512_and_si512(a, b); }
FATHOM_INLINE I i_or(I a, I b) { return _mm512_or_si512(a, b); }
FATHOM_INLINE I i_left(I a, int bits) { return _mm512_slli_epi32(a, (unsigned)bits); }
FATHOM_INLINE I i_right(I a, int bits) { return _mm512_srli_epi32(a, (unsigned)bits); }
FATHOM_INLINE I i_right_signed(I a, int bits) { return _mm512_srai_epi32(a, (unsigned)bits); }
FATHOM_INLINE F f_bits(I a) { return _mm512_castsi512_ps(a); }
FATHOM_INLINE I i_bits(F a) { return _mm512_castps_si512(a); }
FATHOM_INLINE F f_from_i(I a) { return _mm512_cvtepi32_ps(a); }
FATHOM_INLINE I i_nearest(F a) { return _mm512_cvtps_epi32(a); }
// a < b ? yes : no
FATHOM_INLINE F f_select_less(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

FATHOM_INLINE I i_widen_i8(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
}
FATHOM_INLINE I i_widen_u16(const uint8_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
}
FATHOM_INLINE F f_widen_f16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
FATHOM_INLINE float half_to_float(uint16_t half) { return _cvtsh_ss(half); }

// Sum in the fixed tree: lane i takes lane i + 8, then i + 4, i + 2, i + 1.
FATHOM_INLINE __m128 fold_to_4(F x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
}
FATHOM_INLINE float f_sum(F x) {
  const __m128 four = fold_to_4(x);
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
FATHOM_INLINE float f_largest(F x) { return _mm512_reduce_max_ps(x); }

// Two fold steps of four vectors at once: block j of four lanes holds what is left of argument j.
FATHOM_INLINE F fold4(F a, F b, F c, F d) {
  const F ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  const F cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
}
// f_sum of each of the four, stored to out[0..3].
FATHOM_INLINE void store_sums4(float* out, F a, F b, F c, F d) {
  const F lanes = fold4(a, b, c, d);
  const F two = _mm512_add_ps(lanes, _mm512_permute_ps(lanes, 0x4E));
  const F one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xB1));
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, one)));
}

// The sixteen e2m1 values times a scale, ready to be looked up.
typedef __m512 Fp4Table;
FATHOM_INLINE Fp4Table fp4_table(float scale) {
  const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
                                       -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return _mm512_mul_ps(values, _mm512_set1_ps(scale));
}
// 32 columns of 16 bytes, the even column in the low nibble.
FATHOM_INLINE void fp4_pairs32(const uint8_t* p, Fp4Table table, F* out) {
  const __m512i low = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i*)p));
  const __m512i high = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i*)(p + 8)));
  // The lookup reads the lowest four bits of a lane only, so what else the shift leaves there is harmless.
  out[0] = _mm512_permutexvar_ps(_mm512_or_si512(low, _mm512_slli_epi64(low, 28)), table);
  out[1] = _mm512_permutexvar_ps(_mm512_or_si512(high, _mm512_slli_epi64(high, 28)), table);
}
// 16 columns of 8 bytes.
FATHOM_INLINE void fp4_pairs16(const uint8_t* p, Fp4Table table, float* out) {
  const __m512i low = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i*)p));
  f_store(out, _mm512_permutexvar_ps(_mm512_or_si512(low, _mm512_slli_epi64(low, 28)), table));
}
// 32 columns of 16 bytes: the low nibbles, then the high nibbles.
FATHOM_INLINE void fp4_halves32(const uint8_t* p, Fp4Table table, F* out) {
  const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
  out[0] = _mm512_permutexvar_ps(codes, table);
  out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table);
}

}  // namespace
}  // namespace fathom::cpu
