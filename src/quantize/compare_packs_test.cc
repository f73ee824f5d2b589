#include "quantize/compare_packs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "format/safetensors.h"
#include "model/test_packs.h"

namespace fathom {
namespace {

Pack open(const std::string& folder) {
  auto pack = open_pack(folder);
  FATHOM_CHECK(pack.ok(), "{}", pack.error().message);
  return std::move(*pack);
}

PackComparison compare(const Pack& a, const Pack& b, const CompareOptions& options = {}) {
  auto comparison = compare_packs(a, b, options);
  FATHOM_CHECK(comparison.ok(), "{}", comparison.error().message);
  return std::move(*comparison);
}

const TensorComparison& find(const PackComparison& comparison, const std::string& name) {
  for (const TensorComparison& tensor : comparison.tensors)
    if (tensor.name == name) return tensor;
  ADD_FAILURE() << name << " is missing";
  return comparison.tensors.front();
}

// A copy of a golden model in which one byte of a tensor is another.
class ChangedPack {
 public:
  ChangedPack(const std::string& model, const std::string& tensor, uint64_t place, uint8_t flip) {
    std::filesystem::copy(golden_folder(model), folder_.path(), std::filesystem::copy_options::recursive);
    const Pack pack = open(golden_folder(model));
    for (const PackTensor& entry : pack.tensors()) {
      if (entry.name != tensor) continue;
      std::fstream file(folder_.file("model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(entry.offset_bytes + place));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(entry.offset_bytes + place));
      file.put(static_cast<char>(byte ^ flip));
      return;
    }
    ADD_FAILURE() << tensor << " is missing";
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST(ComparePacks, FindsNoDifferenceInTheSame) {
  const Pack pack = open(golden_folder("g4_k256_dspark"));
  const PackComparison comparison = compare(pack, pack);
  EXPECT_TRUE(comparison.only_a.empty());
  EXPECT_TRUE(comparison.only_b.empty());
  for (const TensorComparison& tensor : comparison.tensors) {
    EXPECT_EQ(tensor.problem, "");
    EXPECT_EQ(tensor.error.relative_rms, 0) << tensor.name;
    EXPECT_EQ(tensor.error.cosine, 1) << tensor.name;
    EXPECT_GT(tensor.bytes_a, 0) << tensor.name;
    EXPECT_EQ(tensor.bytes_a, tensor.bytes_b);
    EXPECT_GT(tensor.error.values, 0);
  }
  EXPECT_GT(find(comparison, "mtp.0.ffn.experts.w1.weight").experts, 0);
}

TEST(ComparePacks, FindsAPlantedChangeInAnExpert) {
  // The sign of the low nibble of an FP4 byte.
  const ChangedPack changed("g2_select", "layers.3.ffn.experts.2.w2.weight", 5, 8);
  const Pack a = open(golden_folder("g2_select")), b = open(changed.path());
  const int64_t inter = a.config().moe_intermediate_size, dim = a.config().hidden_size;
  for (const int threads : {1, 3}) {
    const PackComparison comparison = compare(a, b, {.thread_count = threads});
    double squares = 0, difference = 0, bank = 0;
    for (int64_t expert = 0; expert < a.config().routed_experts; ++expert) {
      const auto values = expert_values(a, "layers.3", expert, {"w2", dim, inter});
      for (const float value : values) bank += static_cast<double>(value) * value;
      if (expert != 2) continue;
      for (const float value : values) squares += static_cast<double>(value) * value;
      difference = 2 * std::fabs(static_cast<double>(values[10]));
    }
    ASSERT_GT(difference, 0);
    for (const TensorComparison& tensor : comparison.tensors) {
      if (tensor.name != "layers.3.ffn.experts.w2.weight") {
        EXPECT_EQ(tensor.error.relative_rms, 0) << tensor.name;
        continue;
      }
      EXPECT_EQ(tensor.worst_expert, 2);
      EXPECT_DOUBLE_EQ(tensor.worst_error.largest, difference);
      EXPECT_NEAR(tensor.worst_error.relative_rms, difference / std::sqrt(squares), 1e-12);
      EXPECT_NEAR(tensor.error.relative_rms, difference / std::sqrt(bank), 1e-12);
      EXPECT_NEAR(tensor.worst_error.cosine, 1 - difference * difference / 2 / squares, 1e-9);
      EXPECT_EQ(tensor.error.values, a.config().routed_experts * dim * inter);
    }
    const std::string text = comparison_text(comparison);
    EXPECT_NE(text.find("worst: expert 2"), std::string::npos);
    const auto json = nlohmann::json::parse(comparison_json(comparison));
    EXPECT_EQ(json["tensors"].size(), comparison.tensors.size());
  }
}

TEST(ComparePacks, FindsAPlantedChangeInATable) {
  const ChangedPack changed("g3_candidate_engram", "layers.1.engram.embed.weight", 3, 128);
  const Pack a = open(golden_folder("g3_candidate_engram")), b = open(changed.path());
  ASSERT_FALSE(a.config().engram.layer_ids.empty());
  const PackComparison comparison = compare(a, b, {.filter = "*.engram.*"});
  for (const TensorComparison& tensor : comparison.tensors) {
    EXPECT_NE(tensor.name.find(".engram."), std::string::npos);
    EXPECT_EQ(tensor.error.relative_rms > 0, tensor.name == "layers.1.engram.embed.weight") << tensor.name;
  }
}

TEST(ComparePacks, SaysWhatOnlyOneHas) {
  const Pack a = open(golden_folder("g2_select")), b = open(golden_folder("g4_k256_dspark"));
  const PackComparison comparison = compare(a, b);
  EXPECT_NE(std::find(comparison.only_b.begin(), comparison.only_b.end(), "mtp.0.main_proj.weight"),
            comparison.only_b.end());
  // Tensors of different shapes are listed with the reason.
  EXPECT_TRUE(std::any_of(comparison.tensors.begin(), comparison.tensors.end(),
                          [](const TensorComparison& tensor) { return !tensor.problem.empty(); }));
}

TEST(ComparePacks, RefusesAFilterThatMatchesNothing) {
  const Pack pack = open(golden_folder("g2_select"));
  EXPECT_FALSE(compare_packs(pack, pack, {.filter = "*.colour"}).ok());
  EXPECT_FALSE(compare_packs(pack, pack, {.progress = [](const Progress&) { return false; }}).ok());
  const PackComparison one = compare(pack, pack, {.filter = "layers.?.attn.wq_a.weight"});
  EXPECT_EQ(static_cast<int>(one.tensors.size()), pack.config().num_layers);
}

}  // namespace
}  // namespace fathom
