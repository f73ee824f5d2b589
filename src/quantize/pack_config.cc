#include "quantize/pack_config.h"

#include <nlohmann/json.hpp>

namespace fathom {
namespace {

using Json = nlohmann::json;  // sorts its keys

// 160000, not 160000.0: readers of such configs expect whole numbers where the release has them.
Json number(double value) {
  const int64_t whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

void add_engram(const EngramConfig& engram, Json& text) {
  if (engram.layer_ids.empty()) return;
  text["engram_layer_ids"] = engram.layer_ids;
  text["engram_num_embeddings"] = engram.rows;
  text["engram_max_ngram_size"] = engram.max_ngram;
  text["engram_vocab_size"] = engram.vocab_size;
  text["engram_n_heads"] = engram.heads;
  text["engram_head_dim"] = engram.head_dim;
  text["engram_pad_token_id"] = engram.pad_token_id;
  if (engram.compressed_vocab_size > 0) text["engram_compressed_vocab_size"] = engram.compressed_vocab_size;
}

void add_draft(const DraftConfig& draft, Json& text) {
  text["num_nextn_predict_layers"] = draft.stages;
  if (draft.stages == 0) return;
  text["dspark_block_size"] = draft.block_size;
  text["dspark_noise_token_id"] = draft.noise_token_id;
  text["dspark_target_layer_ids"] = draft.target_layer_ids;
  text["dspark_markov_rank"] = draft.markov_rank;
  text["dspark_n_routed_experts"] = draft.routed_experts;
  text["dspark_num_experts_per_tok"] = draft.experts_per_token;
}

void add_attention(const ModelConfig& c, Json& text) {
  std::vector<int> ratios = c.compress_ratios;
  ratios.resize(ratios.size() + static_cast<size_t>(c.draft.stages), 0);
  text["num_attention_heads"] = c.num_heads;
  text["num_key_value_heads"] = 1;
  text["head_dim"] = c.head_dim;
  text["qk_rope_head_dim"] = c.rope_dim;
  text["q_lora_rank"] = c.q_lora_rank;
  text["o_lora_rank"] = c.o_lora_rank;
  text["o_groups"] = c.o_groups;
  text["attention_bias"] = false;
  text["sliding_window"] = c.sliding_window;
  text["rope_theta"] = number(c.rope_theta);
  text["compress_rope_theta"] = number(c.compress_rope_theta);
  text["rope_scaling"] = {{"rope_type", "yarn"},
                          {"factor", number(c.yarn.factor)},
                          {"beta_fast", number(c.yarn.beta_fast)},
                          {"beta_slow", number(c.yarn.beta_slow)},
                          {"original_max_position_embeddings", c.yarn.original_max_position_embeddings}};
  text["max_position_embeddings"] = c.max_position_embeddings;
  text["compress_ratios"] = ratios;
  text["kv_source_layer_ids"] = c.kv_source_layer_ids;
  text["index_source_layer_ids"] = c.index_source_layer_ids;
  text["index_n_heads"] = c.index_heads;
  text["index_head_dim"] = c.index_head_dim;
  text["index_topk"] = c.index_topk;
  text["candidate_source_layer_id"] = c.candidate_source_layer_id;
  if (c.candidate_source_layer_id < 0) return;
  text["candidate_topk_blocks"] = c.candidate_topk_blocks;
  text["candidate_block_size"] = c.candidate_block_size;
}

void add_experts_and_streams(const ModelConfig& c, Json& text) {
  text["n_routed_experts"] = c.routed_experts;
  text["n_shared_experts"] = c.shared_experts;
  text["num_experts_per_tok"] = c.experts_per_token;
  text["moe_intermediate_size"] = c.moe_intermediate_size;
  text["scoring_func"] = "sqrtsoftplus";
  text["topk_method"] = "noaux_tc";
  text["hidden_act"] = "silu";
  text["norm_topk_prob"] = c.norm_topk_prob;
  text["routed_scaling_factor"] = c.routed_scaling_factor;
  if (c.gate_temp != 1) text["gate_temp"] = c.gate_temp;
  text["swiglu_limit"] = c.swiglu_limit;
  text["hc_mult"] = c.hc_mult;
  text["hc_sinkhorn_iters"] = c.hc_sinkhorn_iters;
  text["hc_eps"] = c.hc_eps;
}

Json vision_json(const VisionConfig& v) {
  return {{"model_type", "deepseek_v41_vision"},
          {"num_hidden_layers", v.layers},
          {"hidden_size", v.hidden_size},
          {"num_attention_heads", v.heads},
          {"intermediate_size", v.intermediate_size},
          {"patch_size", v.patch_size},
          {"rope_theta", number(v.rope_theta)},
          {"downsample_ratio", v.downsample_ratio},
          {"max_image_tokens", v.max_image_tokens},
          {"min_pixels", v.min_pixels},
          {"max_wh_ratio", v.max_wh_ratio ? Json(*v.max_wh_ratio) : Json(nullptr)}};
}

}  // namespace

std::string config_to_json(const ModelConfig& config, bool with_quantization) {
  Json text = {{"model_type", "deepseek_v41_text"},   {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},   {"num_hidden_layers", config.num_layers},
               {"rms_norm_eps", config.rms_norm_eps}, {"tie_word_embeddings", false}};
  add_attention(config, text);
  add_experts_and_streams(config, text);
  add_engram(config.engram, text);
  add_draft(config.draft, text);
  Json root = {{"architectures", {"DeepseekV41ForCausalLM"}},
               {"model_type", "deepseek_v41"},
               {"dtype", "bfloat16"},
               {"bos_token_id", config.bos_token_id},
               {"eos_token_id", config.eos_token_id},
               {"pad_token_id", config.pad_token_id},
               {"image_token_id", config.image_token_id},
               {"vision_config", config.vision ? vision_json(*config.vision) : Json(nullptr)},
               {"text_config", std::move(text)}};
  if (with_quantization)
    root["quantization_config"] = {{"quant_method", "fp8"},
                                   {"activation_scheme", "dynamic"},
                                   {"weight_block_size", {32, 32}},
                                   {"scale_fmt", "ue8m0"},
                                   {"expert_dtype", "fp4"}};
  if (config.synthetic)
    root["fathom_synth"] = {{"random_weights", true}, {"sparse_engram", config.engram.sparse}};
  return root.dump(1) + "\n";
}

}  // namespace fathom
