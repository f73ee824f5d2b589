// Roles, sizes and rotary values of the released model, from its own configuration.
#include "model/layer_plan.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/rope_table.h"
#include "model/sequence_state.h"

namespace fathom {
namespace {

ModelConfig released_config() {
  const std::string path = std::string(FATHOM_SOURCE_DIR) + "/tests/data/config/v41_flash.json";
  const Result<std::string> text = read_text_file(path, 1 << 20);
  EXPECT_TRUE(text.ok());
  Result<ModelConfig> config = config_from_json(*text, path);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return std::move(config).value();
}

TEST(LayerPlan, ReleasedModel) {
  const std::vector<LayerPlan> plan = make_layer_plan(released_config());
  ASSERT_EQ(plan.size(), 40u);
  for (const LayerPlan& entry : plan) {
    const int layer = entry.layer;
    const bool full = layer == 2 || layer == 8 || layer == 14 || layer == 20;
    const bool reindex = layer == 24 || layer == 28 || layer == 32 || layer == 36;
    EXPECT_EQ(entry.kind, layer < 2 ? AttentionKind::kWindow
                          : full    ? AttentionKind::kFull
                          : reindex ? AttentionKind::kReindex
                                    : AttentionKind::kReuse)
        << layer;
    EXPECT_EQ(entry.ratio, layer < 2 ? 0 : layer < 20 ? 2 : 1) << layer;
    EXPECT_EQ(entry.in_decoder, layer >= 20) << layer;
    EXPECT_EQ(entry.kv_source, layer < 2 ? -1 : layer < 8 ? 2 : layer < 14 ? 8 : layer < 20 ? 14 : 20) << layer;
    EXPECT_EQ(entry.index_source, layer < 20 ? entry.kv_source : layer / 4 * 4) << layer;
    EXPECT_EQ(entry.builds_candidates, layer == 20) << layer;
    EXPECT_EQ(entry.uses_candidates, reindex) << layer;
    EXPECT_EQ(entry.engram_table, layer == 1 ? 0 : layer == 14 ? 1 : -1) << layer;
  }
}

TEST(StateShape, ReleasedModelTakes890BytesAToken) {
  const StateShape shape = make_state_shape(released_config(), Numerics::kOfficial, 0);
  EXPECT_EQ(shape.window_row_bytes, 528);
  EXPECT_EQ(shape.compressed_row_bytes, 288);
  EXPECT_EQ(shape.index_row_bytes, 68);
  EXPECT_EQ(shape.cache_bytes(131072), 890 * 131072);
  EXPECT_EQ(shape.tail_rows, 2541);
  // 40 rings of 128 rows, and three open groups of up to two tokens' values and gates.
  EXPECT_EQ(shape.ring_bytes(), 40 * 67584 + 4 * 2 * 2 * 512 * 4);
  EXPECT_EQ(make_state_shape(released_config(), Numerics::kExact, 0).cache_bytes(2), (2 * 3 / 2 + 2) * 640 * 4);
}

// Values that the published implementation computes, to the last bit of float32.
TEST(RopeTable, YarnOfTheReleasedModel) {
  const ModelConfig config = released_config();
  const std::vector<float> yarn = yarn_frequencies(config.compress_rope_theta, config.rope_dim, config.yarn);
  ASSERT_EQ(yarn.size(), 32u);
  EXPECT_EQ(yarn[0], 1.0f);
  EXPECT_EQ(yarn[1], 0.687656045f);
  EXPECT_EQ(yarn[16], 0.00226562493f);
  EXPECT_EQ(yarn[20], 2.96977785e-4f);
  EXPECT_EQ(yarn[24], 1.95312532e-5f);
  EXPECT_EQ(yarn[25], 5.37231244e-6f);
  EXPECT_EQ(yarn[31], 5.6805294e-7f);
  const std::vector<float> plain = rope_frequencies(config.rope_theta, config.rope_dim);
  EXPECT_EQ(plain[0], 1.0f);
  EXPECT_NEAR(plain[16], 0.01f, 1e-8f);
  EXPECT_NEAR(plain[31], 1.333521432e-4f, 1e-10f);
}

}  // namespace
}  // namespace fathom
