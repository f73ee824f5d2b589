// Every field against its range and against the others.
#include <algorithm>
#include <cmath>

#include "model/config.h"

namespace fathom {
namespace {

// Generous bounds that keep every product of two dimensions inside 32 bits.
constexpr int kMaxDim = 1 << 20;
constexpr int kMaxWidth = 1 << 26;
constexpr int kQuantGroup = 32;  // columns that share a scale in FP8 and FP4 matrices and in the caches

// Collects the first fault; later checks are then skipped.
class Checker {
 public:
  explicit Checker(std::string_view where) : where_(where) {}
  const std::optional<Error>& fault() const { return fault_; }

  void range(std::string_view field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) fail("{}: expected {} to {}, found {}", field, low, high, value);
  }
  void dim(std::string_view field, int64_t value, int multiple = 1) {
    range(field, value, 1, kMaxDim);
    if (value % multiple != 0) fail("{}: expected a multiple of {}, found {}", field, multiple, value);
  }
  void positive(std::string_view field, double value, double low = 1e-37, double high = 1e30) {
    if (!(std::isfinite(value) && value >= low && value <= high))
      fail("{}: expected {} to {}, found {}", field, low, high, value);
  }
  void layer_list(std::string_view field, const std::vector<int>& ids, int layers) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= layers)
        fail("{}[{}]: expected a layer from 0 to {}, found {}", field, i, layers - 1, ids[i]);
      if (i > 0 && ids[i] <= ids[i - 1])
        fail("{}: expected ascending layers, found {} after {}", field, ids[i], ids[i - 1]);
    }
  }
  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    if (!fault_) fault_ = Error::bad_pack("{}: {}", where_, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  std::string where_;
  std::optional<Error> fault_;
};

void check_dims(Checker& check, const ModelConfig& c) {
  check.range("vocab_size", c.vocab_size, 1, 1 << 24);
  check.dim("hidden_size", c.hidden_size, kQuantGroup);
  check.range("num_hidden_layers", c.num_layers, 1, 1024);
  check.range("num_attention_heads", c.num_heads, 1, 1024);
  check.dim("head_dim", c.head_dim, kQuantGroup);
  check.range("qk_rope_head_dim", c.rope_dim, 2, std::max(2, c.head_dim));
  if (c.rope_dim % 2 != 0) check.fail("qk_rope_head_dim: expected an even number, found {}", c.rope_dim);
  check.dim("q_lora_rank", c.q_lora_rank, kQuantGroup);
  check.dim("o_lora_rank", c.o_lora_rank);
  check.range("o_groups", c.o_groups, 1, 1024);
  if (check.fault()) return;
  check.range("num_attention_heads * head_dim", int64_t{c.num_heads} * c.head_dim, 1, kMaxWidth);
  if (c.num_heads % c.o_groups != 0)
    check.fail("o_groups: expected a divisor of num_attention_heads ({}), found {}", c.num_heads, c.o_groups);
  check.range("o_groups * o_lora_rank", int64_t{c.o_groups} * c.o_lora_rank, 1, kMaxWidth);
  if (c.o_groups * c.o_lora_rank % kQuantGroup != 0)
    check.fail("o_lora_rank: expected o_groups * o_lora_rank to be a multiple of {}, found {}", kQuantGroup,
               c.o_groups * c.o_lora_rank);
  check.range("sliding_window", c.sliding_window, 1, kMaxDim);
  check.positive("rms_norm_eps", c.rms_norm_eps);
  check.positive("rope_theta", c.rope_theta, 1);
  check.positive("compress_rope_theta", c.compress_rope_theta, 1);
  check.range("max_position_embeddings", c.max_position_embeddings, 1, int64_t{1} << 30);
  check.range("bos_token_id", c.bos_token_id, 0, c.vocab_size - 1);
  check.range("eos_token_id", c.eos_token_id, 0, c.vocab_size - 1);
  check.range("pad_token_id", c.pad_token_id, 0, c.vocab_size - 1);
  check.range("image_token_id", c.image_token_id, -1, c.vocab_size - 1);
}

void check_experts_and_streams(Checker& check, const ModelConfig& c) {
  check.dim("moe_intermediate_size", c.moe_intermediate_size, kQuantGroup);
  check.range("n_routed_experts", c.routed_experts, 1, 1 << 16);
  check.range("n_shared_experts", c.shared_experts, 1, 1);
  check.range("num_experts_per_tok", c.experts_per_token, 1, c.routed_experts);
  check.positive("routed_scaling_factor", c.routed_scaling_factor);
  check.positive("gate_temp", c.gate_temp);
  check.positive("swiglu_limit", c.swiglu_limit);
  check.range("hc_mult", c.hc_mult, 1, 8);
  check.range("hc_sinkhorn_iters", c.hc_sinkhorn_iters, 1, 1000);
  check.positive("hc_eps", c.hc_eps);
}

void check_yarn_and_index(Checker& check, const ModelConfig& c) {
  check.positive("rope_scaling.factor", c.yarn.factor, 1);
  check.positive("rope_scaling.beta_slow", c.yarn.beta_slow);
  check.positive("rope_scaling.beta_fast", c.yarn.beta_fast, c.yarn.beta_slow);
  check.range("rope_scaling.original_max_position_embeddings", c.yarn.original_max_position_embeddings, 1,
              int64_t{1} << 31);
  check.range("index_n_heads", c.index_heads, 1, 1024);
  check.dim("index_head_dim", c.index_head_dim, kQuantGroup);
  check.range("qk_rope_head_dim", c.rope_dim, 2, c.index_head_dim);
  check.range("index_topk", c.index_topk, 1, 1 << 24);
}

void check_sources(Checker& check, const ModelConfig& c) {
  check.layer_list("kv_source_layer_ids", c.kv_source_layer_ids, c.num_layers);
  check.layer_list("index_source_layer_ids", c.index_source_layer_ids, c.num_layers);
  if (check.fault()) return;
  bool compresses = false;
  for (int layer = 0; layer < c.num_layers; ++layer) {
    const int ratio = c.ratio(layer);
    if (ratio < 0 || ratio > 2)
      return check.fail("compress_ratios[{}]: expected 0, 1 or 2, found {}", layer, ratio);
    if (ratio == 0) {
      if (c.is_kv_source(layer) || c.is_index_source(layer))
        return check.fail("compress_ratios[{}]: expected 1 or 2 for a source layer, found 0", layer);
      continue;
    }
    compresses = true;
    const int source = c.kv_source_of(layer);
    if (source < 0)
      return check.fail("kv_source_layer_ids: expected a source at or before layer {}, which has ratio {}",
                        layer, ratio);
    if (c.ratio(source) != ratio)
      return check.fail("compress_ratios[{}]: expected {}, the ratio of its source layer {}, found {}", layer,
                        c.ratio(source), source, ratio);
    if (c.is_kv_source(layer) && !c.is_index_source(layer))
      return check.fail("index_source_layer_ids: expected every kv source, layer {} is not in it", layer);
  }
  if (compresses) check_yarn_and_index(check, c);
  if (c.candidate_source_layer_id == -1) return;
  if (!c.is_kv_source(c.candidate_source_layer_id))
    return check.fail("candidate_source_layer_id: expected -1 or a kv source, found {}",
                      c.candidate_source_layer_id);
  check.range("candidate_topk_blocks", c.candidate_topk_blocks, 1, 1 << 24);
  check.range("candidate_block_size", c.candidate_block_size, 1, 1 << 16);
}

void check_engram(Checker& check, const ModelConfig& c) {
  const EngramConfig& e = c.engram;
  if (e.layer_ids.empty()) return;
  check.layer_list("engram_layer_ids", e.layer_ids, c.num_layers);
  if (e.rows.size() != e.layer_ids.size())
    check.fail("engram_num_embeddings: expected {} entries, one an Engram layer, found {}",
               e.layer_ids.size(), e.rows.size());
  check.range("engram_max_ngram_size", e.max_ngram, 2, 16);
  check.range("engram_n_heads", e.heads, 1, 256);
  check.dim("engram_head_dim", e.head_dim, kQuantGroup);
  check.range("engram_vocab_size", e.vocab_size, 1, int64_t{1} << 40);
  check.range("engram_pad_token_id", e.pad_token_id, 0, c.vocab_size - 1);
  check.range("engram_compressed_vocab_size", e.compressed_vocab_size, 0, c.vocab_size);
  if (check.fault()) return;
  check.range("engram width", int64_t{e.columns()} * e.head_dim, 1, kMaxWidth);
  for (const int64_t rows : e.rows)  // every column has more rows than engram_vocab_size
    check.range("engram_num_embeddings", rows, e.columns() * (e.vocab_size + 1), int64_t{1} << 48);
}

void check_draft(Checker& check, const ModelConfig& c) {
  const DraftConfig& d = c.draft;
  check.range("num_nextn_predict_layers", d.stages, 0, 16);
  if (d.stages == 0 || check.fault()) return;
  check.range("dspark_block_size", d.block_size, 1, 64);
  check.range("dspark_noise_token_id", d.noise_token_id, 0, c.vocab_size - 1);
  check.layer_list("dspark_target_layer_ids", d.target_layer_ids, c.num_layers);
  if (d.target_layer_ids.empty())
    check.fail("dspark_target_layer_ids: expected at least one layer, found none");
  check.dim("dspark_markov_rank", d.markov_rank);
  check.range("dspark_n_routed_experts", d.routed_experts, 1, 1 << 16);
  check.range("dspark_num_experts_per_tok", d.experts_per_token, 1, d.routed_experts);
}

void check_vision(Checker& check, const VisionConfig& v) {
  check.range("vision_config.num_hidden_layers", v.layers, 1, 1024);
  check.dim("vision_config.hidden_size", v.hidden_size);
  check.range("vision_config.num_attention_heads", v.heads, 1, 1024);
  check.dim("vision_config.intermediate_size", v.intermediate_size);
  check.range("vision_config.patch_size", v.patch_size, 1, 1024);
  check.range("vision_config.downsample_ratio", v.downsample_ratio, 1, 64);
  check.range("vision_config.max_image_tokens", v.max_image_tokens, 1, 1 << 24);
  check.range("vision_config.min_pixels", v.min_pixels, 0, int64_t{1} << 40);
  check.positive("vision_config.rope_theta", v.rope_theta, 1);
  if (check.fault()) return;
  // Two axes are rotated, each in pairs.
  if (v.hidden_size % (v.heads * 4) != 0)
    check.fail("vision_config.hidden_size: expected a multiple of 4 * num_attention_heads ({}), found {}",
               4 * v.heads, v.hidden_size);
}

}  // namespace

Result<void> validate_config(const ModelConfig& config, std::string_view where) {
  Checker check(where);
  if (config.compress_ratios.size() != static_cast<size_t>(std::max(config.num_layers, 0)))
    return Error::bad_pack("{}: compress_ratios: expected {} entries, found {}", where, config.num_layers,
                           config.compress_ratios.size());
  check_dims(check, config);
  if (!check.fault()) check_experts_and_streams(check, config);
  if (!check.fault()) check_sources(check, config);
  if (!check.fault()) check_engram(check, config);
  if (!check.fault()) check_draft(check, config);
  if (!check.fault() && config.vision) check_vision(check, *config.vision);
  if (check.fault()) return *check.fault();
  return {};
}

}  // namespace fathom
