#include "quantize/synth_config.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/file.h"
#include "model/engram_hash.h"

namespace fathom {
namespace {

constexpr uint64_t kConfigLimitBytes = uint64_t{64} << 20;

// Ratio 0 before the first source, 2 in the encoder, 1 from the last source on.
std::vector<int> ratios(int layers, int first_source, int last_source) {
  std::vector<int> list;
  for (int layer = 0; layer < layers; ++layer)
    list.push_back(layer < first_source ? 0 : layer < last_source ? 2 : 1);
  return list;
}

ModelConfig v41_flash() {
  ModelConfig c{.vocab_size = 129280,
                .hidden_size = 5120,
                .num_layers = 40,
                .num_heads = 64,
                .head_dim = 512,
                .rope_dim = 64,
                .q_lora_rank = 1280,
                .o_lora_rank = 1024,
                .o_groups = 8,
                .sliding_window = 128,
                .rms_norm_eps = 1e-20,
                .rope_theta = 10000,
                .compress_rope_theta = 160000};
  c.yarn = {.factor = 16, .original_max_position_embeddings = 65536};
  c.max_position_embeddings = 1048576;
  c.compress_ratios = ratios(40, 2, 20);
  c.kv_source_layer_ids = {2, 8, 14, 20};
  c.index_source_layer_ids = {2, 8, 14, 20, 24, 28, 32, 36};
  c.candidate_source_layer_id = 20;
  c.candidate_topk_blocks = 2048;
  c.candidate_block_size = 8;
  c.index_heads = 32;
  c.index_head_dim = 128;
  c.index_topk = 512;
  c.routed_experts = 384;
  c.shared_experts = 1;
  c.experts_per_token = 6;
  c.moe_intermediate_size = 2304;
  c.routed_scaling_factor = 1.5;
  c.swiglu_limit = 10;
  c.hc_mult = 4;
  c.hc_sinkhorn_iters = 20;
  c.hc_eps = 1e-6;
  c.image_token_id = 129264;
  c.engram = {.layer_ids = {1, 14},
              .rows = {384006168, 384016682},
              .max_ngram = 4,
              .heads = 8,
              .head_dim = 256,
              .vocab_size = 16000000,
              .pad_token_id = 2,
              .compressed_vocab_size = 99092};
  c.draft = {.stages = 3,
             .block_size = 5,
             .noise_token_id = 128799,
             .target_layer_ids = {37, 38, 39},
             .markov_rank = 256,
             .routed_experts = 128,
             .experts_per_token = 3};
  return c;
}

ModelConfig mini() {
  ModelConfig c = v41_flash();
  c.vocab_size = 8192;
  c.hidden_size = 512;
  c.num_layers = 8;
  c.num_heads = 8;
  c.head_dim = 64;
  c.rope_dim = 32;
  c.q_lora_rank = 128;
  c.o_lora_rank = 128;
  c.o_groups = 2;
  c.sliding_window = 64;
  c.yarn.original_max_position_embeddings = 1024;
  c.max_position_embeddings = 16384;
  c.compress_ratios = ratios(8, 1, 4);
  c.kv_source_layer_ids = {1, 4};
  c.index_source_layer_ids = {1, 3, 4, 6};
  c.candidate_source_layer_id = 4;
  c.candidate_topk_blocks = 16;
  c.candidate_block_size = 16;
  c.index_heads = 4;
  c.index_head_dim = 32;
  c.index_topk = 64;
  c.routed_experts = 16;
  c.experts_per_token = 2;
  c.moe_intermediate_size = 256;
  c.image_token_id = 8168;
  c.engram = {.layer_ids = {1, 3},
              .rows = {192706, 194042},
              .max_ngram = 4,
              .heads = 4,
              .head_dim = 32,
              .vocab_size = 16000,
              .pad_token_id = 2,
              .compressed_vocab_size = 6553};
  c.draft = {.stages = 3,
             .block_size = 5,
             .noise_token_id = 8157,
             .target_layer_ids = {3, 5, 7},
             .markov_rank = 64,
             .routed_experts = 8,
             .experts_per_token = 2};
  return c;
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The first of `layers` that reads each source, as its place among them; sorted because layers are.
std::vector<int> first_readers(const ModelConfig& config, const std::vector<int>& layers,
                               int (ModelConfig::*source_of)(int) const,
                               std::map<int, int>* places = nullptr) {
  std::map<int, int> first;
  for (size_t place = 0; place < layers.size(); ++place) {
    const int source = (config.*source_of)(layers[place]);
    if (source >= 0) first.emplace(source, static_cast<int>(place));
  }
  std::vector<int> list;
  for (const auto& [source, place] : first) list.push_back(place);
  if (places != nullptr) *places = std::move(first);
  return list;
}

}  // namespace

Result<ModelConfig> load_shape(const std::string& name_or_path) {
  if (name_or_path == "v41-flash") return v41_flash();
  if (name_or_path == "mini") return mini();
  if (!file_exists(name_or_path))
    return Error::invalid("shape: expected v41-flash, mini or a config.json, found \"{}\"", name_or_path);
  FATHOM_ASSIGN(const std::string text, read_text_file(name_or_path, kConfigLimitBytes));
  FATHOM_ASSIGN(ModelConfig config, config_from_json(text, name_or_path));
  config.vision.reset();  // its tensors are not made
  return config;
}

Result<std::vector<int>> parse_layers(std::string_view text, int layers) {
  std::vector<int> list;
  const std::string whole(text);
  while (true) {
    const std::string_view piece = text.substr(0, text.find(','));
    const size_t dots = piece.find("..");
    const std::optional<int> first = parse_int(piece.substr(0, dots));
    const std::optional<int> last =
        dots == std::string_view::npos ? first : parse_int(piece.substr(dots + 2));
    if (!first || !last || *first > *last || (!list.empty() && *first <= list.back()) || *first < 0 ||
        *last >= layers)
      return Error::invalid(
          "layers: expected ascending numbers or ranges within 0..{}, as 0..1,20..21, found \"{}\"",
          layers - 1, whole);
    for (int layer = *first; layer <= *last; ++layer) list.push_back(layer);
    if (piece.size() == text.size()) return list;
    text.remove_prefix(piece.size() + 1);
  }
}

ModelConfig select_layers(const ModelConfig& config, const std::vector<int>& layers) {
  ModelConfig chosen = config;
  chosen.num_layers = static_cast<int>(layers.size());
  chosen.compress_ratios.clear();
  chosen.engram.layer_ids.clear();
  chosen.engram.rows.clear();
  for (size_t place = 0; place < layers.size(); ++place) {
    chosen.compress_ratios.push_back(config.ratio(layers[place]));
    const int table = config.engram_index(layers[place]);
    if (table < 0) continue;
    chosen.engram.layer_ids.push_back(static_cast<int>(place));
    chosen.engram.rows.push_back(config.engram.rows[static_cast<size_t>(table)]);
  }
  std::map<int, int> moved;
  chosen.kv_source_layer_ids = first_readers(config, layers, &ModelConfig::kv_source_of, &moved);
  chosen.index_source_layer_ids = first_readers(config, layers, &ModelConfig::index_source_of);
  const auto candidate = moved.find(config.candidate_source_layer_id);
  chosen.candidate_source_layer_id = candidate == moved.end() ? -1 : candidate->second;
  std::vector<int>& taps = chosen.draft.target_layer_ids;
  const int wanted = std::min<int>(static_cast<int>(taps.size()), chosen.num_layers);
  if (static_cast<int>(layers.size()) != config.num_layers) {
    taps.clear();
    for (int layer = chosen.num_layers - wanted; layer < chosen.num_layers; ++layer) taps.push_back(layer);
  }
  return chosen;
}

Result<void> size_engram(ModelConfig& config, int64_t vocab_size) {
  EngramConfig& engram = config.engram;
  if (engram.layer_ids.empty()) return {};
  if (vocab_size > 0) engram.vocab_size = vocab_size;
  FATHOM_ASSIGN(const std::vector<EngramLayerHash> hashes,
                derive_engram_hash({.layer_ids = engram.layer_ids,
                                    .ngram_max = engram.max_ngram,
                                    .heads = engram.heads,
                                    .rows_floor = engram.vocab_size,
                                    .compressed_vocab_size = engram.compressed_vocab_size}));
  engram.rows.clear();
  for (const EngramLayerHash& hash : hashes) engram.rows.push_back(hash.rows);
  return {};
}

}  // namespace fathom
