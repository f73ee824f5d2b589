// The model's shape: every field of config.json that the engine uses, checked against every other.
// Field names follow the HF config (text_config nested or flat); units are in the comments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

struct YarnConfig {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

/// N-gram tables. layer_ids is empty when the model has none, and the other fields are then unused.
struct EngramConfig {
  std::vector<int> layer_ids;     // ascending
  std::vector<int64_t> rows;      // table rows, one entry a layer (engram_num_embeddings)
  int max_ngram = 0;              // n-gram orders 2..max_ngram
  int heads = 0;                  // hash heads an order
  int head_dim = 0;               // row width
  int64_t vocab_size = 0;         // every head has a distinct prime above this as its row count
  int pad_token_id = 0;           // token id, mapped through the token map before use
  int compressed_vocab_size = 0;  // ids the token map produces; 0 = unknown
  bool sparse = false;            // tables are holes by intent (`fathom synth`): rows may read as zeros
  int columns() const { return (max_ngram - 1) * heads; }  // rows read a token and layer
  int width() const { return columns() * head_dim; }       // inputs of engram.wkv
};

/// Draft stages ("mtp.S."). stages is 0 when the model has none.
struct DraftConfig {
  int stages = 0;      // num_nextn_predict_layers
  int block_size = 0;  // tokens a draft round proposes
  int noise_token_id = 0;
  std::vector<int> target_layer_ids;  // backbone layers whose inputs are tapped
  int markov_rank = 0;
  int routed_experts = 0;
  int experts_per_token = 0;
};

struct VisionConfig {
  int layers = 0;
  int hidden_size = 0;
  int heads = 0;
  int intermediate_size = 0;
  int patch_size = 0;  // pixels
  double rope_theta = 10000;
  int downsample_ratio = 1;
  int max_image_tokens = 0;
  int64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;
};

struct ModelConfig {
  // Text backbone.
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int head_dim = 0;  // also the width of the one KV latent
  int rope_dim = 0;  // the LAST rope_dim of head_dim are rotated
  int q_lora_rank = 0;
  int o_lora_rank = 0;
  int o_groups = 0;
  int sliding_window = 0;  // tokens, the current one included
  double rms_norm_eps = 0;
  double rope_theta = 0;           // ratio-0 layers
  double compress_rope_theta = 0;  // layers of ratio > 0, with yarn
  YarnConfig yarn;
  int64_t max_position_embeddings = 0;
  std::vector<int> compress_ratios;         // num_layers entries (draft entries, all 0, are cut off)
  std::vector<int> kv_source_layer_ids;     // ascending
  std::vector<int> index_source_layer_ids;  // ascending, contains every kv source
  int candidate_source_layer_id = -1;       // -1: no candidate prefilter
  int candidate_topk_blocks = 0;
  int candidate_block_size = 0;  // rows
  int index_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;  // rows
  int routed_experts = 0;
  int shared_experts = 0;
  int experts_per_token = 0;
  int moe_intermediate_size = 0;  // routed and shared
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1;
  double gate_temp = 1;  // divides the router's logits
  double swiglu_limit = 0;
  int hc_mult = 0;  // residual streams
  int hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  int bos_token_id = 0;
  int eos_token_id = 1;
  int pad_token_id = 2;
  int image_token_id = -1;  // -1: the model has none
  bool synthetic = false;   // random weights of `fathom synth`

  EngramConfig engram;
  DraftConfig draft;
  std::optional<VisionConfig> vision;

  /// Layers [0, encoder_layers()) are the causal encoder: the number of the last kv source.
  int encoder_layers() const { return kv_source_layer_ids.empty() ? num_layers : kv_source_layer_ids.back(); }
  int ratio(int layer) const { return compress_ratios[static_cast<size_t>(layer)]; }
  bool is_kv_source(int layer) const;
  bool is_index_source(int layer) const;
  /// The layer whose compressed rows (or top-k list) `layer` reads: the last source at or below it; -1 for
  /// a layer of ratio 0.
  int kv_source_of(int layer) const;
  int index_source_of(int layer) const;
  /// Position in engram.layer_ids, -1 if the layer has no table.
  int engram_index(int layer) const;
  int head_width() const { return num_heads * head_dim; }   // rows of wq_b
  int hc_mixes() const { return (2 + hc_mult) * hc_mult; }  // rows of hc_*_fn
};

/// Parses config.json (HF nested text_config, or the flat names of the release's inference config).
/// `where` names the source in errors. The result has passed validate_config.
Result<ModelConfig> config_from_json(std::string_view text, std::string_view where);

/// Checks every field against its range and against the others. Errors name field, expected and found.
Result<void> validate_config(const ModelConfig& config, std::string_view where);

}  // namespace fathom
