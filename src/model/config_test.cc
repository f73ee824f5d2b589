#include "model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/test_files.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

std::string data_file(const std::string& name) {
  return read_bytes(std::string(FATHOM_SOURCE_DIR) + "/tests/data/" + name);
}

TEST(Config, ReadsTheRelease) {
  const auto config = config_from_json(data_file("config/v41_flash.json"), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->hidden_size, 5120);
  EXPECT_EQ(config->head_width(), 32768);
  EXPECT_EQ(config->hc_mixes(), 24);
  EXPECT_EQ(config->rms_norm_eps, 1e-20);
  EXPECT_EQ(config->yarn.original_max_position_embeddings, 65536);
  EXPECT_EQ(config->compress_ratios.size(), 40u);
  EXPECT_EQ(config->encoder_layers(), 20);
  EXPECT_EQ(config->engram.columns(), 24);
  EXPECT_EQ(config->engram.width(), 6144);
  EXPECT_EQ(config->engram.rows[1], 384016682);
  EXPECT_EQ(config->engram_index(14), 1);
  EXPECT_EQ(config->engram_index(2), -1);
  EXPECT_EQ(config->draft.target_layer_ids, (std::vector<int>{37, 38, 39}));
  ASSERT_TRUE(config->vision.has_value());
  EXPECT_EQ(config->vision->min_pixels, 295936);
  EXPECT_FALSE(config->vision->max_wh_ratio.has_value());
  EXPECT_EQ(config->image_token_id, 129264);
}

TEST(Config, LayerRolesOfTheRelease) {
  const auto config = config_from_json(data_file("config/v41_flash.json"), "config.json");
  ASSERT_TRUE(config.ok());
  const std::vector<std::array<int, 3>> expected = {{1, -1, -1},  {2, 2, 2},    {7, 2, 2},    {19, 14, 14},
                                                    {20, 20, 20}, {23, 20, 20}, {24, 20, 24}, {39, 20, 36}};
  for (const auto& [layer, kv, index] : expected) {
    EXPECT_EQ(config->kv_source_of(layer), kv) << layer;
    EXPECT_EQ(config->index_source_of(layer), index) << layer;
  }
  EXPECT_TRUE(config->is_index_source(24));
  EXPECT_FALSE(config->is_kv_source(24));
}

TEST(Config, ReadsTheSmallModels) {
  for (const char* name :
       {"g1_dense_short", "g2_select", "g3_candidate_engram", "g4_k256_dspark", "g5_image", "g6_deep"}) {
    const auto config = config_from_json(data_file("golden/" + std::string(name) + "/config.json"), name);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->vision.has_value(), std::string(name) == "g5_image");
  }
  const auto g1 = config_from_json(data_file("golden/g1_dense_short/config.json"), "g1");
  EXPECT_EQ(g1->candidate_source_layer_id, -1);
  EXPECT_TRUE(g1->engram.layer_ids.empty());
  EXPECT_EQ(g1->draft.stages, 0);
  EXPECT_EQ(g1->encoder_layers(), 2);
}

TEST(Config, ReadsTheFlatNames) {
  Json text = Json::parse(data_file("config/v41_flash.json"))["text_config"];
  const std::pair<const char*, const char*> renamed[] = {
      {"hidden_size", "dim"},
      {"num_hidden_layers", "n_layers"},
      {"num_attention_heads", "n_heads"},
      {"qk_rope_head_dim", "rope_head_dim"},
      {"sliding_window", "window_size"},
      {"rms_norm_eps", "norm_eps"},
      {"moe_intermediate_size", "moe_inter_dim"},
      {"num_experts_per_tok", "n_activated_experts"},
      {"routed_scaling_factor", "route_scale"},
      {"num_nextn_predict_layers", "n_mtp_layers"},
      {"dspark_num_experts_per_tok", "dspark_n_activated_experts"},
      {"engram_pad_token_id", "engram_pad_id"}};
  for (const auto& [from, to] : renamed) {
    text[to] = text[from];
    text.erase(from);
  }
  text.erase("rope_scaling");
  text["rope_factor"] = 16;
  text["original_seq_len"] = 65536;
  const auto config = config_from_json(text.dump(), "flat");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->hidden_size, 5120);
  EXPECT_EQ(config->draft.experts_per_token, 3);
  EXPECT_EQ(config->yarn.factor, 16);
  EXPECT_FALSE(config->vision.has_value());
}

TEST(Config, ErrorsNameFieldExpectedAndFound) {
  const Json good = Json::parse(data_file("config/v41_flash.json"));
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Case cases[] = {
      {"/text_config/hidden_size", 5121, "c: hidden_size: expected a multiple of 32, found 5121"},
      {"/text_config/hidden_size", "5120", "c: hidden_size: expected an integer, found \"5120\""},
      {"/text_config/hidden_size", 5120.5, "c: hidden_size: expected an integer, found 5120.5"},
      {"/text_config/hidden_size", nullptr, "c: no field hidden_size"},
      {"/text_config/num_hidden_layers", 5000000000, "32-bit integer, found 5000000000"},
      {"/text_config/num_hidden_layers", -4, "compress_ratios: expected 0 or 3 entries, found 43"},
      {"/text_config/head_dim", 0, "head_dim: expected 1 to 1048576, found 0"},
      {"/text_config/qk_rope_head_dim", 63, "qk_rope_head_dim: expected an even number, found 63"},
      {"/text_config/qk_rope_head_dim", 130, "qk_rope_head_dim: expected 2 to 128, found 130"},
      {"/text_config/num_key_value_heads", 2, "num_key_value_heads: expected 1"},
      {"/text_config/o_groups", 7, "o_groups: expected a divisor of num_attention_heads (64), found 7"},
      {"/text_config/sliding_window", 0, "sliding_window: expected 1 to"},
      {"/text_config/rms_norm_eps", 0, "rms_norm_eps: expected"},
      {"/text_config/hc_mult", 9, "hc_mult: expected 1 to 8, found 9"},
      {"/text_config/compress_ratios/5", 3, "compress_ratios[5]: expected 0, 1 or 2, found 3"},
      {"/text_config/compress_ratios/5", 1,
       "compress_ratios[5]: expected 2, the ratio of its source layer 2, found 1"},
      {"/text_config/compress_ratios/41", 1, "compress_ratios[41]: expected 0 for a draft stage, found 1"},
      {"/text_config/compress_ratios/2", 0,
       "compress_ratios[2]: expected 1 or 2 for a source layer, found 0"},
      {"/text_config/compress_ratios/1", 2, "expected a source at or before layer 1, which has ratio 2"},
      {"/text_config/kv_source_layer_ids", {2, 14, 8, 20}, "expected ascending layers, found 8 after 14"},
      {"/text_config/kv_source_layer_ids/3", 40,
       "kv_source_layer_ids[3]: expected a layer from 0 to 39, found 40"},
      {"/text_config/index_source_layer_ids/0", 3,
       "index_source_layer_ids: expected every kv source, layer 2"},
      {"/text_config/candidate_source_layer_id", 24,
       "candidate_source_layer_id: expected -1 or a kv source, found 24"},
      {"/text_config/candidate_block_size", 0, "candidate_block_size: expected 1"},
      {"/text_config/num_experts_per_tok", 385, "num_experts_per_tok: expected 1 to 384, found 385"},
      {"/text_config/n_shared_experts", 2, "n_shared_experts: expected 1 to 1, found 2"},
      {"/text_config/scoring_func", "sigmoid", "scoring_func: expected sqrtsoftplus, found \"sigmoid\""},
      {"/text_config/topk_method", "greedy", "topk_method: expected noaux_tc"},
      {"/text_config/hidden_act", "gelu", "hidden_act: expected silu, found \"gelu\""},
      {"/text_config/attention_bias", true, "attention_bias: expected false, found true"},
      {"/text_config/tie_word_embeddings", true, "tie_word_embeddings: expected false, found true"},
      {"/text_config/rope_scaling/rope_type", "linear",
       "rope_scaling: rope_type: expected yarn, found \"linear\""},
      {"/text_config/rope_scaling/factor", 0.5, "rope_scaling.factor: expected 1"},
      {"/text_config/engram_num_embeddings", {384006168}, "engram_num_embeddings: expected 2 entries"},
      {"/text_config/engram_num_embeddings/0", 6168, "engram_num_embeddings: expected 384000024 to"},
      {"/text_config/engram_head_dim", 100, "engram_head_dim: expected a multiple of 32, found 100"},
      {"/text_config/engram_pad_token_id", 200000, "engram_pad_token_id: expected 0 to 129279, found 200000"},
      {"/text_config/dspark_target_layer_ids/2", 40, "dspark_target_layer_ids[2]: expected a layer"},
      {"/text_config/dspark_num_experts_per_tok", 0,
       "dspark_num_experts_per_tok: expected 1 to 128, found 0"},
      {"/vision_config/num_attention_heads", 7, "vision_config.hidden_size: expected a multiple of"},
      {"/image_token_id", 129280, "image_token_id: expected -1 to 129279, found 129280"},
      {"/model_type", "deepseek_v4", "model_type: expected deepseek_v41, found \"deepseek_v4\""},
      {"/text_config", 1, "text_config: expected an object"},
  };
  for (const Case& item : cases) {
    Json changed = good;
    changed[Json::json_pointer(item.pointer)] = item.value;
    const auto config = config_from_json(changed.dump(), "c");
    ASSERT_FALSE(config.ok()) << item.pointer << " " << item.value.dump();
    EXPECT_NE(config.error().message.find(item.message), std::string::npos) << config.error().message;
  }
  EXPECT_EQ(config_from_json("{", "c").error().message, "c: not a JSON object");
  EXPECT_EQ(config_from_json("[]", "c").error().message, "c: not a JSON object");
  const std::string deep = "{\"text_config\":" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  EXPECT_EQ(config_from_json(deep, "c").error().message, "c: nested deeper than 64 levels");
}

}  // namespace
}  // namespace fathom
