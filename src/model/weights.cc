#include "model/weights.h"

#include <cmath>

#include "tensor/weight_check.h"

namespace fathom {
namespace {

Error unusable(const std::string& path, const std::string& name, const WeightMatrix& weight, int64_t row) {
  return Error::bad_pack("{}: tensor {}: row {} holds an infinite or NaN value or scale, expected finite ones "
                         "(encoding {})",
                         path, name, row, dtype_name(weight.type));
}

// Experts read where they lie in the file. Damage is looked for when an expert is first used: reading all of
// them at load would take as long as reading the file.
class MappedExperts final : public ExpertStore {
 public:
  MappedExperts(std::vector<std::vector<ExpertWeights>> layers, Backend& backend, std::string path)
      : layers_(std::move(layers)), backend_(backend), path_(std::move(path)) {
    for (const auto& experts : layers_) checked_.emplace_back(experts.size(), false);
  }

  Result<const ExpertWeights*> acquire(int layer, const int32_t* ids, int64_t count) override {
    ids_.resize(static_cast<size_t>(count));
    backend_.download(ids_.data(), ids, ids_.size() * sizeof(int32_t));
    std::vector<bool>& checked = checked_[static_cast<size_t>(layer)];
    for (const int32_t id : ids_) {
      if (checked[static_cast<size_t>(id)]) continue;
      FATHOM_TRY(check(layer, id));
      checked[static_cast<size_t>(id)] = true;
    }
    return layers_[static_cast<size_t>(layer)].data();
  }

 private:
  Result<void> check(int layer, int32_t id) const {
    const ExpertWeights& expert = layers_[static_cast<size_t>(layer)][static_cast<size_t>(id)];
    const std::pair<const char*, const WeightMatrix*> parts[] = {
        {"w1", &expert.gate}, {"w3", &expert.up}, {"w2", &expert.down}};
    for (const auto& [name, weight] : parts)
      if (const auto row = first_unusable_row(*weight))
        return unusable(path_, fmt::format("layers.{}.ffn.experts.{}.{}", layer, id, name), *weight, *row);
    return {};
  }

  std::vector<std::vector<ExpertWeights>> layers_;
  std::vector<std::vector<bool>> checked_;  // [layer][expert]
  std::vector<int32_t> ids_;
  Backend& backend_;
  std::string path_;
};

bool is_fp8_or_fp4(DType type) {
  return type == DType::kFp8Tile32 || type == DType::kFp8Row32 || type == DType::kFp4Row32 ||
         type == DType::kMXFP4;
}

// Reads tensors of one pack; `prefix` is "layers.7." and the like.
class Loader {
 public:
  Loader(const Pack& pack, Backend& backend, Numerics numerics)
      : pack_(pack), config_(pack.config()), backend_(backend), numerics_(numerics) {}

  Result<WeightMatrix> matrix(const std::string& name, int64_t rows, int64_t cols) const {
    FATHOM_ASSIGN(const WeightMatrix weight, pack_.matrix(name, rows, cols));
    FATHOM_TRY(check_type(name, weight));
    if (const auto row = first_unusable_row(weight)) return unusable(path(), name, weight, *row);
    return weight;
  }

  Result<Projection> projection(const std::string& name, int64_t rows, int64_t cols) const {
    Projection projection;
    FATHOM_ASSIGN(projection.weight, matrix(name, rows, cols));
    projection.quantize_input = quantizes(name, projection.weight);
    return projection;
  }

  Result<std::vector<float>> values(const std::string& name, int64_t count) const {
    FATHOM_ASSIGN(std::vector<float> values, pack_.vector(name, count));
    for (size_t index = 0; index < values.size(); ++index)
      if (!std::isfinite(values[index]))
        return Error::bad_pack("{}: tensor {}: value {} is {}, expected a finite number", path(), name, index,
                               values[index]);
    return values;
  }

  Result<Buffer> vector(const std::string& name, int64_t count) const {
    FATHOM_ASSIGN(const std::vector<float> read, values(name, count));
    return upload(name, read);
  }

  Result<Buffer> upload(const std::string& name, const std::vector<float>& floats) const {
    const int64_t bytes = static_cast<int64_t>(floats.size()) * 4;
    FATHOM_ASSIGN(Buffer buffer, Buffer::make(backend_, bytes, name));
    backend_.upload(buffer.bytes(), floats.data(), static_cast<size_t>(bytes));
    return buffer;
  }

  Result<HyperWeights> hyper(const std::string& prefix) const {
    const int mixes = config_.hc_mixes();
    HyperWeights weights;
    FATHOM_ASSIGN(weights.fn, matrix(prefix + "_fn", mixes, int64_t{config_.hc_mult} * config_.hidden_size));
    FATHOM_ASSIGN(weights.base, vector(prefix + "_base", mixes));
    FATHOM_ASSIGN(weights.scale, vector(prefix + "_scale", 3));
    return weights;
  }

  Result<LayerWeights> layer(const LayerPlan& plan) const {
    const std::string prefix = fmt::format("layers.{}.", plan.layer);
    LayerWeights weights;
    FATHOM_ASSIGN(weights.hyper_attention, hyper(prefix + "hc_attn"));
    FATHOM_ASSIGN(weights.hyper_experts, hyper(prefix + "hc_ffn"));
    FATHOM_ASSIGN(weights.attention_norm, vector(prefix + "attn_norm.weight", config_.hidden_size));
    FATHOM_ASSIGN(weights.experts_norm, vector(prefix + "ffn_norm.weight", config_.hidden_size));
    FATHOM_TRY(attention(prefix + "attn.", weights));
    if (plan.owns_rows()) FATHOM_TRY(compressor(prefix + "attn.", plan.ratio, weights.compressor));
    if (plan.selects()) FATHOM_TRY(indexer(prefix + "attn.indexer.", weights.indexer));
    if (plan.engram_table >= 0) FATHOM_TRY(engram(prefix + "engram.", weights.engram));
    FATHOM_TRY(router_and_shared(prefix + "ffn.", weights));
    return weights;
  }

  Result<std::vector<ExpertWeights>> experts(int layer, LayerWeights::ExpertQuantizers* quantize) const {
    const std::string block = fmt::format("layers.{}", layer);
    const int64_t dim = config_.hidden_size, inter = config_.moe_intermediate_size;
    std::vector<ExpertWeights> experts(static_cast<size_t>(config_.routed_experts));
    for (size_t expert = 0; expert < experts.size(); ++expert) {
      const int64_t id = static_cast<int64_t>(expert);
      FATHOM_ASSIGN(experts[expert].gate, pack_.expert_matrix(block, id, "w1", inter, dim));
      FATHOM_ASSIGN(experts[expert].up, pack_.expert_matrix(block, id, "w3", inter, dim));
      FATHOM_ASSIGN(experts[expert].down, pack_.expert_matrix(block, id, "w2", dim, inter));
      const std::string name = fmt::format("{}.ffn.experts.{}", block, expert);
      for (const WeightMatrix* part : {&experts[expert].gate, &experts[expert].up, &experts[expert].down})
        FATHOM_TRY(check_type(name, *part));
      FATHOM_ASSIGN(const LayerWeights::ExpertQuantizers here, quantizers(name, experts[expert]));
      if (expert > 0 && here != *quantize)
        return Error::unsupported("{}: {}: encodings {} and {} differ in kind from the layer's other experts",
                                  path(), name, dtype_name(experts[expert].gate.type),
                                  dtype_name(experts[expert].down.type));
      *quantize = here;
    }
    return experts;
  }

  std::string path() const { return pack_.files().empty() ? "pack" : pack_.files().front().path; }

 private:
  Result<void> check_type(const std::string& name, const WeightMatrix& weight) const {
    if (!backend_.supports(weight.type))
      return Error::unsupported("{}: tensor {}: encoding {} cannot be read by {}", path(), name,
                                dtype_name(weight.type), backend_.description());
    return {};
  }

  bool quantizes(const std::string& name, const WeightMatrix& weight) const {
    if (numerics_ == Numerics::kExact || weight.cols % 32 != 0) return false;
    return pack_.quantize_input(name).value_or(is_fp8_or_fp4(weight.type));
  }

  // Gate and up read one input, so it is quantised for both or for neither.
  Result<LayerWeights::ExpertQuantizers> quantizers(const std::string& name, const ExpertWeights& expert) const {
    const bool gate = quantizes(name + ".w1.weight", expert.gate), up = quantizes(name + ".w3.weight", expert.up);
    if (gate != up)
      return Error::unsupported("{}: {}: w1 is {} and w3 is {}: one wants its input in FP8, the other does not",
                                path(), name, dtype_name(expert.gate.type), dtype_name(expert.up.type));
    return LayerWeights::ExpertQuantizers{.in = gate, .down = quantizes(name + ".w2.weight", expert.down)};
  }

  Result<void> attention(const std::string& prefix, LayerWeights& weights) const {
    const int64_t dim = config_.hidden_size;
    const int64_t low_rank = int64_t{config_.o_groups} * config_.o_lora_rank;
    FATHOM_ASSIGN(weights.wq_a, projection(prefix + "wq_a.weight", config_.q_lora_rank, dim));
    FATHOM_ASSIGN(weights.q_norm, vector(prefix + "q_norm.weight", config_.q_lora_rank));
    FATHOM_ASSIGN(weights.wq_b, projection(prefix + "wq_b.weight", config_.head_width(), config_.q_lora_rank));
    FATHOM_ASSIGN(weights.wkv, projection(prefix + "wkv.weight", config_.head_dim, dim));
    FATHOM_ASSIGN(weights.kv_norm, vector(prefix + "kv_norm.weight", config_.head_dim));
    FATHOM_ASSIGN(weights.wo_a, matrix(prefix + "wo_a.weight", low_rank, config_.head_width() / config_.o_groups));
    FATHOM_ASSIGN(weights.wo_b, projection(prefix + "wo_b.weight", dim, low_rank));
    FATHOM_ASSIGN(weights.sinks, vector(prefix + "attn_sink", config_.num_heads));
    return {};
  }

  Result<void> compressor(const std::string& prefix, int ratio, CompressorWeights& weights) const {
    const int64_t dim = config_.hidden_size;
    FATHOM_ASSIGN(weights.wkv, matrix(prefix + "compressor.wkv.weight", config_.head_dim, dim));
    if (ratio == 2) {
      FATHOM_ASSIGN(weights.wgate, matrix(prefix + "compressor.wgate.weight", config_.head_dim, dim));
    }
    FATHOM_ASSIGN(weights.norm, vector(prefix + "compressor.norm.weight", config_.head_dim));
    FATHOM_ASSIGN(weights.index_wk,
                  matrix(prefix + "indexer.wk.weight", config_.index_head_dim, config_.head_dim));
    FATHOM_ASSIGN(weights.index_k_norm, vector(prefix + "indexer.k_norm.weight", config_.index_head_dim));
    return {};
  }

  Result<void> indexer(const std::string& prefix, IndexerWeights& weights) const {
    const int64_t width = int64_t{config_.index_heads} * config_.index_head_dim;
    FATHOM_ASSIGN(weights.wq_b, projection(prefix + "wq_b.weight", width, config_.q_lora_rank));
    FATHOM_ASSIGN(weights.weights_proj,
                  matrix(prefix + "weights_proj.weight", config_.index_heads, config_.hidden_size));
    return {};
  }

  Result<void> engram(const std::string& prefix, EngramWeights& weights) const {
    const int64_t dim = config_.hidden_size, streams = config_.hc_mult;
    FATHOM_ASSIGN(weights.wkv,
                  projection(prefix + "wkv.weight", (streams + 1) * dim, config_.engram.width()));
    FATHOM_ASSIGN(std::vector<float> gate, values(prefix + "q_weight", streams * dim));
    FATHOM_ASSIGN(const std::vector<float> key, values(prefix + "k_weight", streams * dim));
    for (size_t k = 0; k < gate.size(); ++k) gate[k] *= key[k];
    FATHOM_ASSIGN(weights.gate_weight, upload(prefix + "q_weight", gate));
    return {};
  }

  Result<void> router_and_shared(const std::string& prefix, LayerWeights& weights) const {
    const int64_t dim = config_.hidden_size, inter = config_.moe_intermediate_size;
    FATHOM_ASSIGN(weights.router, matrix(prefix + "gate.weight", config_.routed_experts, dim));
    FATHOM_ASSIGN(weights.router_bias, vector(prefix + "gate.bias", config_.routed_experts));
    FATHOM_ASSIGN(weights.shared.gate, matrix(prefix + "shared_experts.w1.weight", inter, dim));
    FATHOM_ASSIGN(weights.shared.up, matrix(prefix + "shared_experts.w3.weight", inter, dim));
    FATHOM_ASSIGN(weights.shared.down, matrix(prefix + "shared_experts.w2.weight", dim, inter));
    FATHOM_ASSIGN(weights.quantize_shared, quantizers(prefix + "shared_experts", weights.shared));
    return {};
  }

  const Pack& pack_;
  const ModelConfig& config_;
  Backend& backend_;
  Numerics numerics_;
};

}  // namespace

Result<ModelWeights> load_weights(const Pack& pack, const std::vector<LayerPlan>& plan, Backend& backend,
                                  Numerics numerics, const ProgressFn& progress) {
  const ModelConfig& config = pack.config();
  const Loader loader(pack, backend, numerics);
  ModelWeights weights;
  FATHOM_ASSIGN(weights.embedding, loader.matrix("embed.weight", config.vocab_size, config.hidden_size));
  FATHOM_ASSIGN(weights.head, loader.matrix("head.weight", config.vocab_size, config.hidden_size));
  FATHOM_ASSIGN(weights.final_norm, loader.vector("norm.weight", config.hidden_size));
  std::vector<std::vector<ExpertWeights>> experts;
  for (const LayerPlan& entry : plan) {
    if (progress && !progress({.stage = "loading", .unit = "layers", .done = entry.layer,
                               .total = config.num_layers}))
      return Error::cancelled("loading was cancelled at layer {}", entry.layer);
    FATHOM_ASSIGN(LayerWeights layer, loader.layer(entry));
    FATHOM_ASSIGN(std::vector<ExpertWeights> routed, loader.experts(entry.layer, &layer.quantize_routed));
    weights.layers.push_back(std::move(layer));
    experts.push_back(std::move(routed));
  }
  weights.experts = std::make_unique<MappedExperts>(std::move(experts), backend, loader.path());
  return weights;
}

}  // namespace fathom
