// Rounding, exponentials and the activation quantiser, lane by lane. Included after a vec.h.
#pragma once

#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

FATHOM_INLINE F f_abs(F x) { return f_bits(i_and(i_bits(x), i_set(0x7FFFFFFF))); }

// To bfloat16 and back, nearest even. Infinities and NaN pass unchanged: their bits must not be carried into.
FATHOM_INLINE F f_round_to_bf16(F x) {
  const I bits = i_bits(x);
  const I odd = i_and(i_right(bits, 16), i_set(1));
  const I rounded = i_and(i_add(bits, i_add(odd, i_set(0x7FFF))), i_set((int32_t)0xFFFF0000u));
  return f_select_less(f_abs(x), f_bits(i_set(0x7F800000)), f_bits(rounded), x);
}

// exp: x = n ln 2 + r, a polynomial in r, and 2^n in two steps so that subnormal results round once at the
// end.
FATHOM_INLINE F f_exp(F x) {
  // Beyond these bounds the result is infinite or zero. The constant comes first: NaN must survive.
  const F clamped = f_max(f_set(-105.0f), f_min(f_set(89.0f), x));
  const I n = i_nearest(f_mul(clamped, f_set(1.44269504f)));
  const F whole = f_from_i(n);
  // ln 2 in two parts, the first with few bits so that its product is exact.
  F r = f_fma(whole, f_set(-0.693359375f), clamped);
  r = f_fma(whole, f_set(2.12194440e-4f), r);
  F p = f_set(1.9875691500e-4f);
  p = f_fma(p, r, f_set(1.3981999507e-3f));
  p = f_fma(p, r, f_set(8.3334519073e-3f));
  p = f_fma(p, r, f_set(4.1665795894e-2f));
  p = f_fma(p, r, f_set(1.6666665459e-1f));
  p = f_fma(p, r, f_set(5.0000001201e-1f));
  p = f_add(f_fma(p, f_mul(r, r), r), f_set(1.0f));
  const I half = i_right_signed(n, 1);
  const F first = f_bits(i_left(i_add(half, i_set(127)), 23));
  const F second = f_bits(i_left(i_add(i_sub(n, half), i_set(127)), 23));
  return f_mul(f_mul(p, first), second);
}

static void fake_quantize_q8(const float* in, float* out, int64_t width) {
  static const int kGroup = 32;
  static const int kVectors = kGroup / kLanes;
  for (int64_t k = 0; k < width; k += kGroup) {
    F x[kVectors];
    F largest = f_zero();
    for (int v = 0; v < kVectors; ++v) {
      x[v] = f_load(in + k + v * kLanes);
      largest = f_max(largest, f_abs(x[v]));
    }
    const float magnitude = f_largest(largest);
    const float ratio = (magnitude < 1e-4f ? 1e-4f : magnitude) * (1.0f / 448.0f);
    uint32_t bits;
    memcpy(&bits, &ratio, sizeof bits);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
    const F scale = f_bits(i_set((int32_t)(exponent << 23)));
    const F inverse = f_bits(i_set((int32_t)((254u - exponent) << 23)));
    for (int v = 0; v < kVectors; ++v) {
      const F y = f_min(f_set(448.0f), f_abs(f_mul(x[v], inverse)));
      const I y_bits = i_bits(y);
      const I odd = i_and(i_right(y_bits, 20), i_set(1));
      const I normal = i_and(i_add(y_bits, i_add(odd, i_set(0x7FFFF))), i_set((int32_t)0xFFF00000u));
      // Subnormal codes: adding 2^14 makes the last bit worth 2^-9, the format's step.
      const F subnormal = f_sub(f_add(y, f_set(0x1p14f)), f_set(0x1p14f));
      const F code = f_select_less(y, f_set(0x1p-6f), subnormal, f_bits(normal));
      const I sign = i_and(i_bits(x[v]), i_set((int32_t)0x80000000u));
      f_store(out + k + v * kLanes, f_bits(i_or(i_bits(f_mul(code, scale)), sign)));
    }
  }
}

static void round_to_bf16(float* data, int64_t count) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) f_store(data + k, f_round_to_bf16(f_load(data + k)));
  if (k < count) f_store_part(data + k, f_round_to_bf16(f_load_part(data + k, count - k)), count - k);
}

static float sum_of_squares(const float* in, int64_t count) {
  F sum = f_zero();
  for (int64_t k = 0; k < count; k += kLanes) {
    const F x = k + kLanes <= count ? f_load(in + k) : f_load_part(in + k, count - k);
    sum = f_fma(x, x, sum);
  }
  return f_sum(sum);
}

// A vector, or the `left` lanes that are left. Masked loads and stores are slow on some processors, stores above
// all: they are for the last vector only.
FATHOM_INLINE F load_up_to(const float* p, int64_t left) {
  return left >= kLanes ? f_load(p) : f_load_part(p, left);
}
FATHOM_INLINE void store_up_to(float* p, F x, int64_t left) {
  if (left >= kLanes) f_store(p, x);
  else f_store_part(p, x, left);
}

static float dot3(const float* a, const float* b, const float* c, int64_t count) {
  F sum = f_zero();
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t left = count - k;
    sum = f_fma(f_mul(load_up_to(a + k, left), load_up_to(b + k, left)), load_up_to(c + k, left), sum);
  }
  return f_sum(sum);
}

static void scale_by(const float* in, const float* weight, float factor, float* out, int64_t count) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes)
    f_store(out + k, f_mul(f_load(weight + k), f_mul(f_load(in + k), f_set(factor))));
  const int64_t left = count - k;
  if (left > 0)
    f_store_part(out + k,
                 f_mul(f_load_part(weight + k, left), f_mul(f_load_part(in + k, left), f_set(factor))), left);
}

// `terms` is a constant where this is inlined, for the number of streams that models have.
FATHOM_INLINE void mix_terms(const float* in, const float* factors, const int terms, float* out,
                             int64_t count) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t left = count - k;
    F sum = f_zero();
    for (int j = 0; j < terms; ++j)
      sum = f_add(sum, f_mul(f_set(factors[j]), load_up_to(in + j * count + k, left)));
    store_up_to(out + k, sum, left);
  }
}

static void mix(const float* in, const float* factors, int terms, float* out, int64_t count) {
  if (terms == 4) mix_terms(in, factors, 4, out, count);
  else mix_terms(in, factors, terms, out, count);
}

FATHOM_INLINE void mix_back_streams(const float* in, const float* post, const float* comb, const int n,
                                    float* streams, int64_t count) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t left = count - k;
    F old[8];
    for (int j = 0; j < n; ++j) old[j] = load_up_to(streams + j * count + k, left);
    const F x = load_up_to(in + k, left);
    for (int to = 0; to < n; ++to) {
      F mixed = f_zero();
      for (int j = 0; j < n; ++j) mixed = f_add(mixed, f_mul(f_set(comb[j * n + to]), old[j]));
      store_up_to(streams + to * count + k, f_add(f_mul(f_set(post[to]), x), mixed), left);
    }
  }
}

static void mix_back(const float* in, const float* post, const float* comb, int n, float* streams,
                     int64_t count) {
  if (n == 4) mix_back_streams(in, post, comb, 4, streams, count);
  else mix_back_streams(in, post, comb, n, streams, count);
}

static void add_scaled(float* x, float factor, const float* value, int64_t count) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t left = count - k;
    store_up_to(x + k, f_add(load_up_to(x + k, left), f_mul(f_set(factor), load_up_to(value + k, left))),
                left);
  }
}

static void gated_product(float* gate, const float* up, float factor, float limit, int64_t count) {
  for (int64_t k = 0; k < count; k += kLanes) {
    const int64_t left = count - k;
    const F g = f_min(f_set(limit), load_up_to(gate + k, left));
    const F u = f_max(f_set(-limit), f_min(f_set(limit), load_up_to(up + k, left)));
    const F sigmoid = f_div(f_set(1.0f), f_add(f_set(1.0f), f_exp(f_sub(f_zero(), g))));
    store_up_to(gate + k, f_mul(f_set(factor), f_mul(f_mul(g, sigmoid), u)), left);
  }
}

}  // namespace
}  // namespace fathom::cpu
