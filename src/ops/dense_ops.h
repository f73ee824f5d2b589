// Embedding, hyper-connections, norms and matrix products. Conventions: ops/ops.h.
#pragma once

#include <cstdint>

#include "ops/numerics.h"
#include "tensor/weight.h"

namespace fathom {

struct EmbedTokensArgs {
  const WeightMatrix* table;  // [vocab, dim]
  const int32_t* tokens;      // [rows]
  int64_t rows;
  int stream_count;
  float* streams;  // [rows, stream_count, dim] out: the embedding, in every stream
};

// Coefficients of one sub-layer's hyper-connection; docs/model/backbone.md, "Coefficients of a sub-layer".
struct HyperMixArgs {
  const float* streams;     // [rows, n, dim]
  const WeightMatrix* fn;   // [(2 + n) * n, n * dim]
  const float* base;        // [(2 + n) * n]
  const float* scale;       // [3]
  int64_t rows;
  int stream_count;         // n
  int64_t dim;
  float norm_eps;
  float hyper_eps;
  int sinkhorn_iterations;
  float* pre;   // [rows, n] out
  float* post;  // [rows, n] out
  float* comb;  // [rows, n, n] out, source stream major
};

// out = sum over streams of pre[j] * streams[j].
struct HyperReadArgs {
  const float* streams;  // [rows, n, dim]
  const float* pre;      // [rows, n]
  int64_t rows;
  int stream_count;
  int64_t dim;
  float* out;  // [rows, dim] out
  Numerics numerics;
};

// streams[k] = post[k] * in + sum over j of comb[j, k] * streams[j], in place.
struct HyperWriteArgs {
  const float* in;    // [rows, dim]
  const float* post;  // [rows, n]
  const float* comb;  // [rows, n, n]
  int64_t rows;
  int stream_count;
  int64_t dim;
  float* streams;  // [rows, n, dim] in, out
  Numerics numerics;
};

struct RmsNormArgs {
  const float* in;      // [rows, width]
  const float* weight;  // [width]
  int64_t rows;
  int64_t width;
  float eps;
  float* out;  // [rows, width] out; may be `in`
  Numerics numerics;
};

// The quantiser in front of FP8 and FP4 matrices ("Q8" in docs/model/backbone.md): quantised and multiplied
// back, so that the values lie on the grid.
struct QuantizeActivationsArgs {
  const float* in;  // [rows, width]
  int64_t rows;
  int64_t width;  // a multiple of 32
  float* out;     // [rows, width] out; may be `in`
};

// out = in * weight^T.
struct LinearArgs {
  const float* in;  // [rows, weight->cols]
  const WeightMatrix* weight;
  int64_t rows;
  float* out;          // [rows, weight->rows] out
  bool round_to_bf16;  // the result is a bfloat16 tensor
  bool inputs_are_bf16 = false;  // every value of `in` is a bfloat16 number: products may be taken in it
};

// One matrix for each group of columns: the attention output projection of the first stage.
struct GroupedLinearArgs {
  const float* in;             // [rows, groups * weight->cols]
  const WeightMatrix* weight;  // [groups * out_per_group, cols]; group g owns consecutive rows
  int64_t rows;
  int groups;
  float* out;  // [rows, weight->rows] out
  bool round_to_bf16;
  bool inputs_are_bf16 = false;
};

}  // namespace fathom
