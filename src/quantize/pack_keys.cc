#include "quantize/pack_keys.h"

#include <algorithm>

#include "quantize/pack_config.h"

namespace fathom {
namespace {

constexpr const char* kName = "DeepSeek V4.1 Flash";
constexpr uint32_t kGatingSqrtSoftplus = 4;

template <class To, class From>
std::vector<To> as(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

// Constants of all layers one after the other.
template <class To>
std::vector<To> joined(const std::vector<EngramLayerHash>& hashes,
                       std::vector<int64_t> EngramLayerHash::* member) {
  std::vector<To> all;
  for (const EngramLayerHash& hash : hashes)
    all.insert(all.end(), (hash.*member).begin(), (hash.*member).end());
  return all;
}

class KeyAdder {
 public:
  explicit KeyAdder(GgufWriter& writer) : writer_(writer) {}
  void u32(const char* key, int64_t value) { writer_.add_u32(full(key), static_cast<uint32_t>(value)); }
  void f32(const char* key, double value) { writer_.add_f32(full(key), static_cast<float>(value)); }
  void text(const char* key, const std::string& value) { writer_.add_string(full(key), value); }
  void boolean(const char* key, bool value) { writer_.add_bool(full(key), value); }
  void i32s(const char* key, const std::vector<int32_t>& values) { writer_.add_i32s(full(key), values); }
  void u32s(const char* key, const std::vector<uint32_t>& values) { writer_.add_u32s(full(key), values); }
  void u64s(const char* key, const std::vector<uint64_t>& values) { writer_.add_u64s(full(key), values); }
  void f32s(const char* key, const std::vector<float>& values) { writer_.add_f32s(full(key), values); }

 private:
  static std::string full(const char* key) { return std::string("deepseek41.") + key; }
  GgufWriter& writer_;
};

void add_ds4_config(KeyAdder& add, const ModelConfig& c) {
  add.text("config", config_to_json(c, /*with_quantization=*/false));
  add.u32("vocab_size", c.vocab_size);
  add.u32("hidden_size", c.hidden_size);
  add.u32("moe_intermediate_size", c.moe_intermediate_size);
  add.u32("num_hidden_layers", c.num_layers);
  add.u32("num_attention_heads", c.num_heads);
  add.u32("num_key_value_heads", 1);
  add.u32("head_dim", c.head_dim);
  add.u32("qk_rope_head_dim", c.rope_dim);
  add.u32("q_lora_rank", c.q_lora_rank);
  add.u32("o_lora_rank", c.o_lora_rank);
  add.u32("o_groups", c.o_groups);
  add.u32("n_routed_experts", c.routed_experts);
  add.u32("n_shared_experts", c.shared_experts);
  add.u32("num_experts_per_tok", c.experts_per_token);
  add.u32("max_position_embeddings", c.max_position_embeddings);
  add.u32("sliding_window", c.sliding_window);
  add.u32("index_n_heads", c.index_heads);
  add.u32("index_head_dim", c.index_head_dim);
  add.u32("index_topk", c.index_topk);
  if (c.candidate_source_layer_id >= 0) {
    add.u32("candidate_source_layer_id", c.candidate_source_layer_id);
    add.u32("candidate_topk_blocks", c.candidate_topk_blocks);
    add.u32("candidate_block_size", c.candidate_block_size);
  }
  add.u32("hc_mult", c.hc_mult);
  add.u32("hc_sinkhorn_iters", c.hc_sinkhorn_iters);
  add.u32("rope_theta", static_cast<int64_t>(c.rope_theta));
  add.u32("compress_rope_theta", static_cast<int64_t>(c.compress_rope_theta));
  add.f32("rms_norm_eps", c.rms_norm_eps);
  add.f32("hc_eps", c.hc_eps);
  add.f32("swiglu_limit", c.swiglu_limit);
  add.f32("routed_scaling_factor", c.routed_scaling_factor);
  add.f32("rope_scaling.factor", c.yarn.factor);
  add.f32("rope_scaling.beta_fast", c.yarn.beta_fast);
  add.f32("rope_scaling.beta_slow", c.yarn.beta_slow);
  add.f32("rope_scaling.original_max_position_embeddings",
          static_cast<double>(c.yarn.original_max_position_embeddings));
  add.text("scoring_func", "sqrtsoftplus");
  add.text("hidden_act", "silu");
  add.text("topk_method", "noaux_tc");
  add.boolean("norm_topk_prob", c.norm_topk_prob);
  add.i32s("compress_ratios", c.compress_ratios);
  add.i32s("kv_source_layer_ids", c.kv_source_layer_ids);
  add.i32s("index_source_layer_ids", c.index_source_layer_ids);
}

void add_ds4_engram(KeyAdder& add, const KeyInputs& in) {
  const EngramConfig& engram = in.config->engram;
  if (engram.layer_ids.empty()) return;
  add.text("engram.encoding", fmt::format("e4m3_e8m0_32_row{}", engram.head_dim + engram.head_dim / 32));
  add.u32s("engram.layer_ids", as<uint32_t>(engram.layer_ids));
  add.u32s("engram.rows", as<uint32_t>(engram.rows));
  add.u32s("engram.primes", joined<uint32_t>(in.hashes, &EngramLayerHash::primes));
  add.u64s("engram.multipliers", joined<uint64_t>(in.hashes, &EngramLayerHash::multipliers));
  add.u32s("engram.token_map", as<uint32_t>(in.token_map));
  add.u32("engram.compressed_vocab_size", 1 + *std::max_element(in.token_map.begin(), in.token_map.end()));
  add.u32("engram.pad_id", in.token_map[static_cast<size_t>(engram.pad_token_id)]);
}

void add_llama_config(KeyAdder& add, const ModelConfig& c) {
  std::vector<int32_t> ratios = c.compress_ratios;
  ratios.resize(ratios.size() + static_cast<size_t>(c.draft.stages), 0);
  add.u32("block_count", c.num_layers);
  add.u32("context_length", c.max_position_embeddings);
  add.u32("embedding_length", c.hidden_size);
  add.u32("vocab_size", c.vocab_size);
  add.u32("attention.head_count", c.num_heads);
  add.u32("attention.head_count_kv", 1);
  add.u32("attention.key_length", c.head_dim);
  add.u32("attention.value_length", c.head_dim);
  add.f32("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  add.u32("attention.q_lora_rank", c.q_lora_rank);
  add.u32("attention.sliding_window", c.sliding_window);
  add.u32("attention.output_group_count", c.o_groups);
  add.u32("attention.output_lora_rank", c.o_lora_rank);
  add.i32s("attention.compress_ratios", ratios);
  add.f32("attention.compress_rope_freq_base", c.compress_rope_theta);
  add.u32("attention.indexer.head_count", c.index_heads);
  add.u32("attention.indexer.key_length", c.index_head_dim);
  add.u32("attention.indexer.top_k", c.index_topk);
  add.u32("rope.dimension_count", c.rope_dim);
  add.f32("rope.freq_base", c.rope_theta);
  add.text("rope.scaling.type", "yarn");
  add.f32("rope.scaling.factor", c.yarn.factor);
  add.u32("rope.scaling.original_context_length", c.yarn.original_max_position_embeddings);
  add.f32("rope.scaling.yarn_beta_fast", c.yarn.beta_fast);
  add.f32("rope.scaling.yarn_beta_slow", c.yarn.beta_slow);
  add.u32("expert_count", c.routed_experts);
  add.u32("expert_used_count", c.experts_per_token);
  add.u32("expert_shared_count", c.shared_experts);
  add.u32("expert_feed_forward_length", c.moe_intermediate_size);
  add.u32("expert_gating_func", kGatingSqrtSoftplus);
  add.f32("expert_weights_scale", c.routed_scaling_factor);
  add.boolean("expert_weights_norm", c.norm_topk_prob);
  const std::vector<float> limits(static_cast<size_t>(c.num_layers), static_cast<float>(c.swiglu_limit));
  add.f32s("swiglu_clamp_exp", limits);
  add.f32s("swiglu_clamp_shexp", limits);
  add.u32("hyper_connection.count", c.hc_mult);
  add.u32("hyper_connection.sinkhorn_iterations", c.hc_sinkhorn_iters);
  add.f32("hyper_connection.epsilon", c.hc_eps);
  add.u32("hash_layer_count", 0);
  if (c.candidate_source_layer_id < 0) return;
  // Not of the converter, whose reader has the release's values built in; other shapes need them.
  add.u32("candidate_source_layer_id", c.candidate_source_layer_id);
  add.u32("candidate_topk_blocks", c.candidate_topk_blocks);
  add.u32("candidate_block_size", c.candidate_block_size);
}

void add_llama_engram(KeyAdder& add, const KeyInputs& in) {
  const EngramConfig& engram = in.config->engram;
  if (engram.layer_ids.empty()) return;
  add.i32s("engram.layer_ids", engram.layer_ids);
  add.u32("engram.head_count", engram.heads);
  add.u32("engram.key_length", engram.head_dim);
  add.u32("engram.max_ngram_size", engram.max_ngram);
  add.u32("engram.pad_id", in.token_map[static_cast<size_t>(engram.pad_token_id)]);
  add.u64s("engram.multipliers", joined<uint64_t>(in.hashes, &EngramLayerHash::multipliers));
  add.u64s("engram.primes", joined<uint64_t>(in.hashes, &EngramLayerHash::primes));
  add.u64s("engram.offsets", joined<uint64_t>(in.hashes, &EngramLayerHash::offsets));
  add.i32s("engram.token_map", in.token_map);
}

void add_tokenizer(GgufWriter& writer, const ModelConfig& config, const VocabularyData& vocabulary) {
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "joyai-llm");
  writer.add_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.add_i32s("tokenizer.ggml.token_type", vocabulary.types);
  writer.add_strings("tokenizer.ggml.merges", vocabulary.merges);
  writer.add_u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(config.bos_token_id));
  writer.add_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(config.eos_token_id));
  writer.add_bool("tokenizer.ggml.add_bos_token", true);
  writer.add_bool("tokenizer.ggml.add_eos_token", false);
}

void add_general(GgufWriter& writer, const KeyInputs& in) {
  writer.add_string("general.architecture", "deepseek41");
  writer.add_string("general.name", in.config->synthetic ? "random weights of fathom synth" : kName);
  if (!in.source_url.empty()) writer.add_string("general.source.url", in.source_url);
  if (!in.source_revision.empty()) writer.add_string("general.source.revision", in.source_revision);
  if (in.config->synthetic) writer.add_bool("fathom.synth.sparse_engram", in.config->engram.sparse);
  if (!in.importance_file.empty()) writer.add_string("quantize.imatrix.file", in.importance_file);
}

}  // namespace

Result<void> derive_hashes(KeyInputs& inputs) {
  const EngramConfig& engram = inputs.config->engram;
  inputs.hashes.clear();
  if (engram.layer_ids.empty()) return {};
  const int32_t classes = 1 + *std::max_element(inputs.token_map.begin(), inputs.token_map.end());
  if (engram.compressed_vocab_size != 0 && engram.compressed_vocab_size != classes)
    return Error::bad_pack(
        "the Engram token map has {} classes, expected {} (engram_compressed_vocab_size): the "
        "tokenizer is not this model's",
        classes, engram.compressed_vocab_size);
  FATHOM_ASSIGN(inputs.hashes, derive_engram_hash({.layer_ids = engram.layer_ids,
                                                   .ngram_max = engram.max_ngram,
                                                   .heads = engram.heads,
                                                   .rows_floor = engram.vocab_size,
                                                   .compressed_vocab_size = classes}));
  return {};
}

void add_model_keys(GgufWriter& writer, const KeyInputs& inputs, PackDialect dialect) {
  KeyAdder add(writer);
  add_general(writer, inputs);
  if (dialect == PackDialect::kDs4Gguf) {
    add_ds4_config(add, *inputs.config);
    add_ds4_engram(add, inputs);
    add.text("quantization", inputs.recipe);
    add.text("calibration", inputs.importance_file.empty() ? "none" : "imatrix");
  } else {
    add_llama_config(add, *inputs.config);
    add_llama_engram(add, inputs);
  }
  add_tokenizer(writer, *inputs.config, inputs.vocabulary);
}

}  // namespace fathom
