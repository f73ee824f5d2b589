// The running softmax of attention and the head sums of the indexer. Included after a vec.h.
#pragma once

#include "cpu/generic/math.h"
#include "cpu/kernels.h"

namespace fathom::cpu {
namespace {

static const int kPlaces = 64;
static const int kValueHeads = 4;
static const int kValueVectors = 3;

static float softmax_block(float* scores, float scale, int is_rounded, float* maximum, float* denominator) {
  F largest = f_set(*maximum);
  for (int j = 0; j < kPlaces; j += kLanes) {
    const F score = f_mul(f_load(scores + j), f_set(scale));
    f_store(scores + j, score);
    largest = f_max(largest, score);
  }
  const float block_maximum = f_largest(largest);
  float correction[kLanes];
  f_store(correction, f_exp(f_set(*maximum - block_maximum)));
  F sum = f_zero();
  for (int j = 0; j < kPlaces; j += kLanes) {
    const F probability = f_exp(f_sub(f_load(scores + j), f_set(block_maximum)));
    sum = f_add(sum, probability);
    f_store(scores + j, is_rounded ? f_round_to_bf16(probability) : probability);
  }
  *maximum = block_maximum;
  *denominator = *denominator * correction[0] + f_sum(sum);
  return correction[0];
}

// `heads` heads times `vectors` vectors of channels, all keys. Both are constants where this is inlined. Only a
// single vector may be cut off at `left`: masked stores are slow.
FATHOM_INLINE void value_tile(const float* values, int64_t value_stride, int count, const float* weights,
                              const float* correction, const int heads, const int vectors, float* sum,
                              int64_t width, int64_t left) {
  F sums[kValueHeads][kValueVectors];
#pragma GCC unroll 4
  for (int h = 0; h < heads; ++h)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v)
      sums[h][v] = f_mul(vectors > 1 ? f_load(sum + h * width + v * kLanes)
                                     : f_load_part(sum + h * width, left),
                         f_set(correction[h]));
  for (int i = 0; i < count; ++i) {
    F value[kValueVectors];
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v)
      value[v] = vectors > 1 ? f_load(values + i * value_stride + v * kLanes)
                             : f_load_part(values + i * value_stride, left);
#pragma GCC unroll 4
    for (int h = 0; h < heads; ++h) {
      const F weight = f_set(weights[h * kPlaces + i]);
#pragma GCC unroll 3
      for (int v = 0; v < vectors; ++v) sums[h][v] = f_fma(weight, value[v], sums[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < heads; ++h)
#pragma GCC unroll 3
    for (int v = 0; v < vectors; ++v)
      if (vectors > 1) f_store(sum + h * width + v * kLanes, sums[h][v]);
      else f_store_part(sum + h * width, sums[h][v], left);
}

// One group of columns, all heads.
FATHOM_INLINE void value_strip(const float* values, int64_t value_stride, int count, const float* weights,
                               const float* correction, int heads, const int vectors, float* sum,
                               int64_t width, int64_t left) {
  int h = 0;
  for (; h + kValueHeads <= heads; h += kValueHeads)
    value_tile(values, value_stride, count, weights + h * kPlaces, correction + h, kValueHeads, vectors,
               sum + h * width, width, left);
  for (; h < heads; ++h)
    value_tile(values, value_stride, count, weights + h * kPlaces, correction + h, 1, vectors, sum + h * width,
               width, left);
}

static void weighted_values(const float* values, int64_t value_stride, int count, const float* weights,
                            const float* correction, int heads, float* sum, int64_t width) {
  int64_t k = 0;
  const int64_t step = kValueVectors * kLanes;
  for (; k + step <= width; k += step)
    value_strip(values + k, value_stride, count, weights, correction, heads, kValueVectors, sum + k, width, step);
  for (; k + 2 * kLanes <= width; k += 2 * kLanes)
    value_strip(values + k, value_stride, count, weights, correction, heads, 2, sum + k, width, 2 * kLanes);
  for (; k < width; k += kLanes)
    value_strip(values + k, value_stride, count, weights, correction, heads, 1, sum + k, width, width - k);
}

static void combine_heads(const float* similarity, int64_t stride, const float* head_weights, int heads,
                          int is_rounded, float* scores, int64_t count) {
  for (int64_t j = 0; j < count; j += kLanes) {
    const int64_t left = count - j;
    F sum = f_zero();
    for (int h = 0; h < heads; ++h) {
      F value = load_up_to(similarity + h * stride + j, left);
      if (is_rounded) value = f_round_to_bf16(value);
      F product = f_mul(f_max(f_zero(), value), f_set(head_weights[h]));
      if (is_rounded) product = f_round_to_bf16(product);
      sum = f_add(sum, product);
    }
    if (is_rounded) sum = f_round_to_bf16(sum);
    store_up_to(scores + j, f_add(sum, f_zero()), left);
  }
}

}  // namespace
}  // namespace fathom::cpu
