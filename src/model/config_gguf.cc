#include "model/config_gguf.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/pack_names.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
// Fields that the llama.cpp dialect leaves to the program that reads it; values of the release.
constexpr int64_t kEngramVocabSize = 16000000;
constexpr int kCandidateTopkBlocks = 2048;
constexpr int kCandidateBlockSize = 8;

// Copies keys into the fields of a config.json, so that one parser checks both. The first fault is kept.
class KeyCopier {
 public:
  KeyCopier(const GgufKeys& keys, Json& out) : keys_(keys), out_(out) {}
  std::optional<Error> fault;

  static std::string full(std::string_view key) { return fmt::format("deepseek41.{}", key); }
  bool has(std::string_view key) const { return keys_.has(full(key)); }

  void integer(std::string_view key, const char* field) {
    if (auto value = keep(keys_.integer(full(key), -1, kMax))) out_[field] = *value;
  }
  void number(std::string_view key, const char* field) {
    if (auto value = keep(keys_.number(full(key)))) out_[field] = *value;
  }
  void integers(std::string_view key, const char* field) {
    if (auto value = keep(keys_.integers(full(key)))) out_[field] = *value;
  }
  void text(std::string_view key, const char* field) {
    if (auto value = keep(keys_.string(full(key)))) out_[field] = std::string(*value);
  }
  void boolean(std::string_view key, const char* field) {
    if (auto value = keep(keys_.boolean(full(key)))) out_[field] = *value;
  }
  // A number, or one a layer that must all be equal.
  void uniform(std::string_view key, const char* field) {
    const GgufValue* value = keys_.find(full(key));
    if (value == nullptr || value->type != GgufType::kArray) return number(key, field);
    const auto values = keep(keys_.numbers(full(key)));
    if (!values) return;
    if (values->empty() ||
        std::any_of(values->begin(), values->end(), [&](double v) { return v != values->front(); })) {
      fault =
          Error::unsupported("{}: key {}: expected the same value for every layer", keys_.where(), full(key));
      return;
    }
    out_[field] = values->front();
  }

 private:
  template <class T>
  std::optional<T> keep(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    if (!fault) fault = result.error();
    return std::nullopt;
  }
  const GgufKeys& keys_;
  Json& out_;
};

// A lookup by official name over the tensors of a GGUF.
class Tensors {
 public:
  explicit Tensors(const TensorFiles& store) {
    for (const TensorEntry& tensor : store.tensors)
      by_name_.emplace(official_from_gguf(tensor.name), &tensor);
  }
  const TensorEntry* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::vector<int> layers_with(std::string_view name, int64_t layers) const {
    std::vector<int> found;
    for (int layer = 0; layer < layers; ++layer) {
      if (find(fmt::format("layers.{}.{}", layer, name)) != nullptr) found.push_back(layer);
    }
    return found;
  }

 private:
  std::unordered_map<std::string, const TensorEntry*> by_name_;
};

void copy_token_ids(const GgufKeys& keys, Json& root) {
  const std::pair<const char*, const char*> names[] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                                       {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                                       {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
  for (const auto& [key, field] : names) {
    if (const auto value = keys.integer(key, 0, kMax); value.ok()) root[field] = *value;
  }
}

void copy_synth_mark(const GgufKeys& keys, Json& root) {
  if (!keys.has("fathom.synth.sparse_engram")) return;
  const auto sparse = keys.boolean("fathom.synth.sparse_engram");
  root["fathom_synth"] = {{"sparse_engram", sparse.ok() && *sparse}};
}

// Orders, heads and nominal rows of the hash, from the lengths of its arrays.
Result<void> copy_engram_shape(const GgufKeys& keys, size_t layers, Json& root) {
  FATHOM_ASSIGN(const std::vector<int64_t> multipliers, keys.integers("deepseek41.engram.multipliers"));
  FATHOM_ASSIGN(const std::vector<int64_t> primes, keys.integers("deepseek41.engram.primes"));
  const size_t ngram = layers == 0 ? 0 : multipliers.size() / layers;
  if (ngram < 2 || multipliers.size() % layers != 0 || primes.empty() ||
      primes.size() % (layers * (ngram - 1)) != 0)
    return Error::bad_pack("{}: deepseek41.engram: {} multipliers and {} primes do not fit {} layers",
                           keys.where(), multipliers.size(), primes.size(), layers);
  root["engram_max_ngram_size"] = ngram;
  root["engram_n_heads"] = primes.size() / (layers * (ngram - 1));
  root["engram_vocab_size"] = *std::min_element(primes.begin(), primes.end()) - 1;
  return {};
}

// Width of a table's rows: raw rows of bytes hold a scale byte for every 32 values behind them, or are
// 136-byte rows of 256 values.
int64_t table_width(const TensorEntry& table, std::string_view encoding) {
  const int64_t stored = table.shape.empty() ? 0 : table.shape.back();
  if (table.type != DType::kI8 && table.type != DType::kU8) return stored;
  return encoding.starts_with("e4m3_e8m0_32_row") ? stored / 33 * 32 : 256;
}

Result<void> copy_ds4_engram(const GgufFile& file, const Tensors& tensors, KeyCopier& copy, Json& root) {
  if (!copy.has("engram.layer_ids")) return {};
  copy.integers("engram.layer_ids", "engram_layer_ids");
  copy.integers("engram.rows", "engram_num_embeddings");
  if (copy.has("engram.compressed_vocab_size"))
    copy.integer("engram.compressed_vocab_size", "engram_compressed_vocab_size");
  if (copy.fault) return *copy.fault;
  const std::vector<int64_t> layers = root["engram_layer_ids"].get<std::vector<int64_t>>();
  if (layers.empty()) return {};
  FATHOM_TRY(copy_engram_shape(file.keys, layers.size(), root));
  const TensorEntry* table = tensors.find(fmt::format("layers.{}.engram.embed.weight", layers[0]));
  if (table == nullptr)
    return Error::bad_pack("{}: no tensor blk.{}.engram_embd.weight", file.keys.where(), layers[0]);
  const auto encoding = file.keys.string("deepseek41.engram.encoding");
  root["engram_head_dim"] = table_width(*table, encoding.ok() ? *encoding : "e4m3_e8m0_32_row264");
  return {};
}

Result<ModelConfig> ds4_config(const GgufFile& file) {
  const GgufKeys& keys = file.keys;
  if (keys.has("deepseek41.config")) {
    FATHOM_ASSIGN(const std::string_view text, keys.string("deepseek41.config"));
    return config_from_json(text, keys.where() + ": deepseek41.config");
  }
  Json root = Json::object();
  KeyCopier copy(keys, root);
  for (const char* name : {"vocab_size",
                           "hidden_size",
                           "moe_intermediate_size",
                           "num_hidden_layers",
                           "num_attention_heads",
                           "num_key_value_heads",
                           "head_dim",
                           "qk_rope_head_dim",
                           "q_lora_rank",
                           "o_lora_rank",
                           "o_groups",
                           "n_routed_experts",
                           "n_shared_experts",
                           "num_experts_per_tok",
                           "max_position_embeddings",
                           "sliding_window",
                           "index_n_heads",
                           "index_head_dim",
                           "index_topk",
                           "hc_mult",
                           "hc_sinkhorn_iters"})
    copy.integer(name, name);
  for (const char* name : {"candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"}) {
    if (copy.has(name)) copy.integer(name, name);
  }
  for (const char* name : {"rope_theta", "compress_rope_theta", "rms_norm_eps", "hc_eps", "swiglu_limit",
                           "routed_scaling_factor"})
    copy.number(name, name);
  for (const char* name : {"scoring_func", "hidden_act", "topk_method"}) copy.text(name, name);
  copy.boolean("norm_topk_prob", "norm_topk_prob");
  for (const char* name : {"compress_ratios", "kv_source_layer_ids", "index_source_layer_ids"})
    copy.integers(name, name);
  Json yarn = {{"rope_type", "yarn"}};
  KeyCopier scaling(keys, yarn);
  for (const char* name : {"factor", "beta_fast", "beta_slow", "original_max_position_embeddings"})
    scaling.number(fmt::format("rope_scaling.{}", name), name);
  root["rope_scaling"] = std::move(yarn);
  if (copy.fault) return *copy.fault;
  if (scaling.fault) return *scaling.fault;
  FATHOM_TRY(copy_ds4_engram(file, Tensors(file.store), copy, root));
  copy_token_ids(keys, root);
  return config_from_json(root.dump(), keys.where());
}

void copy_llama_scalars(KeyCopier& copy) {
  const std::pair<const char*, const char*> integers[] = {
      {"block_count", "num_hidden_layers"},
      {"embedding_length", "hidden_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count_kv", "num_key_value_heads"},
      {"attention.key_length", "head_dim"},
      {"attention.q_lora_rank", "q_lora_rank"},
      {"attention.sliding_window", "sliding_window"},
      {"attention.output_group_count", "o_groups"},
      {"attention.output_lora_rank", "o_lora_rank"},
      {"attention.indexer.head_count", "index_n_heads"},
      {"attention.indexer.key_length", "index_head_dim"},
      {"attention.indexer.top_k", "index_topk"},
      {"rope.dimension_count", "qk_rope_head_dim"},
      {"expert_count", "n_routed_experts"},
      {"expert_used_count", "num_experts_per_tok"},
      {"expert_shared_count", "n_shared_experts"},
      {"hyper_connection.count", "hc_mult"},
      {"hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters"},
      {"context_length", "max_position_embeddings"},
  };
  for (const auto& [key, field] : integers) copy.uniform(key, field);
  const std::pair<const char*, const char*> numbers[] = {
      {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
      {"attention.compress_rope_freq_base", "compress_rope_theta"},
      {"rope.freq_base", "rope_theta"},
      {"expert_weights_scale", "routed_scaling_factor"},
      {"expert_feed_forward_length", "moe_intermediate_size"},
      {"swiglu_clamp_exp", "swiglu_limit"},
      {"hyper_connection.epsilon", "hc_eps"},
  };
  for (const auto& [key, field] : numbers) copy.uniform(key, field);
  if (copy.has("expert_weights_norm")) copy.boolean("expert_weights_norm", "norm_topk_prob");
}

// What the file says that must be one thing only.
Result<void> check_llama_constants(const GgufKeys& keys) {
  const auto gating = keys.integer("deepseek41.expert_gating_func", 0, kMax);
  if (gating.ok() && *gating != 4)
    return Error::unsupported(
        "{}: deepseek41.expert_gating_func: expected 4 (square root of softplus), found {}", keys.where(),
        *gating);
  const auto hashed = keys.integer("deepseek41.hash_layer_count", 0, kMax);
  if (hashed.ok() && *hashed != 0)
    return Error::unsupported("{}: deepseek41.hash_layer_count: expected 0, found {}", keys.where(), *hashed);
  const auto clamp = keys.numbers("deepseek41.swiglu_clamp_exp");
  const auto shared = keys.numbers("deepseek41.swiglu_clamp_shexp");
  if (clamp.ok() && shared.ok() && *clamp != *shared)
    return Error::unsupported("{}: deepseek41.swiglu_clamp_shexp differs from swiglu_clamp_exp",
                              keys.where());
  return {};
}

// Roles that the dialect does not write down but that the tensors show.
Result<void> derive_roles(const GgufFile& file, const Tensors& tensors, KeyCopier& copy, Json& root) {
  const double layer_number = root.at("num_hidden_layers").get<double>();
  if (!(layer_number >= 1 && layer_number <= 1024))
    return Error::bad_pack("{}: deepseek41.block_count: expected 1 to 1024, found {}", file.keys.where(),
                           layer_number);
  const int64_t layers = static_cast<int64_t>(layer_number);
  std::vector<int64_t> ratios = root.at("compress_ratios").get<std::vector<int64_t>>();
  if (ratios.size() > static_cast<size_t>(layers))
    ratios.resize(static_cast<size_t>(layers));  // draft stages
  root["compress_ratios"] = ratios;
  const std::vector<int> kv = tensors.layers_with("attn.compressor.wkv.weight", layers);
  const std::vector<int> index = tensors.layers_with("attn.indexer.wq_b.weight", layers);
  root["kv_source_layer_ids"] = kv;
  root["index_source_layer_ids"] = index;
  if (copy.has("candidate_source_layer_id")) {
    for (const char* name : {"candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"})
      copy.integer(name, name);
  } else if (!kv.empty() && !index.empty() && index.back() > kv.back()) {
    // The decoder's own source builds the candidates for the layers that select again.
    root["candidate_source_layer_id"] = kv.back();
    root["candidate_topk_blocks"] = kCandidateTopkBlocks;
    root["candidate_block_size"] = kCandidateBlockSize;
  }
  const TensorEntry* embed = tensors.find("embed.weight");
  if (embed == nullptr || embed->shape.size() != 2)
    return Error::bad_pack("{}: expected a two-dimensional tensor token_embd.weight", file.keys.where());
  root["vocab_size"] = embed->shape[0];
  return {};
}

Result<void> derive_engram(const GgufFile& file, const Tensors& tensors, KeyCopier& copy, Json& root) {
  const std::vector<int> layers = tensors.layers_with("engram.embed.weight", root["compress_ratios"].size());
  if (layers.empty()) return {};
  root["engram_layer_ids"] = layers;
  copy.integer("engram.max_ngram_size", "engram_max_ngram_size");
  copy.integer("engram.head_count", "engram_n_heads");
  copy.integer("engram.key_length", "engram_head_dim");
  if (copy.fault) return *copy.fault;
  for (const int layer : layers) {
    const TensorEntry* table = tensors.find(fmt::format("layers.{}.engram.embed.weight", layer));
    root["engram_num_embeddings"].push_back(table->shape.size() == 2 ? table->shape[0] : 0);
  }
  // Counting up from one below the smallest prime gives the same primes as counting from the nominal size.
  root["engram_vocab_size"] = kEngramVocabSize;
  if (const auto primes = file.keys.integers("deepseek41.engram.primes"); primes.ok() && !primes->empty())
    root["engram_vocab_size"] = *std::min_element(primes->begin(), primes->end()) - 1;
  if (const auto map = file.keys.integers("deepseek41.engram.token_map"); map.ok() && !map->empty())
    root["engram_compressed_vocab_size"] = *std::max_element(map->begin(), map->end()) + 1;
  return {};
}

Result<ModelConfig> llama_config(const GgufFile& file) {
  Json root = Json::object();
  KeyCopier copy(file.keys, root);
  copy_llama_scalars(copy);
  copy.integers("attention.compress_ratios", "compress_ratios");
  Json yarn = Json::object();
  KeyCopier scaling(file.keys, yarn);
  scaling.text("rope.scaling.type", "rope_type");
  scaling.number("rope.scaling.factor", "factor");
  scaling.number("rope.scaling.original_context_length", "original_max_position_embeddings");
  if (scaling.has("rope.scaling.yarn_beta_fast")) scaling.number("rope.scaling.yarn_beta_fast", "beta_fast");
  if (scaling.has("rope.scaling.yarn_beta_slow")) scaling.number("rope.scaling.yarn_beta_slow", "beta_slow");
  root["rope_scaling"] = std::move(yarn);
  if (copy.fault) return *copy.fault;
  if (scaling.fault) return *scaling.fault;
  FATHOM_TRY(check_llama_constants(file.keys));
  const Tensors tensors(file.store);
  FATHOM_TRY(derive_roles(file, tensors, copy, root));
  FATHOM_TRY(derive_engram(file, tensors, copy, root));
  if (copy.fault) return *copy.fault;
  copy_token_ids(file.keys, root);
  copy_synth_mark(file.keys, root);
  return config_from_json(root.dump(), file.keys.where());
}

}  // namespace

Result<PackDialect> gguf_dialect(const GgufFile& file) {
  FATHOM_ASSIGN(const std::string_view architecture, file.keys.string("general.architecture"));
  if (architecture != "deepseek41")
    return Error::unsupported("{}: general.architecture: expected deepseek41, found {}{}", file.keys.where(),
                              architecture,
                              architecture == "deepseek41-dspark" || architecture == "dflash"
                                  ? " (draft stages alone, without their model)"
                                  : "");
  const GgufKeys& keys = file.keys;
  if (keys.has("deepseek41.engram.encoding") || keys.has("deepseek41.config") ||
      keys.has("deepseek41.hidden_size"))
    return PackDialect::kDs4Gguf;
  if (keys.has("deepseek41.block_count")) return PackDialect::kLlamaCppGguf;
  return Error::bad_pack(
      "{}: expected the keys deepseek41.hidden_size or deepseek41.block_count, found neither", keys.where());
}

Result<ModelConfig> config_from_gguf(const GgufFile& file, PackDialect dialect) {
  return dialect == PackDialect::kDs4Gguf ? ds4_config(file) : llama_config(file);
}

Result<EngramConstants> engram_constants_from_gguf(const GgufFile& file, const ModelConfig& config) {
  EngramConstants constants;
  const GgufKeys& keys = file.keys;
  const EngramConfig& engram = config.engram;
  if (engram.layer_ids.empty() || !keys.has("deepseek41.engram.token_map")) return constants;
  FATHOM_ASSIGN(const std::vector<int64_t> map, keys.integers("deepseek41.engram.token_map"));
  if (map.size() != static_cast<size_t>(config.vocab_size))
    return Error::bad_pack("{}: deepseek41.engram.token_map: expected {} entries, found {}", keys.where(),
                           config.vocab_size, map.size());
  for (const int64_t id : map) {
    if (id < 0 || id >= config.vocab_size)
      return Error::bad_pack("{}: deepseek41.engram.token_map: expected ids from 0 to {}, found {}",
                             keys.where(), config.vocab_size - 1, id);
  }
  FATHOM_ASSIGN(std::vector<int64_t> primes, keys.integers("deepseek41.engram.primes"));
  FATHOM_ASSIGN(const std::vector<int64_t> multipliers, keys.integers("deepseek41.engram.multipliers"));
  std::vector<int64_t> offsets;
  if (keys.has("deepseek41.engram.offsets")) {
    FATHOM_ASSIGN(offsets, keys.integers("deepseek41.engram.offsets"));
  }
  constants.token_map.assign(map.begin(), map.end());
  const size_t layers = engram.layer_ids.size();
  const size_t columns = static_cast<size_t>(engram.columns());
  if (primes.size() < layers * columns && primes.size() % columns == 0) return constants;
  if (primes.size() != layers * columns ||
      multipliers.size() != layers * static_cast<size_t>(engram.max_ngram) ||
      (!offsets.empty() && offsets.size() != primes.size()))
    return Error::bad_pack("{}: deepseek41.engram: expected {} primes and {} multipliers, found {} and {}",
                           keys.where(), layers * columns, layers * static_cast<size_t>(engram.max_ngram),
                           primes.size(), multipliers.size());
  constants.primes = std::move(primes);
  constants.offsets = std::move(offsets);
  constants.multipliers.assign(multipliers.begin(), multipliers.end());
  return constants;
}

}  // namespace fathom
