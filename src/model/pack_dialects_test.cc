// The same small model in every dialect must have the same values.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/safetensors.h"
#include "model/pack.h"
#include "model/test_packs.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

struct GgufNames {
  const char* stored;
  const char* official;
};
// One line a tensor of a block, from the tables of the two dialects; Engram names differ between them.
constexpr GgufNames kShared[] = {
    {"attn_norm", "attn_norm.weight"},
    {"ffn_norm", "ffn_norm.weight"},
    {"hc_attn_fn", "hc_attn_fn"},
    {"hc_attn_base", "hc_attn_base"},
    {"hc_attn_scale", "hc_attn_scale"},
    {"hc_ffn_fn", "hc_ffn_fn"},
    {"hc_ffn_base", "hc_ffn_base"},
    {"hc_ffn_scale", "hc_ffn_scale"},
    {"attn_sinks", "attn.attn_sink"},
    {"attn_q_a", "attn.wq_a.weight"},
    {"attn_q_a_norm", "attn.q_norm.weight"},
    {"attn_q_b", "attn.wq_b.weight"},
    {"attn_kv", "attn.wkv.weight"},
    {"attn_kv_a_norm", "attn.kv_norm.weight"},
    {"attn_output_a", "attn.wo_a.weight"},
    {"attn_output_b", "attn.wo_b.weight"},
    {"attn_compressor_kv", "attn.compressor.wkv.weight"},
    {"attn_compressor_norm", "attn.compressor.norm.weight"},
    {"attn_compressor_gate", "attn.compressor.wgate.weight"},
    {"indexer.attn_k", "attn.indexer.wk.weight"},
    {"indexer.k_norm", "attn.indexer.k_norm.weight"},
    {"indexer.attn_q_b", "attn.indexer.wq_b.weight"},
    {"indexer.proj", "attn.indexer.weights_proj.weight"},
    {"ffn_gate_inp", "ffn.gate.weight"},
    {"ffn_gate_shexp", "ffn.shared_experts.w1.weight"},
    {"ffn_up_shexp", "ffn.shared_experts.w3.weight"},
    {"ffn_down_shexp", "ffn.shared_experts.w2.weight"},
};
constexpr GgufNames kDs4Engram[] = {{"engram_kv", "engram.wkv.weight"},
                                    {"engram_q_norm", "engram.q_weight"},
                                    {"engram_k_norm", "engram.k_weight"}};
constexpr GgufNames kLlamaEngram[] = {
    {"engram_wkv", "engram.wkv.weight"}, {"engram_q", "engram.q_weight"}, {"engram_k", "engram.k_weight"}};

void expect_same_values(const Pack& expected, const Pack& found) {
  const ModelConfig& c = expected.config();
  std::vector<MatrixShape> matrices = {{"embed.weight", c.vocab_size, c.hidden_size},
                                       {"head.weight", c.vocab_size, c.hidden_size}};
  std::vector<MatrixShape> vectors = {{"norm.weight", 1, c.hidden_size}};
  for (int layer = 0; layer < c.num_layers; ++layer) {
    const std::string block = fmt::format("layers.{}", layer);
    for (const MatrixShape& shape : block_matrices(c, block, c.routed_experts)) matrices.push_back(shape);
    for (const MatrixShape& shape : block_vectors(c, block, c.routed_experts)) vectors.push_back(shape);
    for (const MatrixShape& shape : expert_shapes(c)) {
      for (int expert = 0; expert < c.routed_experts; ++expert)
        EXPECT_EQ(expert_values(expected, block, expert, shape), expert_values(found, block, expert, shape))
            << block;
    }
  }
  for (const MatrixShape& shape : matrices)
    EXPECT_EQ(matrix_values(expected, shape), matrix_values(found, shape)) << shape.name;
  for (const MatrixShape& shape : vectors)
    EXPECT_EQ(vector_values(expected, shape), vector_values(found, shape)) << shape.name;
  EXPECT_EQ(found.audit().missing, std::vector<std::string>());
  EXPECT_EQ(found.audit().unexpected, std::vector<std::string>());
}

void expect_same_tables(const Pack& expected, const Pack& found) {
  for (const int layer : expected.config().engram.layer_ids) {
    const auto a = expected.engram_table(layer), b = found.engram_table(layer);
    ASSERT_TRUE(a.ok() && b.ok()) << b.error().message;
    EXPECT_EQ(a->rows, b->rows);
    for (const int64_t row : {int64_t{0}, int64_t{1}, a->rows / 2, a->rows - 1})
      EXPECT_EQ(table_row(*a, row), table_row(*b, row)) << layer << " " << row;
  }
}

class Dialects : public ::testing::Test {
 protected:
  void load(const std::string& model) {
    model_ = model;
    auto opened = open_pack(golden_folder(model));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    official_.emplace(std::move(opened).value());
    auto golden = open_safetensors(golden_folder(model) + "/golden.safetensors");
    ASSERT_TRUE(golden.ok());
    golden_.emplace(std::move(golden).value());
  }
  const ModelConfig& config() const { return official_->config(); }

  // A tensor of the release in a type that holds its values: matrices BF16 unless they are F32, vectors F32.
  PlannedTensor plain(const std::string& stored, const std::string& official) {
    const PackTensor* found = nullptr;
    for (const PackTensor& tensor : official_->tensors()) {
      if (tensor.name == official) found = &tensor;
    }
    if (found == nullptr) return {};
    if (found->shape.size() == 1) {
      const MatrixShape shape{official, 1, found->shape[0]};
      return {stored, DType::kF32, found->shape, bytes_of_f32(vector_values(*official_, shape))};
    }
    const std::vector<float> values = matrix_values(*official_, {official, found->shape[0], found->shape[1]});
    if (found->type_name == "F32") return {stored, DType::kF32, found->shape, bytes_of_f32(values)};
    return {stored, DType::kBF16, found->shape, bytes_of_bf16(values)};
  }

  // Everything but the tables, with GGUF names.
  std::vector<PlannedTensor> gguf_tensors(bool is_ds4) {
    std::vector<PlannedTensor> list = {plain("token_embd.weight", "embed.weight"),
                                       plain("output_norm.weight", "norm.weight"),
                                       plain("output.weight", "head.weight")};
    for (int layer = 0; layer < config().num_layers; ++layer) {
      const std::string block = fmt::format("layers.{}.", layer), blk = fmt::format("blk.{}.", layer);
      const auto add = [&](const GgufNames& names) {
        PlannedTensor tensor = plain(blk + names.stored + ".weight", block + names.official);
        if (!tensor.name.empty()) list.push_back(std::move(tensor));
      };
      for (const GgufNames& names : kShared) add(names);
      for (const GgufNames& names : is_ds4 ? kDs4Engram : kLlamaEngram) add(names);
      list.push_back(plain(blk + "exp_probs_b.bias", block + "ffn.gate.bias"));
      const std::pair<const char*, const char*> banks[] = {
          {"w1", "ffn_gate_exps"}, {"w3", "ffn_up_exps"}, {"w2", "ffn_down_exps"}};
      for (const MatrixShape& shape : expert_shapes(config())) {
        const auto* name =
            std::find_if(banks, banks + 3, [&](const auto& b) { return b.first == shape.name; });
        PlannedTensor bank{blk + name->second + ".weight",
                           DType::kMXFP4,
                           {config().routed_experts, shape.rows, shape.cols},
                           {}};
        for (int expert = 0; expert < config().routed_experts; ++expert)
          bank.bytes += repack_mxfp4(*official_->expert_matrix(fmt::format("layers.{}", layer), expert,
                                                               shape.name, shape.rows, shape.cols));
        list.push_back(std::move(bank));
      }
    }
    return list;
  }

  // Tables as rows of values then scales (ds4) or as BF16.
  void add_tables(std::vector<PlannedTensor>& list, bool is_ds4) {
    const int64_t width = config().engram.head_dim;
    for (const int layer : config().engram.layer_ids) {
      const auto table = official_->engram_table(layer);
      ASSERT_TRUE(table.ok());
      PlannedTensor tensor{fmt::format("blk.{}.engram_embd.weight", layer),
                           is_ds4 ? DType::kI8 : DType::kBF16,
                           {table->rows, is_ds4 ? width + width / 32 : width},
                           {}};
      const std::string file = read_bytes(table->data.path);
      for (int64_t row = 0; row < table->rows; ++row) {
        const size_t at = static_cast<size_t>(row);
        if (is_ds4)
          tensor.bytes +=
              file.substr(table->data.offset_bytes + at * table->data.stride_bytes, table->data.row_bytes) +
              file.substr(table->scales.offset_bytes + at * table->scales.stride_bytes,
                          table->scales.row_bytes);
        else
          tensor.bytes += bytes_of_bf16(table_row(*table, row));
      }
      list.push_back(std::move(tensor));
    }
  }

  template <class T, class Stored>
  std::vector<T> golden_list(const std::string& name) const {
    const TensorEntry* tensor = golden_->find("inputs/" + name);
    std::vector<Stored> stored(tensor->size_bytes / sizeof(Stored));
    std::memcpy(stored.data(), tensor->data, tensor->size_bytes);
    return std::vector<T>(stored.begin(), stored.end());
  }

  void add_engram_keys(GgufWriter& writer, bool is_ds4) const {
    writer.add_u64s("deepseek41.engram.multipliers", golden_list<uint64_t, int64_t>("engram_multipliers"));
    if (is_ds4) {
      writer.add_u32s("deepseek41.engram.token_map", golden_list<uint32_t, int32_t>("engram_token_map"));
      writer.add_u32s("deepseek41.engram.primes", golden_list<uint32_t, int32_t>("engram_primes"));
      return;
    }
    writer.add_i32s("deepseek41.engram.token_map", golden_list<int32_t, int32_t>("engram_token_map"));
    writer.add_u64s("deepseek41.engram.primes", golden_list<uint64_t, int32_t>("engram_primes"));
    writer.add_u64s("deepseek41.engram.offsets", golden_list<uint64_t, int32_t>("engram_offsets"));
  }

  void expect_golden_constants(const EngramConstants& constants) const {
    EXPECT_EQ(constants.token_map, (golden_list<int32_t, int32_t>("engram_token_map")));
    EXPECT_EQ(constants.primes, (golden_list<int64_t, int32_t>("engram_primes")));
    EXPECT_EQ(constants.multipliers, (golden_list<uint64_t, int64_t>("engram_multipliers")));
  }

  void add_ds4_keys(GgufWriter& writer, bool embed_config) const {
    const Json text = Json::parse(read_bytes(golden_folder(model_) + "/config.json"))["text_config"];
    writer.add_string("general.architecture", "deepseek41");
    const int64_t width = config().engram.head_dim;
    writer.add_string("deepseek41.engram.encoding", fmt::format("e4m3_e8m0_32_row{}", width + width / 32));
    add_engram_keys(writer, true);
    writer.add_string("tokenizer.ggml.model", "gpt2");
    writer.add_strings("tokenizer.ggml.tokens", {"a", "b"});
    if (embed_config) {
      writer.add_string("deepseek41.config", read_bytes(golden_folder(model_) + "/config.json"));
      return;
    }
    for (const auto& [name, value] : text.items()) {
      const std::string key = "deepseek41." + name;
      if (name.starts_with("engram_") || name.starts_with("dspark_") || name == "attention_dropout") continue;
      if (value.is_boolean()) writer.add_bool(key, value.get<bool>());
      if (value.is_number_integer()) writer.add_u32(key, static_cast<uint32_t>(value.get<int64_t>()));
      if (value.is_number_float()) writer.add_f32(key, value.get<float>());
      if (value.is_string()) writer.add_string(key, value.get<std::string>());
      if (value.is_array()) writer.add_u32s(key, value.get<std::vector<uint32_t>>());
    }
    for (const auto& [name, value] : text["rope_scaling"].items()) {
      if (value.is_number()) writer.add_f32("deepseek41.rope_scaling." + name, value.get<float>());
    }
    writer.add_u32s("deepseek41.engram.layer_ids", text["engram_layer_ids"].get<std::vector<uint32_t>>());
    writer.add_u32s("deepseek41.engram.rows", text["engram_num_embeddings"].get<std::vector<uint32_t>>());
  }

  void add_llama_keys(GgufWriter& writer) const;

  TemporaryFolder folder_;
  std::string model_;
  std::optional<Pack> official_;
  std::optional<TensorFiles> golden_;
};

void Dialects::add_llama_keys(GgufWriter& writer) const {
  const ModelConfig& c = config();
  const std::string p = "deepseek41.";
  writer.add_string("general.architecture", "deepseek41");
  const std::pair<const char*, int64_t> integers[] = {
      {"block_count", c.num_layers},
      {"context_length", c.max_position_embeddings},
      {"embedding_length", c.hidden_size},
      {"attention.head_count", c.num_heads},
      {"attention.head_count_kv", 1},
      {"attention.key_length", c.head_dim},
      {"attention.q_lora_rank", c.q_lora_rank},
      {"attention.sliding_window", c.sliding_window},
      {"attention.output_group_count", c.o_groups},
      {"attention.output_lora_rank", c.o_lora_rank},
      {"attention.indexer.head_count", c.index_heads},
      {"attention.indexer.key_length", c.index_head_dim},
      {"attention.indexer.top_k", c.index_topk},
      {"rope.dimension_count", c.rope_dim},
      {"rope.scaling.original_context_length", c.yarn.original_max_position_embeddings},
      {"expert_count", c.routed_experts},
      {"expert_used_count", c.experts_per_token},
      {"expert_shared_count", 1},
      {"expert_gating_func", 4},
      {"hyper_connection.count", c.hc_mult},
      {"hyper_connection.sinkhorn_iterations", c.hc_sinkhorn_iters},
      {"hash_layer_count", 0},
      {"candidate_source_layer_id", c.candidate_source_layer_id},
      {"candidate_topk_blocks", c.candidate_topk_blocks},
      {"candidate_block_size", c.candidate_block_size},
      {"engram.head_count", c.engram.heads},
      {"engram.key_length", c.engram.head_dim},
      {"engram.max_ngram_size", c.engram.max_ngram},
  };
  for (const auto& [key, value] : integers) writer.add_u32(p + key, static_cast<uint32_t>(value));
  const std::pair<const char*, double> numbers[] = {
      {"attention.layer_norm_rms_epsilon", c.rms_norm_eps},
      {"attention.compress_rope_freq_base", c.compress_rope_theta},
      {"rope.freq_base", c.rope_theta},
      {"rope.scaling.factor", c.yarn.factor},
      {"rope.scaling.yarn_beta_fast", c.yarn.beta_fast},
      {"rope.scaling.yarn_beta_slow", c.yarn.beta_slow},
      {"expert_weights_scale", c.routed_scaling_factor},
      {"hyper_connection.epsilon", c.hc_eps}};
  for (const auto& [key, value] : numbers) writer.add_f32(p + key, static_cast<float>(value));
  const size_t layers = static_cast<size_t>(c.num_layers);
  writer.add_string(p + "rope.scaling.type", "yarn");
  writer.add_bool(p + "expert_weights_norm", true);
  writer.add_f32s(p + "swiglu_clamp_exp", std::vector<float>(layers, static_cast<float>(c.swiglu_limit)));
  writer.add_u32s(p + "expert_feed_forward_length",
                  std::vector<uint32_t>(layers, static_cast<uint32_t>(c.moe_intermediate_size)));
  std::vector<int32_t> ratios(c.compress_ratios.begin(), c.compress_ratios.end());
  ratios.insert(ratios.end(), 3, 0);  // of draft stages that this file does not hold
  writer.add_i32s(p + "attention.compress_ratios", ratios);
  writer.add_i32s(p + "engram.layer_ids", {c.engram.layer_ids.front()});  // real files list only the first
  add_engram_keys(writer, false);
}

void expect_same_shape(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(static_cast<float>(a.rms_norm_eps), static_cast<float>(b.rms_norm_eps));
  EXPECT_EQ(a.compress_ratios, b.compress_ratios);
  EXPECT_EQ(a.kv_source_layer_ids, b.kv_source_layer_ids);
  EXPECT_EQ(a.index_source_layer_ids, b.index_source_layer_ids);
  EXPECT_EQ(a.candidate_source_layer_id, b.candidate_source_layer_id);
  EXPECT_EQ(a.candidate_block_size, b.candidate_block_size);
  EXPECT_EQ(a.yarn.original_max_position_embeddings, b.yarn.original_max_position_embeddings);
  EXPECT_EQ(a.swiglu_limit, b.swiglu_limit);
  EXPECT_EQ(a.engram.layer_ids, b.engram.layer_ids);
  EXPECT_EQ(a.engram.rows, b.engram.rows);
  EXPECT_EQ(a.engram.max_ngram, b.engram.max_ngram);
  EXPECT_EQ(a.engram.heads, b.engram.heads);
  EXPECT_EQ(a.engram.head_dim, b.engram.head_dim);
  EXPECT_EQ(
      b.engram.compressed_vocab_size == 0 || b.engram.compressed_vocab_size == a.engram.compressed_vocab_size,
      true);
}

TEST_F(Dialects, Ds4WithEmbeddedConfig) {
  load("g3_candidate_engram");
  GgufWriter writer(16384);
  add_ds4_keys(writer, true);
  std::vector<PlannedTensor> tensors = gguf_tensors(true);
  add_tables(tensors, true);
  write_gguf(writer, folder_.file("m.gguf"), tensors);
  const auto pack = open_pack(folder_.file("m.gguf"));
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_EQ(pack->dialect(), PackDialect::kDs4Gguf);
  EXPECT_TRUE(pack->tokenizer().is_gguf);
  expect_same_values(*official_, *pack);
  expect_same_tables(*official_, *pack);
  expect_golden_constants(pack->engram_constants());
  EXPECT_EQ(pack->expert_matrix("layers.1", 4, "w2", 128, 64)->type, DType::kMXFP4);
  EXPECT_NE(
      pack->matrix("layers.1.ffn.gate.weight", 6, 128).error().message.find("blk.1.ffn_gate_inp.weight"),
      std::string::npos);
}

TEST_F(Dialects, Ds4WithKeysOnly) {
  load("g3_candidate_engram");
  GgufWriter writer(16384);
  add_ds4_keys(writer, false);
  std::vector<PlannedTensor> tensors = gguf_tensors(true);
  add_tables(tensors, true);
  write_gguf(writer, folder_.file("m.gguf"), tensors);
  const auto pack = open_pack(folder_.file("m.gguf"));
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  expect_same_shape(config(), pack->config());
  expect_same_tables(*official_, *pack);
  EXPECT_TRUE(pack->check_complete().ok());
}

TEST_F(Dialects, LlamaCpp) {
  load("g3_candidate_engram");
  GgufWriter writer;
  add_llama_keys(writer);
  std::vector<PlannedTensor> tensors = gguf_tensors(false);
  add_tables(tensors, false);
  write_gguf(writer, folder_.file("m.gguf"), tensors);
  const auto pack = open_pack(folder_.file("m.gguf"));
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_EQ(pack->dialect(), PackDialect::kLlamaCppGguf);
  expect_same_shape(config(), pack->config());
  expect_same_values(*official_, *pack);
  expect_same_tables(*official_, *pack);
  expect_golden_constants(pack->engram_constants());
}

TEST_F(Dialects, GgufRefusesUnknownTypesAndArchitectures) {
  load("g3_candidate_engram");
  const auto fault = [&](const std::string& architecture) {
    GgufWriter writer;
    writer.add_string("general.architecture", architecture);
    write_gguf(writer, folder_.file("m.gguf"), {});
    return open_pack(folder_.file("m.gguf")).error().message;
  };
  EXPECT_NE(fault("llama").find("expected deepseek41, found llama"), std::string::npos);
  EXPECT_NE(fault("dflash").find("draft stages alone"), std::string::npos);
  EXPECT_NE(fault("deepseek41").find("found neither"), std::string::npos);

  GgufWriter writer;
  add_ds4_keys(writer, true);
  std::vector<PlannedTensor> tensors = gguf_tensors(true);
  add_tables(tensors, true);
  write_gguf(writer, folder_.file("m.gguf"), tensors);
  std::string bytes = read_bytes(folder_.file("m.gguf"));
  const std::string name = "blk.2.attn_q_a.weight";
  bytes[bytes.find(name) + name.size() + 4 + 16] = 43;  // the type id behind rank and two dimensions
  write_bytes(folder_.file("m.gguf"), bytes);
  const auto pack = open_pack(folder_.file("m.gguf"));
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  const auto weight = pack->matrix("layers.2.attn.wq_a.weight", 64, 128);
  EXPECT_EQ(weight.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(weight.error().message.find("type 43 is not one this build reads"), std::string::npos);
}

// Codes 0..15 in affine groups of 32 with BF16 scale 0.5 and bias -1.
PlannedTensor affine_codes(const std::string& name, int64_t rows, int64_t cols) {
  std::string bytes;
  for (int64_t i = 0; i < rows * cols / 2; ++i)
    bytes += static_cast<char>((2 * i % 16) | (2 * i + 1) % 16 << 4);
  return {name, DType::kU32, {rows, cols / 8}, bytes};
}
PlannedTensor constant_bf16(const std::string& name, int64_t rows, int64_t cols, float value) {
  return {name,
          DType::kBF16,
          {rows, cols},
          bytes_of_bf16(std::vector<float>(static_cast<size_t>(rows * cols), value))};
}

class OMlx : public Dialects {
 protected:
  void SetUp() override {
    load("g3_candidate_engram");
    const auto files = open_safetensors(golden_folder(model_));
    ASSERT_TRUE(files.ok());
    for (const TensorEntry& tensor : files->tensors) {
      const std::string name = tensor.name;
      if (name.find(".experts.") != std::string::npos || name.find("engram.embed") != std::string::npos ||
          name.ends_with(".scale"))
        continue;
      if (tensor.type != DType::kF8E4M3 || name.ends_with("wo_a.weight")) {
        tensors_.push_back(plain("language_model." + name, name));
        continue;
      }
      const std::string module = name.substr(0, name.size() - 7);
      const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
      PlannedTensor scales{"language_model." + module + ".scales", DType::kU8, {rows, cols / 32}, {}};
      const std::byte* tiles = files->find(module + ".scale")->data;
      for (int64_t row = 0; row < rows; ++row)
        scales.bytes.append(reinterpret_cast<const char*>(tiles) + row / 32 * (cols / 32),
                            static_cast<size_t>(cols / 32));
      tensors_.push_back({"language_model." + name,
                          DType::kU32,
                          {rows, cols / 4},
                          std::string(reinterpret_cast<const char*>(tensor.data), tensor.size_bytes)});
      tensors_.push_back(std::move(scales));
      modules_["language_model." + module] = {
          {"bits", 8}, {"mode", "mxfp8"}, {"group_size", 32}, {"quantize_input", true}};
    }
    add_banks();
  }

  void add_banks() {
    for (int layer = 0; layer < config().num_layers; ++layer) {
      for (const MatrixShape& shape : expert_shapes(config())) {
        const std::string module = fmt::format("language_model.layers.{}.ffn.experts.{}", layer, shape.name);
        PlannedTensor codes{
            module + ".weight", DType::kU32, {config().routed_experts, shape.rows, shape.cols / 8}, {}};
        PlannedTensor scales{
            module + ".scales", DType::kU8, {config().routed_experts, shape.rows, shape.cols / 32}, {}};
        for (int expert = 0; expert < config().routed_experts; ++expert) {
          const auto weight = official_->expert_matrix(fmt::format("layers.{}", layer), expert, shape.name,
                                                       shape.rows, shape.cols);
          ASSERT_TRUE(weight.ok());
          codes.bytes.append(reinterpret_cast<const char*>(weight->data),
                             static_cast<size_t>(weight->rows * weight->row_bytes));
          scales.bytes.append(reinterpret_cast<const char*>(weight->scales),
                              static_cast<size_t>(weight->rows * weight->scale_row_bytes));
        }
        tensors_.push_back(std::move(codes));
        tensors_.push_back(std::move(scales));
        modules_[module] = {{"bits", 4}, {"mode", "mxfp4"}, {"group_size", 32}};
      }
    }
  }

  Result<Pack> open() {
    Json config = Json::parse(read_bytes(golden_folder(model_) + "/config.json"));
    config.erase("quantization_config");
    Json tables = Json::object();
    std::vector<PlannedTensor> rows;
    for (size_t i = 0; i < 2; ++i) {
      const std::string module = fmt::format("language_model.layers.{}.engram.embed", config_layers()[i]);
      const std::string key = fmt::format("table{}", i);
      const int64_t count = this->config().engram.rows[i];
      rows.push_back(affine_codes(key + ".w", count, 32));
      rows.push_back(constant_bf16(key + ".s", count, 1, 0.5f));
      rows.push_back(constant_bf16(key + ".b", count, 1, -1.0f));
      tables[module] = {{"weight_file", "engram.safetensors"},
                        {"weight_key", key + ".w"},
                        {"scale_file", "engram.safetensors"},
                        {"scale_key", key + ".s"},
                        {"bias_key", key + ".b"},
                        {"bits", 4},
                        {"group_size", 32},
                        {"mode", "affine"}};
    }
    config["omlx_deepseek_v41"] = {
        {"version", 1}, {"quantized_modules", modules_}, {"engram_tables", tables}};
    write_bytes(folder_.file("config.json"), config.dump());
    write_safetensors(folder_.file("engram.safetensors"), rows);
    write_safetensors(folder_.file("model.safetensors"), tensors_);
    return open_pack(folder_.path());
  }
  const std::vector<int>& config_layers() const { return config().engram.layer_ids; }

  std::vector<PlannedTensor> tensors_;
  Json modules_ = Json::object();
};

TEST_F(OMlx, HasTheSameValues) {
  const auto pack = open();
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_EQ(pack->dialect(), PackDialect::kOMlx);
  expect_same_values(*official_, *pack);
  EXPECT_EQ(pack->matrix("layers.0.attn.wq_a.weight", 64, 128)->type, DType::kFp8Row32);
  EXPECT_EQ(pack->quantize_input("layers.0.attn.wq_a.weight"), std::optional<bool>(true));
  EXPECT_EQ(pack->quantize_input("layers.0.ffn.experts.3.w1.weight"), std::nullopt);
  const auto table = pack->engram_table(2);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->type, DType::kAffine);
  EXPECT_EQ(table->bits, 4);
  EXPECT_EQ(table->data.path, folder_.file("engram.safetensors"));
  const std::vector<float> row = table_row(*table, 3);
  EXPECT_EQ(row[0], -1.0f);
  EXPECT_EQ(row[5], 1.5f);
}

TEST_F(OMlx, RefusesShapesThatContradictTheConfig) {
  modules_["language_model.layers.0.attn.wq_a"]["bits"] = 4;
  const auto pack = open();
  ASSERT_TRUE(pack.ok());
  EXPECT_NE(pack->matrix("layers.0.attn.wq_a.weight", 64, 128)
                .error()
                .message.find(
                    "the config says mxfp8 4 bits, groups of 32; the shapes say mxfp8 8 bits, groups of 32"),
            std::string::npos);
}

TEST_F(OMlx, AffineMatricesAreSolvedFromShapes) {
  std::erase_if(tensors_, [](const PlannedTensor& t) {
    return t.name.find("layers.0.attn.wkv.") != std::string::npos;
  });
  modules_.erase("language_model.layers.0.attn.wkv");
  tensors_.push_back(affine_codes("language_model.layers.0.attn.wkv.weight", 32, 128));
  tensors_.push_back(constant_bf16("language_model.layers.0.attn.wkv.scales", 32, 2, 0.5f));
  tensors_.push_back(constant_bf16("language_model.layers.0.attn.wkv.biases", 32, 2, -1.0f));
  const auto pack = open();
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  const auto weight = pack->matrix("layers.0.attn.wkv.weight", 32, 128);
  ASSERT_TRUE(weight.ok()) << weight.error().message;
  EXPECT_EQ(weight->bits, 4);
  EXPECT_EQ(weight->group, 64);
  EXPECT_EQ(weight->scale_type, DType::kBF16);
  const std::vector<float> values = decode(*weight);
  EXPECT_EQ(values[7], 2.5f);
  EXPECT_EQ(values[31 * 128 + 127], 6.5f);
  EXPECT_FALSE(pack->matrix("layers.0.attn.wkv.weight", 32, 96).ok());
}

}  // namespace
}  // namespace fathom
