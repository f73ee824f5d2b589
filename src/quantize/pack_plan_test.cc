#include "quantize/pack_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "format/test_files.h"
#include "quantize/pack_config.h"
#include "quantize/synth_config.h"

namespace fathom {
namespace {

// Published sizes of packs of the whole release: docs/formats/packs.md.
constexpr uint64_t kDs4HeaderBytes = 5832704;
constexpr uint64_t kDs4Q2Bytes = 365713686528;
constexpr uint64_t kDs4Q2FirstTable = 162955640832, kDs4Q2SecondTable = 264333279232;
constexpr uint64_t kDs4Mxfp4Bytes = 501609136128;
constexpr uint64_t kLlamaCppBytes = 507948391968;

PackPlan plan_of(const std::string& recipe, PackDialect dialect, const std::string& shape = "v41-flash") {
  const auto plan =
      plan_pack(*load_shape(shape), *Recipe::load(recipe), {.dialect = dialect, .with_vision_bias = true});
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return *plan;
}

uint64_t ds4_file_bytes(const std::string& recipe) {
  return kDs4HeaderBytes +
         plan_of(recipe, PackDialect::kDs4Gguf).data_bytes(alignment_of(PackDialect::kDs4Gguf));
}

std::map<DType, int> type_counts(const PackPlan& plan) {
  std::map<DType, int> counts;
  for (const StoredTensor& tensor : plan.stored) ++counts[tensor.type];
  return counts;
}

TEST(PackPlan, ShapesOfTheReleaseAreTheRelease) {
  const std::string text = read_bytes(std::string(FATHOM_SOURCE_DIR) + "/tests/data/config/v41_flash.json");
  auto release = config_from_json(text, "release");
  ASSERT_TRUE(release.ok());
  release->vision.reset();
  EXPECT_EQ(config_to_json(*load_shape("v41-flash"), false), config_to_json(*release, false));
  const std::string embedded = read_bytes(std::string(FATHOM_SOURCE_DIR) + "/models/mini/config.json");
  EXPECT_EQ(config_to_json(*load_shape("mini"), false),
            config_to_json(*config_from_json(embedded, "mini"), false));
}

TEST(PackPlan, ConfigsSurviveBeingWritten) {
  for (const char* name :
       {"config/v41_flash.json", "golden/g1_dense_short/config.json", "golden/g5_image/config.json"}) {
    const auto config =
        config_from_json(read_bytes(std::string(FATHOM_SOURCE_DIR) + "/tests/data/" + name), name);
    ASSERT_TRUE(config.ok());
    const std::string text = config_to_json(*config, true);
    const auto again = config_from_json(text, "again");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(config_to_json(*again, true), text) << name;
    EXPECT_EQ(again->rms_norm_eps, config->rms_norm_eps);
    EXPECT_EQ(again->vision.has_value(), config->vision.has_value());
  }
}

TEST(PackPlan, Ds4SizesAreThePublishedOnes) {
  EXPECT_EQ(ds4_file_bytes("q2"), kDs4Q2Bytes);
  EXPECT_EQ(ds4_file_bytes("mxfp4"), kDs4Mxfp4Bytes);
  EXPECT_NEAR(static_cast<double>(ds4_file_bytes("q4")) / (1 << 30), 482.98, 0.005);
}

TEST(PackPlan, Ds4TablesComeLastAtThePublishedPlaces) {
  const PackPlan plan = plan_of("q2", PackDialect::kDs4Gguf);
  ASSERT_EQ(plan.stored.size(), 1046u);
  EXPECT_EQ(plan.stored[0].name, "token_embd.weight");
  EXPECT_EQ(plan.stored[1].name, "output_norm.weight");
  EXPECT_EQ(plan.stored[2].name, "output.weight");
  uint64_t offset = kDs4HeaderBytes;
  std::map<std::string, uint64_t> offsets;
  for (const StoredTensor& tensor : plan.stored) {
    offsets[tensor.name] = offset;
    offset += (tensor.bytes + 16383) / 16384 * 16384;
  }
  EXPECT_EQ(offsets.at("blk.1.engram_embd.weight"), kDs4Q2FirstTable);
  EXPECT_EQ(offsets.at("blk.14.engram_embd.weight"), kDs4Q2SecondTable);
  const StoredTensor& table = plan.stored[plan.stored.size() - 2];
  EXPECT_EQ(table.type, DType::kI8);
  EXPECT_EQ(table.shape, (std::vector<int64_t>{384006168, 264}));
  EXPECT_TRUE(plan.notes.empty());
}

TEST(PackPlan, LlamaCppTypesAndSizeAreTheConverters) {
  const PackPlan plan = plan_of("mxfp4", PackDialect::kLlamaCppGguf);
  EXPECT_EQ(type_counts(plan),
            (std::map<DType, int>{
                {DType::kMXFP4, 120}, {DType::kQ8_0, 332}, {DType::kBF16, 65}, {DType::kF32, 529}}));
  EXPECT_EQ(plan.data_bytes(32), kLlamaCppBytes);
}

TEST(PackPlan, OfficialTensorsComeInPairs) {
  const PackPlan plan = plan_of("mxfp4", PackDialect::kOfficial, "mini");
  std::map<std::string, StoredTensor> tensors;
  for (const StoredTensor& tensor : plan.stored) tensors[tensor.name] = tensor;
  EXPECT_EQ(tensors.at("layers.2.ffn.experts.15.w2.weight").shape, (std::vector<int64_t>{512, 128}));
  EXPECT_EQ(tensors.at("layers.2.ffn.experts.15.w2.weight").type, DType::kI8);
  EXPECT_EQ(tensors.at("layers.2.ffn.experts.15.w2.scale").shape, (std::vector<int64_t>{512, 8}));
  EXPECT_EQ(tensors.at("layers.2.attn.wq_b.scale").shape, (std::vector<int64_t>{16, 4}));
  EXPECT_EQ(tensors.at("layers.1.engram.embed.scale").shape, (std::vector<int64_t>{192706, 1}));
  EXPECT_EQ(tensors.at("layers.1.engram.q_weight").shape, (std::vector<int64_t>{4, 512}));
  EXPECT_EQ(tensors.at("layers.1.hc_attn_base").shape, (std::vector<int64_t>{24}));
}

TEST(PackPlan, FallbacksAreNoted) {
  ModelConfig config = *load_shape("mini");
  config.moe_intermediate_size = 64;
  const auto plan = plan_pack(config, *Recipe::load("q2"), {.dialect = PackDialect::kDs4Gguf});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->notes.size(), 8u);  // w2 of each layer
  const auto strict = Recipe::parse("*experts.w2.weight Q2_K", "mine");
  const auto refused = plan_pack(config, *strict, {.dialect = PackDialect::kDs4Gguf});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("layers.0.ffn.shared_experts.w2.weight: rows of 64"),
            std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace fathom
