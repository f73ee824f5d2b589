#include "quantize/imatrix.h"

#include <gtest/gtest.h>

#include "format/gguf.h"
#include "format/test_files.h"
#include "model/test_packs.h"

namespace fathom {
namespace {

class Imatrix : public testing::Test {
 protected:
  void SetUp() override {
    auto pack = open_pack(golden_folder("g2_select"));
    ASSERT_TRUE(pack.ok()) << pack.error().message;
    config_ = pack->config();
  }
  int64_t dim() const { return config_.hidden_size; }
  int64_t experts() const { return config_.routed_experts; }

  // A matrix, and a bank whose second expert was never chosen.
  ImportanceMatrix sample() const {
    ImportanceMatrix importance;
    ImportanceEntry one{.experts = 0, .cols = dim(), .mean_squares = {}, .rows = {80}};
    for (int64_t col = 0; col < dim(); ++col) one.mean_squares.push_back(0.25f * static_cast<float>(col));
    ImportanceEntry bank{.experts = experts(), .cols = dim(), .mean_squares = {}, .rows = {}};
    for (int64_t expert = 0; expert < experts(); ++expert) {
      bank.rows.push_back(expert == 1 ? 0 : 16 * (expert + 1));
      for (int64_t col = 0; col < dim(); ++col)
        bank.mean_squares.push_back(expert == 1 ? 0.0f : static_cast<float>(expert + 2 + col % 8));
    }
    EXPECT_TRUE(importance.add("layers.1.attn.wq_a.weight", one).ok());
    EXPECT_TRUE(importance.add("layers.0.ffn.experts.w3.weight", bank).ok());
    importance.datasets = {"a story"};
    importance.chunk_count = 5;
    importance.chunk_tokens = 64;
    return importance;
  }
  std::string load_error(const std::string& path) const {
    const auto loaded = load_importance(path, config_);
    return loaded.ok() ? "ok" : loaded.error().message;
  }

  ModelConfig config_;
  TemporaryFolder folder_;
};

TEST_F(Imatrix, BothFormatsComeBack) {
  for (const ImportanceFormat format : {ImportanceFormat::kGguf, ImportanceFormat::kDat}) {
    SCOPED_TRACE(static_cast<int>(format));
    const ImportanceMatrix saved = sample();
    const std::string path = folder_.file("imatrix");
    ASSERT_TRUE(save_importance(saved, path, format).ok());
    const auto loaded = load_importance(path, config_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->datasets, saved.datasets);
    EXPECT_EQ(loaded->chunk_count, 5);
    ASSERT_EQ(loaded->entries().size(), 2u);
    for (const auto& [name, entry] : saved.entries()) {
      for (int64_t expert = 0; expert < std::max<int64_t>(entry.experts, 1); ++expert) {
        const auto wanted = saved.for_tensor(name, expert), found = loaded->for_tensor(name, expert);
        ASSERT_EQ(found.size(), wanted.size()) << name << " " << expert;
        for (size_t col = 0; col < wanted.size(); ++col) EXPECT_FLOAT_EQ(found[col], wanted[col]);
      }
    }
    if (format == ImportanceFormat::kGguf) {
      EXPECT_EQ(loaded->entries().at("layers.0.ffn.experts.w3.weight").rows[2], 48);
    }
  }
}

TEST_F(Imatrix, IsFoundUnderEveryName) {
  const ImportanceMatrix importance = sample();
  const std::string bank = "layers.0.ffn.experts.w3.weight";
  ASSERT_EQ(importance.for_tensor(bank, 2).size(), static_cast<size_t>(dim()));
  EXPECT_EQ(importance.for_tensor(bank, 2)[1], 5.0f);
  EXPECT_EQ(importance.for_tensor("layers.0.ffn.experts.2.w3.weight").data(),
            importance.for_tensor(bank, 2).data());
  EXPECT_EQ(importance.for_tensor("layers.1.attn.wq_a.weight")[3], 0.75f);
  EXPECT_TRUE(importance.for_tensor(bank, 1).empty());  // never chosen
  EXPECT_TRUE(importance.for_tensor(bank, experts()).empty());
  EXPECT_TRUE(importance.for_tensor(bank).empty());
  EXPECT_TRUE(importance.for_tensor("layers.2.attn.wq_a.weight").empty());
}

TEST_F(Imatrix, WritesTheNamesAndSumsOfOtherTools) {
  const std::string path = folder_.file("imatrix.gguf");
  ASSERT_TRUE(save_importance(sample(), path, ImportanceFormat::kGguf).ok());
  const auto file = open_gguf(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file->keys.string("general.type"), "imatrix");
  const TensorEntry* sums = file->store.find("blk.0.ffn_up_exps.weight.in_sum2");
  const TensorEntry* counts = file->store.find("blk.0.ffn_up_exps.weight.counts");
  ASSERT_TRUE(sums != nullptr && counts != nullptr);
  EXPECT_EQ(sums->shape, (std::vector<int64_t>{experts(), dim()}));
  EXPECT_EQ(counts->shape, (std::vector<int64_t>{experts(), 1}));
  float first;
  std::memcpy(&first, sums->data, sizeof first);
  EXPECT_EQ(first, 16 * 2.0f);
}

TEST_F(Imatrix, RefusesAnotherModels) {
  ImportanceMatrix other;
  ImportanceEntry entry{.experts = 0, .cols = dim() + 32, .mean_squares = {}, .rows = {1}};
  entry.mean_squares.assign(static_cast<size_t>(entry.cols), 1.5f);
  ASSERT_TRUE(other.add("layers.1.attn.wq_a.weight", entry).ok());
  const std::string path = folder_.file("other");
  for (const ImportanceFormat format : {ImportanceFormat::kGguf, ImportanceFormat::kDat}) {
    ASSERT_TRUE(save_importance(other, path, format).ok());
    const std::string message = load_error(path);
    EXPECT_NE(message.find("layers.1.attn.wq_a.weight"), std::string::npos) << message;
    EXPECT_NE(message.find(fmt::format("expected {} columns, found {}", dim(), dim() + 32)),
              std::string::npos)
        << message;
  }
  ImportanceMatrix stranger;
  ASSERT_TRUE(stranger.add("layers.77.attn.wq_a.weight", entry).ok());
  ASSERT_TRUE(save_importance(stranger, path, ImportanceFormat::kGguf).ok());
  EXPECT_NE(load_error(path).find("layers.77"), std::string::npos);
}

TEST_F(Imatrix, RefusesDamagedFiles) {
  const std::string path = folder_.file("imatrix");
  ASSERT_TRUE(save_importance(sample(), path, ImportanceFormat::kDat).ok());
  const std::string good = read_bytes(path);
  for (const size_t length : {size_t{0}, size_t{3}, size_t{30}, good.size() / 2, good.size() - 1}) {
    write_bytes(path, good.substr(0, length));
    EXPECT_NE(load_error(path).find("truncated"), std::string::npos) << length;
  }
  write_bytes(path, good + "x");
  EXPECT_NE(load_error(path).find("bytes follow"), std::string::npos);
  write_bytes(path, raw<int32_t>(0));
  EXPECT_NE(load_error(path).find("no importance"), std::string::npos);
  EXPECT_NE(load_error(folder_.file("missing")), "ok");
  ImportanceMatrix importance;
  EXPECT_FALSE(importance.add("a", {.experts = 0, .cols = 1, .mean_squares = {-1.0f}, .rows = {1}}).ok());
  EXPECT_FALSE(importance.add("a", {.experts = 0, .cols = 1, .mean_squares = {NAN}, .rows = {1}}).ok());
  EXPECT_FALSE(importance.add("a", {.experts = 2, .cols = 1, .mean_squares = {1.0f}, .rows = {1}}).ok());
}

}  // namespace
}  // namespace fathom
