// Router, experts and Engram. Conventions: ops/ops.h.
#pragma once

#include <cstdint>

#include "ops/numerics.h"
#include "tensor/weight.h"

namespace fathom {

// The router: sqrt(softplus(logit)) scores, the best by score + bias, weights from the plain scores.
struct RouteArgs {
  const float* logits;       // [rows, experts]
  const float* bias;         // [experts]
  const float* image_bias;   // [experts], for rows inside an image; may be null
  const uint8_t* is_image;   // [rows]; may be null
  int64_t rows;
  int experts;
  int experts_per_token;
  float route_scale;
  int32_t* ids;    // [rows, experts_per_token] out, ascending
  float* weights;  // [rows, experts_per_token] out
};

struct ExpertWeights {
  WeightMatrix gate;  // w1 [inter, dim]
  WeightMatrix up;    // w3 [inter, dim]
  WeightMatrix down;  // w2 [dim, inter]
};

// out = sum over chosen experts, in ascending id, of down(weight * silu(min(gate, limit)) * clamp(up)),
// then the shared expert without a weight. `in` is quantised already where the weights ask for it.
struct ExpertFfnArgs {
  const float* in;            // [rows, dim] input of the routed experts
  const float* shared_in;     // [rows, dim] input of the shared expert
  const int32_t* ids;         // [rows, experts_per_token]
  const float* weights;       // [rows, experts_per_token]
  const ExpertWeights* routed;  // [experts]
  const ExpertWeights* shared;  // one
  int64_t rows;
  int experts;
  int experts_per_token;
  int64_t dim;
  int64_t inter;
  float limit;
  bool quantize_routed;  // the activations in front of `down` go through the activation quantiser
  bool quantize_shared;
  float* out;  // [rows, dim] out
  Numerics numerics;
};

// The Engram gate and write-back; docs/model/engram.md.
struct EngramWriteArgs {
  const float* key_value;    // [rows, (n + 1) * dim]: a key for each stream, then the shared value
  const float* gate_weight;  // [n, dim]: q_weight * k_weight
  const uint8_t* is_masked;  // [rows]: gate 0 (rows inside an image); may be null
  int64_t rows;
  int stream_count;
  int64_t dim;
  float norm_eps;
  float* streams;  // [rows, n, dim] in, out
  Numerics numerics;
};

}  // namespace fathom
