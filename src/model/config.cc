#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"

namespace fathom {
namespace {

using Json = nlohmann::json;
using Names = std::initializer_list<const char*>;

int last_at_or_below(const std::vector<int>& ids, int layer) {
  int found = -1;
  for (const int id : ids) {
    if (id <= layer) found = id;
  }
  return found;
}

// Reads fields of one object. The first fault is kept, later reads then give zeros, and the caller looks at
// fault() once: a hundred fields need no hundred branches.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::optional<Error>& fault() const { return fault_; }

  int64_t integer(Names names, std::optional<int64_t> fallback = std::nullopt) {
    const Json* value = find(names);
    if (value == nullptr) return missing(names, fallback.has_value()) ? *fallback : 0;
    return to_integer(*names.begin(), *value);
  }
  int small(Names names, std::optional<int64_t> fallback = std::nullopt) {
    return to_int(*names.begin(), integer(names, fallback));
  }
  double number(Names names, std::optional<double> fallback = std::nullopt) {
    const Json* value = find(names);
    if (value == nullptr) return missing(names, fallback.has_value()) ? *fallback : 0;
    if (value->is_number()) return value->get<double>();
    wrong(*names.begin(), "a number", *value);
    return 0;
  }
  bool boolean(Names names, bool fallback) {
    const Json* value = find(names);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    wrong(*names.begin(), "true or false", *value);
    return fallback;
  }
  std::vector<int64_t> integers(Names names, bool optional = false) {
    std::vector<int64_t> values;
    const Json* value = find(names);
    if (value == nullptr) {
      missing(names, optional);
    } else if (!value->is_array()) {
      wrong(*names.begin(), "a list of integers", *value);
    } else {
      for (const Json& element : *value) values.push_back(to_integer(*names.begin(), element));
    }
    return values;
  }
  std::vector<int> small_list(Names names, bool optional = false) {
    std::vector<int> values;
    for (const int64_t value : integers(names, optional)) values.push_back(to_int(*names.begin(), value));
    return values;
  }
  // A field that may say only one thing; absence means the same.
  void require_text(Names names, std::string_view expected) {
    const Json* value = find(names);
    if (value != nullptr && !(value->is_string() && value->get_ref<const std::string&>() == expected))
      refuse(*names.begin(), expected, *value);
  }
  void require_false(Names names) {
    const Json* value = find(names);
    if (value != nullptr && *value != Json(false)) refuse(*names.begin(), "false", *value);
  }
  const Json* find(Names names) const {
    for (const char* name : names) {
      const auto found = object_.find(name);
      if (found != object_.end() && !found->is_null()) return &*found;
    }
    return nullptr;
  }

 private:
  bool missing(Names names, bool has_fallback) {
    if (!has_fallback && !fault_) fault_ = Error::bad_pack("{}: no field {}", where_, *names.begin());
    return has_fallback;
  }
  int64_t to_integer(const char* name, const Json& value) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62) {
      wrong(name, "an integer below 2^62", value);
    } else if (value.is_number_integer()) {
      return value.get<int64_t>();
    } else if (value.is_number_float() && std::abs(value.get<double>()) < 0x1p53 &&
               std::trunc(value.get<double>()) == value.get<double>()) {
      return static_cast<int64_t>(value.get<double>());  // "16.0"
    } else {
      wrong(name, "an integer", value);
    }
    return 0;
  }
  int to_int(const char* name, int64_t value) {
    if (value == static_cast<int>(value)) return static_cast<int>(value);
    if (!fault_) fault_ = Error::bad_pack("{}: {}: expected a 32-bit integer, found {}", where_, name, value);
    return 0;
  }
  static std::string brief(const Json& value) {
    return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
  }
  void wrong(const char* name, std::string_view expected, const Json& value) {
    if (!fault_)
      fault_ = Error::bad_pack("{}: {}: expected {}, found {}", where_, name, expected, brief(value));
  }
  void refuse(const char* name, std::string_view expected, const Json& value) {
    if (!fault_)
      fault_ = Error::unsupported("{}: {}: expected {}, found {}", where_, name, expected, brief(value));
  }

  const Json& object_;
  std::string where_;
  std::optional<Error> fault_;
};

void read_attention(Fields& fields, ModelConfig& config) {
  config.num_heads = fields.small({"num_attention_heads", "n_heads"});
  config.head_dim = fields.small({"head_dim"});
  config.rope_dim = fields.small({"qk_rope_head_dim", "rope_head_dim"});
  config.q_lora_rank = fields.small({"q_lora_rank"});
  config.o_lora_rank = fields.small({"o_lora_rank"});
  config.o_groups = fields.small({"o_groups"});
  config.sliding_window = fields.small({"sliding_window", "window_size"});
  config.rope_theta = fields.number({"rope_theta"});
  config.compress_rope_theta = fields.number({"compress_rope_theta"});
  config.max_position_embeddings = fields.integer({"max_position_embeddings", "max_seq_len"});
  config.compress_ratios = fields.small_list({"compress_ratios"});
  config.kv_source_layer_ids = fields.small_list({"kv_source_layer_ids"});
  config.index_source_layer_ids = fields.small_list({"index_source_layer_ids"});
  config.candidate_source_layer_id = fields.small({"candidate_source_layer_id"});
  config.candidate_topk_blocks = fields.small({"candidate_topk_blocks"}, 0);
  config.candidate_block_size = fields.small({"candidate_block_size"}, 0);
  config.index_heads = fields.small({"index_n_heads"});
  config.index_head_dim = fields.small({"index_head_dim"});
  config.index_topk = fields.small({"index_topk"});
  fields.require_false({"attention_bias"});
}

void read_experts_and_streams(Fields& fields, ModelConfig& config) {
  config.routed_experts = fields.small({"n_routed_experts"});
  config.shared_experts = fields.small({"n_shared_experts"});
  config.experts_per_token = fields.small({"num_experts_per_tok", "n_activated_experts"});
  config.moe_intermediate_size = fields.small({"moe_intermediate_size", "moe_inter_dim"});
  config.norm_topk_prob = fields.boolean({"norm_topk_prob"}, true);
  config.routed_scaling_factor = fields.number({"routed_scaling_factor", "route_scale"});
  config.gate_temp = fields.number({"gate_temp"}, 1.0);
  config.swiglu_limit = fields.number({"swiglu_limit"});
  config.hc_mult = fields.small({"hc_mult"});
  config.hc_sinkhorn_iters = fields.small({"hc_sinkhorn_iters"});
  config.hc_eps = fields.number({"hc_eps"});
  fields.require_text({"scoring_func", "score_func"}, "sqrtsoftplus");
  fields.require_text({"topk_method"}, "noaux_tc");
  fields.require_text({"hidden_act"}, "silu");
}

void read_engram_and_draft(Fields& fields, ModelConfig& config) {
  EngramConfig& engram = config.engram;
  engram.layer_ids = fields.small_list({"engram_layer_ids"}, /*optional=*/true);
  if (!engram.layer_ids.empty()) {
    engram.rows = fields.integers({"engram_num_embeddings"});
    engram.max_ngram = fields.small({"engram_max_ngram_size"});
    engram.heads = fields.small({"engram_n_heads"});
    engram.head_dim = fields.small({"engram_head_dim"});
    engram.vocab_size = fields.integer({"engram_vocab_size"});
    engram.pad_token_id = fields.small({"engram_pad_token_id", "engram_pad_id"}, 2);
    engram.compressed_vocab_size = fields.small({"engram_compressed_vocab_size"}, 0);
  }
  DraftConfig& draft = config.draft;
  draft.stages = fields.small({"num_nextn_predict_layers", "n_mtp_layers"}, 0);
  if (draft.stages == 0) return;
  draft.block_size = fields.small({"dspark_block_size"});
  draft.noise_token_id = fields.small({"dspark_noise_token_id"});
  draft.target_layer_ids = fields.small_list({"dspark_target_layer_ids"});
  draft.markov_rank = fields.small({"dspark_markov_rank"});
  draft.routed_experts = fields.small({"dspark_n_routed_experts"});
  draft.experts_per_token = fields.small({"dspark_num_experts_per_tok", "dspark_n_activated_experts"});
}

// Nested "rope_scaling" of the HF config, or the flat fields of the inference config.
std::optional<Error> read_yarn(Fields& fields, const std::string& where, YarnConfig& yarn) {
  static const Json kEmpty = Json::object();
  const Json* nested = fields.find({"rope_scaling", "rope_parameters"});
  if (nested != nullptr && !nested->is_object())
    return Error::bad_pack("{}: rope_scaling: expected an object", where);
  if (nested != nullptr) {
    Fields scaling(*nested, where + ": rope_scaling");
    scaling.require_text({"rope_type", "type"}, "yarn");
    yarn.factor = scaling.number({"factor"});
    yarn.beta_fast = scaling.number({"beta_fast"}, 32);
    yarn.beta_slow = scaling.number({"beta_slow"}, 1);
    yarn.original_max_position_embeddings = scaling.integer({"original_max_position_embeddings"});
    return scaling.fault();
  }
  yarn.factor = fields.number({"rope_scaling", "rope_factor"});
  yarn.beta_fast = fields.number({"beta_fast"}, 32);
  yarn.beta_slow = fields.number({"beta_slow"}, 1);
  yarn.original_max_position_embeddings = fields.integer({"original_seq_len"});
  return fields.fault();
}

std::optional<Error> read_vision(const Json& object, const std::string& where, VisionConfig& vision) {
  Fields fields(object, where + ": vision_config");
  vision.layers = fields.small({"num_hidden_layers"});
  vision.hidden_size = fields.small({"hidden_size"});
  vision.heads = fields.small({"num_attention_heads"});
  vision.intermediate_size = fields.small({"intermediate_size"});
  vision.patch_size = fields.small({"patch_size"});
  vision.rope_theta = fields.number({"rope_theta"}, 10000);
  vision.downsample_ratio = fields.small({"downsample_ratio"});
  vision.max_image_tokens = fields.small({"max_image_tokens"});
  vision.min_pixels = fields.integer({"min_pixels"});
  if (fields.find({"max_wh_ratio"}) != nullptr) vision.max_wh_ratio = fields.number({"max_wh_ratio"});
  return fields.fault();
}

// Entries past the layers belong to the draft stages, which never compress.
Result<void> cut_draft_ratios(ModelConfig& config, std::string_view where) {
  const size_t layers = static_cast<size_t>(std::max(config.num_layers, 0));
  const size_t stages = static_cast<size_t>(std::max(config.draft.stages, 0));
  const size_t found = config.compress_ratios.size();
  if (found != layers && found != layers + stages)
    return Error::bad_pack("{}: compress_ratios: expected {} or {} entries, found {}", where, layers,
                           layers + stages, found);
  for (size_t i = layers; i < found; ++i) {
    if (config.compress_ratios[i] != 0)
      return Error::bad_pack("{}: compress_ratios[{}]: expected 0 for a draft stage, found {}", where, i,
                             config.compress_ratios[i]);
  }
  config.compress_ratios.resize(layers);
  return {};
}

// The mark that `fathom synth` leaves.
Result<void> read_synth(const Json& root, const std::string& where, ModelConfig& config) {
  const auto mark = root.find("fathom_synth");
  if (mark == root.end()) return {};
  if (!mark->is_object()) return Error::bad_pack("{}: fathom_synth: expected an object", where);
  Fields fields(*mark, where + ": fathom_synth");
  config.synthetic = true;
  config.engram.sparse = fields.boolean({"sparse_engram"}, false);
  return fields.fault() ? Result<void>(*fields.fault()) : Result<void>();
}

Result<void> check_family(const Json& root, const std::string& where) {
  const auto type = root.find("model_type");
  if (type != root.end() && *type != "deepseek_v41" && *type != "deepseek_v41_text")
    return Error::unsupported("{}: model_type: expected deepseek_v41, found {}", where,
                              type->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60));
  return {};
}

}  // namespace

bool ModelConfig::is_kv_source(int layer) const {
  return std::binary_search(kv_source_layer_ids.begin(), kv_source_layer_ids.end(), layer);
}
bool ModelConfig::is_index_source(int layer) const {
  return std::binary_search(index_source_layer_ids.begin(), index_source_layer_ids.end(), layer);
}
int ModelConfig::kv_source_of(int layer) const {
  return ratio(layer) == 0 ? -1 : last_at_or_below(kv_source_layer_ids, layer);
}
int ModelConfig::index_source_of(int layer) const {
  return ratio(layer) == 0 ? -1 : last_at_or_below(index_source_layer_ids, layer);
}
int ModelConfig::engram_index(int layer) const {
  const auto found = std::find(engram.layer_ids.begin(), engram.layer_ids.end(), layer);
  return found == engram.layer_ids.end() ? -1 : static_cast<int>(found - engram.layer_ids.begin());
}

Result<ModelConfig> config_from_json(std::string_view text, std::string_view where_view) {
  const std::string where(where_view);
  if (json_is_deeper_than(text, kPackJsonDepthMax))
    return Error::bad_pack("{}: nested deeper than {} levels", where, kPackJsonDepthMax);
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) return Error::bad_pack("{}: not a JSON object", where);
  FATHOM_TRY(check_family(root, where));
  const auto nested = root.find("text_config");
  if (nested != root.end() && !nested->is_object())
    return Error::bad_pack("{}: text_config: expected an object", where);
  const Json& object = nested != root.end() ? *nested : root;

  ModelConfig config;
  Fields fields(object, where);
  config.vocab_size = fields.small({"vocab_size"});
  config.hidden_size = fields.small({"hidden_size", "dim"});
  config.num_layers = fields.small({"num_hidden_layers", "n_layers"});
  config.rms_norm_eps = fields.number({"rms_norm_eps", "norm_eps"});
  fields.require_false({"tie_word_embeddings"});
  if (fields.integer({"num_key_value_heads"}, 1) != 1)
    return Error::unsupported("{}: num_key_value_heads: expected 1", where);
  read_attention(fields, config);
  read_experts_and_streams(fields, config);
  read_engram_and_draft(fields, config);
  if (fields.fault()) return *fields.fault();
  if (auto fault = read_yarn(fields, where, config.yarn)) return *fault;

  Fields tokens(root, where);
  const auto token = [&](const char* name, int64_t fallback) {
    const Json* list =
        tokens.find({name});  // some configs list several end tokens: the first is the usual one
    if (list != nullptr && list->is_array()) {
      const std::vector<int> ids = tokens.small_list({name});
      return ids.empty() ? static_cast<int>(fallback) : ids[0];
    }
    return tokens.small({name}, fields.integer({name}, fallback));
  };
  config.bos_token_id = token("bos_token_id", 0);
  config.eos_token_id = token("eos_token_id", 1);
  config.pad_token_id = token("pad_token_id", 2);
  config.image_token_id = token("image_token_id", -1);
  if (tokens.fault()) return *tokens.fault();
  if (fields.fault()) return *fields.fault();

  FATHOM_TRY(read_synth(root, where, config));
  if (const Json* vision = tokens.find({"vision_config"})) {
    if (!vision->is_object()) return Error::bad_pack("{}: vision_config: expected an object", where);
    if (auto fault = read_vision(*vision, where, config.vision.emplace())) return *fault;
  }
  FATHOM_TRY(cut_draft_ratios(config, where));
  FATHOM_TRY(validate_config(config, where));
  return config;
}

}  // namespace fathom
