// The official dialect, and what a pack refuses.
#include "model/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/safetensors.h"
#include "model/test_packs.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

class GoldenPack : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenPack, HoldsEverythingItsConfigAsksFor) {
  const auto pack = open_pack(golden_folder(GetParam()));
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_EQ(pack->dialect(), PackDialect::kOfficial);
  EXPECT_EQ(pack->tokenizer().path, golden_folder(GetParam()) + "/tokenizer.json");
  EXPECT_FALSE(pack->tokenizer().is_gguf);
  EXPECT_TRUE(pack->engram_constants().empty());
  const PackAudit audit = pack->audit();
  EXPECT_EQ(audit.missing, std::vector<std::string>());
  EXPECT_EQ(audit.unexpected, std::vector<std::string>());
  EXPECT_EQ(audit.has_vision, std::string(GetParam()) == "g5_image");
  const ModelConfig& config = pack->config();
  EXPECT_EQ(audit.has_draft, config.draft.stages > 0);

  std::vector<std::pair<std::string, int>> blocks;
  for (int i = 0; i < config.num_layers; ++i)
    blocks.emplace_back(fmt::format("layers.{}", i), config.routed_experts);
  for (int i = 0; i < config.draft.stages; ++i)
    blocks.emplace_back(fmt::format("mtp.{}", i), config.draft.routed_experts);
  for (const auto& [block, experts] : blocks) {
    for (const MatrixShape& shape : block_matrices(config, block, experts)) {
      const auto weight = pack->matrix(shape.name, shape.rows, shape.cols);
      ASSERT_TRUE(weight.ok()) << weight.error().message;
    }
    for (const MatrixShape& shape : block_vectors(config, block, experts)) vector_values(*pack, shape);
    for (const MatrixShape& shape : expert_shapes(config)) {
      const auto weight = pack->expert_matrix(block, experts - 1, shape.name, shape.rows, shape.cols);
      ASSERT_TRUE(weight.ok()) << weight.error().message;
      EXPECT_EQ(weight->type, DType::kFp4Row32);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenPack,
                         ::testing::Values("g1_dense_short", "g2_select", "g3_candidate_engram",
                                           "g4_k256_dspark", "g5_image", "g6_deep"));

TEST(OfficialPack, AttachesTileScales) {
  const auto pack = open_pack(golden_folder("g1_dense_short"));
  ASSERT_TRUE(pack.ok());
  const auto raw_files = open_safetensors(golden_folder("g1_dense_short"));
  ASSERT_TRUE(raw_files.ok());
  const auto weight = pack->matrix("layers.1.attn.wq_b.weight", 128, 64);
  ASSERT_TRUE(weight.ok()) << weight.error().message;
  EXPECT_EQ(weight->type, DType::kFp8Tile32);
  EXPECT_EQ(weight->scale_row_bytes, 2);
  const std::byte* codes = raw_files->find("layers.1.attn.wq_b.weight")->data;
  const std::byte* scales = raw_files->find("layers.1.attn.wq_b.scale")->data;
  const std::vector<float> values = decode(*weight);
  for (const auto& [row, col] : {std::pair{0, 0}, {31, 33}, {32, 31}, {127, 63}}) {
    const float expected = float_from_e4m3(static_cast<uint8_t>(codes[row * 64 + col])) *
                           float_from_e8m0(static_cast<uint8_t>(scales[row / 32 * 2 + col / 32]));
    EXPECT_EQ(values[static_cast<size_t>(row * 64 + col)], expected) << row << " " << col;
  }
}

TEST(OfficialPack, FindsEngramRowsAndFilesBehindAddresses) {
  const auto pack = open_pack(golden_folder("g3_candidate_engram"));
  ASSERT_TRUE(pack.ok());
  const auto table = pack->engram_table(2);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->type, DType::kFp8Row32);
  EXPECT_EQ(table->rows, 606);
  EXPECT_EQ(table->width, 32);
  EXPECT_EQ(table->scales.row_bytes, 1u);
  const std::vector<float> row = table_row(*table, 605);
  EXPECT_TRUE(std::any_of(row.begin(), row.end(), [](float value) { return value != 0; }));
  EXPECT_EQ(pack->engram_table(3).error().code, ErrorCode::kInvalidArgument);

  const auto weight = pack->matrix("norm.weight", 1, 128);
  ASSERT_TRUE(weight.ok());
  const auto place = pack->locate(weight->data);
  ASSERT_TRUE(place.has_value());
  const std::vector<PackTensor>& tensors = pack->tensors();
  const auto norm =
      std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.name == "norm.weight"; });
  EXPECT_EQ(place->offset_bytes, norm->offset_bytes);
  EXPECT_FALSE(pack->locate(nullptr).has_value());
}

TEST(OfficialPack, ErrorsNameTensorExpectedAndFound) {
  const auto pack = open_pack(golden_folder("g1_dense_short"));
  ASSERT_TRUE(pack.ok());
  const std::string where = golden_folder("g1_dense_short") + "/model.safetensors: ";
  EXPECT_EQ(pack->matrix("embed.weight", 320, 127).error().message,
            where + "tensor embed.weight: expected [320, 127], found BF16 [320, 128]");
  EXPECT_EQ(pack->matrix("layers.9.attn.wkv.weight", 1, 1).error().message,
            where + "no tensor layers.9.attn.wkv.weight");
  EXPECT_EQ(pack->vector("norm.weight", 127).error().message,
            where + "tensor norm.weight: expected 127 values, found BF16 [128]");
  EXPECT_EQ(pack->vector("layers.0.attn.wkv.weight", 4096).error().message,
            where + "tensor layers.0.attn.wkv.weight: expected a type of weights, found F8_E4M3 [32, 128]");
  EXPECT_EQ(pack->expert_matrix("layers.0", 4, "w1", 64, 128).error().message,
            "layers.0: expert 4, expected 0 to 3");
  EXPECT_NE(pack->expert_matrix("layers.0", 0, "w1", 64, 64)
                .error()
                .message.find("expected [64, 32], found I8 [64, 64]"),
            std::string::npos);
}

// A copy of g1_dense_short whose tensors may be changed before it is written.
class ChangedPack : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto files = open_safetensors(golden_folder("g1_dense_short"));
    ASSERT_TRUE(files.ok());
    for (const TensorEntry& tensor : files->tensors)
      tensors_.push_back({tensor.name, *tensor.type, tensor.shape,
                          std::string(reinterpret_cast<const char*>(tensor.data), tensor.size_bytes)});
    config_ = Json::parse(read_bytes(golden_folder("g1_dense_short") + "/config.json"));
  }
  PlannedTensor& tensor(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const PlannedTensor& t) { return t.name == name; });
  }
  Result<Pack> open(const PackOptions& options = {}) {
    write_bytes(folder_.file("config.json"), config_.dump());
    write_safetensors(folder_.file("model.safetensors"), tensors_);
    return open_pack(folder_.path(), options);
  }
  TemporaryFolder folder_;
  std::vector<PlannedTensor> tensors_;
  Json config_;
};

TEST_F(ChangedPack, NamesMissingAndUnexpectedTensors) {
  remove("layers.1.attn.compressor.wgate.weight");
  remove("layers.0.attn.wq_a.scale");
  remove("layers.3.ffn.experts.2.w2.weight");
  tensors_.push_back({"layers.0.extra.weight", DType::kF32, {1}, std::string(4, '\0')});
  const auto pack = open();
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  const PackAudit audit = pack->audit();
  EXPECT_EQ(audit.missing,
            (std::vector<std::string>{"layers.0.attn.wq_a.scale", "layers.1.attn.compressor.wgate.weight",
                                      "layers.3.ffn.experts.2.w2.weight"}));
  EXPECT_EQ(audit.unexpected, std::vector<std::string>{"layers.0.extra.weight"});
  EXPECT_EQ(pack->check_complete().error().message,
            folder_.file("model.safetensors") +
                ": 3 tensors are missing: layers.0.attn.wq_a.scale, layers.1.attn.compressor.wgate.weight, "
                "layers.3.ffn.experts.2.w2.weight");
  EXPECT_NE(pack->matrix("layers.0.attn.wq_a.weight", 64, 128)
                .error()
                .message.find("is F8_E4M3, which needs a tensor layers.0.attn.wq_a.scale"),
            std::string::npos);
}

TEST_F(ChangedPack, RefusesScalesOfAnotherShapeOrType) {
  tensor("layers.0.attn.wq_b.scale").shape = {2, 4};
  tensor("layers.0.attn.wkv.scale").type = DType::kI8;
  const auto pack = open();
  ASSERT_TRUE(pack.ok());
  EXPECT_NE(
      pack->matrix("layers.0.attn.wq_b.weight", 128, 64)
          .error()
          .message.find("tensor layers.0.attn.wq_b.scale: expected F8_E8M0 [4, 2], found F8_E8M0 [2, 4]"),
      std::string::npos);
  EXPECT_NE(pack->matrix("layers.0.attn.wkv.weight", 32, 128).error().message.find("found I8 [1, 4]"),
            std::string::npos);
}

TEST_F(ChangedPack, OpensShardsByTheirIndex) {
  const std::vector<PlannedTensor> first(tensors_.begin(), tensors_.begin() + 50);
  const std::vector<PlannedTensor> second(tensors_.begin() + 50, tensors_.end());
  write_safetensors(folder_.file("a.safetensors"), first);
  write_safetensors(folder_.file("b.safetensors"), second);
  Json map = Json::object();
  for (const PlannedTensor& item : first) map[item.name] = "a.safetensors";
  for (const PlannedTensor& item : second) map[item.name] = "b.safetensors";
  write_bytes(folder_.file("model.safetensors.index.json"), Json{{"weight_map", map}}.dump());
  write_bytes(folder_.file("config.json"), config_.dump());
  for (const std::string& path : {folder_.path(), folder_.file("model.safetensors.index.json")}) {
    const auto pack = open_pack(path);
    ASSERT_TRUE(pack.ok()) << pack.error().message;
    EXPECT_EQ(pack->files().size(), 2u);
    EXPECT_TRUE(pack->check_complete().ok());
  }
  write_bytes(folder_.file("b.safetensors"), read_bytes(folder_.file("b.safetensors")).substr(0, 400000));
  const auto pack = open_pack(folder_.path());
  ASSERT_FALSE(pack.ok());
  EXPECT_NE(pack.error().message.find("b.safetensors: truncated: tensor"), std::string::npos);
}

TEST_F(ChangedPack, LenientOpeningReportsTruncationAndGoesOn) {
  ASSERT_TRUE(open().ok());
  const std::string whole = read_bytes(folder_.file("model.safetensors"));
  write_bytes(folder_.file("model.safetensors"), whole.substr(0, whole.size() - 1));
  EXPECT_FALSE(open_pack(folder_.path()).ok());
  std::vector<std::string> problems;
  const auto pack = open_pack(folder_.path(), {.problems = &problems, .engram_path = {}});
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("truncated: tensor"), std::string::npos);
  const MatrixShape last{tensors_.back().name, 1, 1};
  EXPECT_NE(pack->vector(last.name, 1).error().message.find("its bytes are not in the file"),
            std::string::npos);
}

TEST_F(ChangedPack, SparseFilesShowInTheFileList) {
  ASSERT_TRUE(open().ok());
  std::filesystem::resize_file(folder_.file("model.safetensors"), uint64_t{1} << 32);
  const auto pack = open_pack(folder_.path());
  ASSERT_TRUE(pack.ok());
  EXPECT_EQ(pack->files()[0].size_bytes, uint64_t{1} << 32);
  EXPECT_LT(pack->files()[0].allocated_bytes, uint64_t{1} << 24);
}

TEST_F(ChangedPack, RefusesWhatItDoesNotRead) {
  const auto fault = [&](const char* field, const Json& value) {
    const Json before = config_;
    config_[Json::json_pointer(field)] = value;
    const auto pack = open();
    config_ = before;
    return pack.ok() ? std::string() : pack.error().message;
  };
  EXPECT_NE(fault("/expert_quant", Json::object()).find("trellis-coded experts"), std::string::npos);
  EXPECT_NE(fault("/quantization_config/quant_method", "exl3")
                .find("quant_method: expected \"fp8\", found \"exl3\""),
            std::string::npos);
  EXPECT_NE(
      fault("/quantization_config/weight_block_size", {128, 128}).find("expected [32,32], found [128,128]"),
      std::string::npos);
  tensors_.push_back({"layers.0.attn.wq_a.trellis", DType::kU16, {1}, "ab"});
  EXPECT_NE(open().error().message.find("trellis-coded weights"), std::string::npos);
  tensors_.pop_back();
  write_bytes(folder_.file("conversion.inprogress.json"), "{}");
  EXPECT_NE(open().error().message.find("the conversion did not finish"), std::string::npos);
  EXPECT_NE(open_pack(folder_.file("config.json")).error().message.find("expected a folder"),
            std::string::npos);
  EXPECT_EQ(open_pack(folder_.file("nothing")).error().code, ErrorCode::kNotFound);
}

TEST_F(ChangedPack, FlippedBitsOfTheHeaderNeverCrash) {
  ASSERT_TRUE(open().ok());
  const std::string whole = read_bytes(folder_.file("model.safetensors"));
  for (size_t at = 0; at < 2000; at += 31) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    write_bytes(folder_.file("model.safetensors"), flipped);
    const auto pack = open_pack(folder_.path());
    if (!pack.ok()) continue;
    (void)pack->check_complete();
    for (const MatrixShape& shape : block_matrices(pack->config(), "layers.0", 4)) {
      if (const auto weight = pack->matrix(shape.name, shape.rows, shape.cols); weight.ok()) decode(*weight);
    }
  }
}

TEST(PackTables, MayComeFromAnotherCopy) {
  TemporaryFolder folder;
  const std::string original = golden_folder("g3_candidate_engram");
  const auto files = open_safetensors(original);
  ASSERT_TRUE(files.ok());
  std::vector<PlannedTensor> tensors;
  for (const TensorEntry& tensor : files->tensors) {
    if (tensor.name.find("engram.embed") == std::string::npos)
      tensors.push_back({tensor.name, *tensor.type, tensor.shape,
                         std::string(reinterpret_cast<const char*>(tensor.data), tensor.size_bytes)});
  }
  write_safetensors(folder.file("model.safetensors"), tensors);
  write_bytes(folder.file("config.json"), read_bytes(original + "/config.json"));
  const auto alone = open_pack(folder.path());
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->audit().missing,
            (std::vector<std::string>{"layers.1.engram.embed.weight", "layers.2.engram.embed.weight"}));
  const auto pack = open_pack(folder.path(), {.problems = nullptr, .engram_path = original});
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_TRUE(pack->check_complete().ok());
  const auto table = pack->engram_table(1);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->data.path, original + "/model.safetensors");
  EXPECT_FALSE(open_pack(folder.path(), {.problems = nullptr, .engram_path = golden_folder("g6_deep")}).ok());
}

}  // namespace
}  // namespace fathom
