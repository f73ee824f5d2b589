// The vector vocabulary of cpu/generic/ without instruction set flags: 4 lanes of the compiler's own vectors.
// There is no fused multiply-add that every machine has, so f_fma multiplies, then adds.
#pragma once

#include <stdint.h>
#include <string.h>

namespace fathom::cpu {
namespace {

#define FATHOM_INLINE static inline __attribute__((always_inline))

#define FATHOM_TILE_ROWS 2
#define FATHOM_FUSED_ROWS 1
static const int kLanes = 4;
static const int kTileRows = FATHOM_TILE_ROWS;
static const int kFusedRows = FATHOM_FUSED_ROWS;
typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));

FATHOM_INLINE F f_set(float x) { return F{x, x, x, x}; }
FATHOM_INLINE F f_zero() { return f_set(0.0f); }
FATHOM_INLINE F f_load(const float* p) {
  F x;
  memcpy(&x, p, sizeof x);
  return x;
}
FATHOM_INLINE void f_store(float* p, F x) { memcpy(p, &x, sizeof x); }
// The first `count` lanes; the others are zero.
FATHOM_INLINE F f_load_part(const float* p, int64_t count) {
  F x = f_zero();
  for (int lane = 0; lane < 4 && lane < count; ++lane) x[lane] = p[lane];
  return x;
}
FATHOM_INLINE void f_store_part(float* p, F x, int64_t count) {
  for (int lane = 0; lane < 4 && lane < count; ++lane) p[lane] = x[lane];
}
FATHOM_INLINE F f_add(F a, F b) { return a + b; }
FATHOM_INLINE F f_sub(F a, F b) { return a - b; }
FATHOM_INLINE F f_mul(F a, F b) { return a * b; }
FATHOM_INLINE F f_div(F a, F b) { return a / b; }
FATHOM_INLINE F f_fma(F a, F b, F c) { return a * b + c; }

FATHOM_INLINE I i_set(int32_t x) { return I{x, x, x, x}; }
FATHOM_INLINE I i_add(I a, I b) { return (I)((U)a + (U)b); }
FATHOM_INLINE I i_sub(I a, I b) { return (I)((U)a - (U)b); }
FATHOM_INLINE I i_and(I a, I b) { return a & b; }
FATHOM_INLINE I i_or(I a, I b) { return a | b; }
FATHOM_INLINE I i_left(I a, int bits) { return (I)((U)a << (uint32_t)bits); }
FATHOM_INLINE I i_right(I a, int bits) { return (I)((U)a >> (uint32_t)bits); }
FATHOM_INLINE I i_right_signed(I a, int bits) { return a >> bits; }
FATHOM_INLINE F f_bits(I a) { return (F)a; }
FATHOM_INLINE I i_bits(F a) { return (I)a; }
FATHOM_INLINE F f_from_i(I a) { return __builtin_convertvector(a, F); }
// Nearest, ties to even, for magnitudes below 2^22: the float adder does the rounding.
FATHOM_INLINE I i_nearest(F a) {
  const F shift = f_set(12582912.0f);
  return __builtin_convertvector((a + shift) - shift, I);
}
// a < b ? yes : no
FATHOM_INLINE F f_select_less(F a, F b, F yes, F no) {
  const I less = a < b;
  return (F)((less & (I)yes) | (~less & (I)no));
}
FATHOM_INLINE F f_min(F a, F b) { return f_select_less(a, b, a, b); }
FATHOM_INLINE F f_max(F a, F b) { return f_select_less(b, a, a, b); }

FATHOM_INLINE I i_widen_i8(const uint8_t* p) {
  return I{(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]};
}
FATHOM_INLINE I i_widen_u16(const uint8_t* p) {
  uint16_t x[4];
  memcpy(x, p, sizeof x);
  return I{x[0], x[1], x[2], x[3]};
}
FATHOM_INLINE F f_widen_f16(const uint8_t* p) {
  const I half = i_widen_u16(p);
  const I magnitude = half & i_set(0x7FFF);
  // Shift the exponent into place, then scale by 2^112: exact for normals and subnormals alike.
  const F finite = f_bits(i_left(magnitude, 13)) * f_set(0x1p112f);
  const F special = f_bits(i_left(magnitude, 13) | i_set(0x7F800000));
  const I is_finite = magnitude < i_set(0x7C00);
  return f_bits((is_finite & i_bits(finite)) | (~is_finite & i_bits(special)) |
                i_left(half & i_set(0x8000), 16));
}
FATHOM_INLINE float half_to_float(uint16_t half) {
  uint8_t bytes[8] = {(uint8_t)(half & 255), (uint8_t)(half >> 8)};
  return f_widen_f16(bytes)[0];
}

// Sum in the fixed tree: lane i takes lane i + 2, then i + 1.
FATHOM_INLINE float f_sum(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
FATHOM_INLINE float f_largest(F x) {
  const float a = x[0] < x[2] ? x[2] : x[0];
  const float b = x[1] < x[3] ? x[3] : x[1];
  return a < b ? b : a;
}
// f_sum of each of the four, stored to out[0..3].
FATHOM_INLINE void store_sums4(float* out, F a, F b, F c, F d) {
  out[0] = f_sum(a);
  out[1] = f_sum(b);
  out[2] = f_sum(c);
  out[3] = f_sum(d);
}

// The sixteen e2m1 values times a scale.
typedef struct {
  float values[16];
} Fp4Table;
FATHOM_INLINE Fp4Table fp4_table(float scale) {
  static const float magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  Fp4Table table;
  for (int code = 0; code < 8; ++code) {
    table.values[code] = magnitudes[code] * scale;
    table.values[code + 8] = -table.values[code];
  }
  return table;
}
// 2 * bytes columns, the even column in the low nibble.
FATHOM_INLINE void fp4_pairs(const uint8_t* p, const Fp4Table* table, int bytes, float* out) {
  for (int byte = 0; byte < bytes; ++byte) {
    out[2 * byte] = table->values[p[byte] & 15];
    out[2 * byte + 1] = table->values[p[byte] >> 4];
  }
}
FATHOM_INLINE void fp4_pairs32(const uint8_t* p, Fp4Table table, F* out) {
  float columns[32];
  fp4_pairs(p, &table, 16, columns);
  memcpy(out, columns, sizeof columns);
}
FATHOM_INLINE void fp4_pairs16(const uint8_t* p, Fp4Table table, float* out) { fp4_pairs(p, &table, 8, out); }
// 32 columns of 16 bytes: the low nibbles, then the high nibbles.
FATHOM_INLINE void fp4_halves32(const uint8_t* p, Fp4Table table, F* out) {
  float columns[32];
  for (int byte = 0; byte < 16; ++byte) {
    columns[byte] = table.values[p[byte] & 15];
    columns[byte + 16] = table.values[p[byte] >> 4];
  }
  memcpy(out, columns, sizeof columns);
}

}  // namespace
}  // namespace fathom::cpu
