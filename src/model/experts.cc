// The expert half of a layer: router, chosen experts, shared expert.
#include "model/forward.h"

namespace fathom {

Result<void> StepRunner::run_experts(const LayerPlan& plan, const LayerWeights& w) {
  const int chosen = config_.experts_per_token;
  backend_.linear({.in = s_.hidden, .weight = &w.router, .rows = rows_.rows, .out = s_.router_logits,
                   .round_to_bf16 = false, .inputs_are_bf16 = official_});
  backend_.route({.logits = s_.router_logits, .bias = w.router_bias.floats(), .image_bias = nullptr,
                  .is_image = nullptr, .rows = rows_.rows, .experts = config_.routed_experts,
                  .experts_per_token = chosen,
                  .route_scale = static_cast<float>(config_.routed_scaling_factor), .ids = s_.expert_ids,
                  .weights = s_.expert_weights});
  probe("router_ids", plan.layer, s_.expert_ids, rows_.rows, chosen);

  FATHOM_ASSIGN(const ExpertWeights* experts,
                context_.weights.experts->acquire(plan.layer, s_.expert_ids, rows_.rows * chosen));
  const bool any = w.quantize_routed.in || w.quantize_shared.in;
  const float* quantized = quantized_if(any, s_.hidden, config_.hidden_size, s_.hidden_quantized);
  backend_.expert_ffn({.in = w.quantize_routed.in ? quantized : s_.hidden,
                       .shared_in = w.quantize_shared.in ? quantized : s_.hidden,
                       .ids = s_.expert_ids, .weights = s_.expert_weights, .routed = experts,
                       .shared = &w.shared, .rows = rows_.rows, .experts = config_.routed_experts,
                       .experts_per_token = chosen, .dim = config_.hidden_size,
                       .inter = config_.moe_intermediate_size,
                       .limit = static_cast<float>(config_.swiglu_limit), .quantize_routed = w.quantize_routed.down,
                       .quantize_shared = w.quantize_shared.down, .out = s_.sublayer_out, .numerics = numerics_});
  return {};
}

}  // namespace fathom
