#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/float_types.h"
#include "ops/reference/backend.h"
#include "tensor/quantize.h"

namespace fathom::reference {

void ReferenceBackend::route(const RouteArgs& args) {
  std::vector<float> score(static_cast<size_t>(args.experts));
  std::vector<int32_t> order(static_cast<size_t>(args.experts));
  for (int64_t row = 0; row < args.rows; ++row) {
    const bool image = args.is_image != nullptr && args.is_image[row] != 0;
    const float* bias = image && args.image_bias != nullptr ? args.image_bias : args.bias;
    for (int expert = 0; expert < args.experts; ++expert) {
      const float logit = args.logits[row * args.experts + expert];
      const float softplus = logit > 20.0f ? logit : std::log1p(std::exp(logit));
      score[static_cast<size_t>(expert)] = std::sqrt(softplus);
    }
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const float of_a = orderable(score[static_cast<size_t>(a)] + bias[a]);
      const float of_b = orderable(score[static_cast<size_t>(b)] + bias[b]);
      return of_a != of_b ? of_a > of_b : a < b;
    });
    std::sort(order.begin(), order.begin() + args.experts_per_token);
    float sum = 0;
    for (int slot = 0; slot < args.experts_per_token; ++slot)
      sum += score[static_cast<size_t>(order[static_cast<size_t>(slot)])];
    for (int slot = 0; slot < args.experts_per_token; ++slot) {
      const int32_t expert = order[static_cast<size_t>(slot)];
      args.ids[row * args.experts_per_token + slot] = expert;
      args.weights[row * args.experts_per_token + slot] =
          score[static_cast<size_t>(expert)] / (sum + 1e-20f) * args.route_scale;
    }
  }
}

namespace {

// One expert on one row. `route_weight` multiplies before the rounding in front of `down`.
void run_expert(ReferenceBackend& backend, const ExpertFfnArgs& args, const ExpertWeights& weights,
                const float* in, float route_weight, bool quantize, float* out) {
  const bool official = args.numerics == Numerics::kOfficial;
  std::vector<float> gate(static_cast<size_t>(args.inter));
  std::vector<float> up(static_cast<size_t>(args.inter));
  backend.linear({.in = in, .weight = &weights.gate, .rows = 1, .out = gate.data(), .round_to_bf16 = official});
  backend.linear({.in = in, .weight = &weights.up, .rows = 1, .out = up.data(), .round_to_bf16 = official});
  for (size_t k = 0; k < gate.size(); ++k) {
    // The gate has no lower clamp.
    const float g = std::min(gate[k], args.limit);
    const float u = std::clamp(up[k], -args.limit, args.limit);
    const float value = route_weight * (g * sigmoid(g) * u);
    gate[k] = official ? round_to_bf16(value) : value;
  }
  if (quantize) fake_quantize_q8(gate.data(), gate.data(), args.inter);
  backend.linear({.in = gate.data(), .weight = &weights.down, .rows = 1, .out = out, .round_to_bf16 = official});
}

}  // namespace

void ReferenceBackend::expert_ffn(const ExpertFfnArgs& args) {
  std::vector<float> one(static_cast<size_t>(args.dim));
  for (int64_t row = 0; row < args.rows; ++row) {
    float* out = args.out + row * args.dim;
    std::vector<float> sum(static_cast<size_t>(args.dim), 0.0f);
    for (int slot = 0; slot < args.experts_per_token; ++slot) {
      const int64_t choice = row * args.experts_per_token + slot;
      run_expert(*this, args, args.routed[args.ids[choice]], args.in + row * args.dim, args.weights[choice],
                 args.quantize_routed, one.data());
      for (size_t k = 0; k < one.size(); ++k) sum[k] += one[k];
    }
    run_expert(*this, args, *args.shared, args.shared_in + row * args.dim, 1.0f, args.quantize_shared, one.data());
    for (size_t k = 0; k < one.size(); ++k) {
      const float value = sum[k] + one[k];
      out[k] = args.numerics == Numerics::kOfficial ? round_to_bf16(value) : value;
    }
  }
}

}  // namespace fathom::reference
