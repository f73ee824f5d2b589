#include "quantize/pack_quantize.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "format/test_files.h"
#include "model/model.h"
#include "ops/reference/backend.h"
#include "quantize/imatrix.h"
#include "quantize/pack_config.h"
#include "quantize/pack_rows.h"
#include "quantize/synth.h"
#include "quantize/synth_config.h"
#include "text/engram_map.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

// A random model of three small layers; made once.
class SmallPack : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    ModelConfig shape = *load_shape("mini");
    shape.vocab_size = 1024;
    shape.image_token_id = -1;
    shape.engram.compressed_vocab_size = 0;
    shape.draft.noise_token_id = 9;
    shape.routed_experts = 4;
    shape.draft.routed_experts = 2;
    write_bytes(output("shape.json"), config_to_json(shape, true));
    SynthOptions options{
        .shape = output("shape.json"), .layers = "0..1,4", .engram = "64", .seed = 5, .with_draft = true};
    options.to.output = input();
    const auto report = synthesize_pack(options);
    ASSERT_TRUE(report.ok()) << report.error().message;
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string input() { return folder_->file("official"); }
  static std::string output(const std::string& name) { return folder_->file(name); }

  static QuantizeOptions options(const std::string& recipe, const std::string& name,
                                 const std::string& dialect = "") {
    QuantizeOptions options{.input = input(), .recipe = recipe};
    options.to.output = output(name);
    options.to.dialect = dialect;
    options.to.threads = 2;
    return options;
  }
  static std::string quantize(const QuantizeOptions& options) {
    const auto report = quantize_pack(options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return options.to.output;
  }

 private:
  static inline TemporaryFolder* folder_ = nullptr;
};

std::vector<float> logits(const std::string& path) {
  auto pack = open_pack(path);
  EXPECT_TRUE(pack.ok()) << pack.error().message;
  ModelOptions options{.numerics = Numerics::kExact, .step_rows = 8};
  if (pack->engram_constants().token_map.empty()) {
    const auto tokenizer = Tokenizer::load(pack->tokenizer().path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    options.engram_token_map = build_engram_token_map(*tokenizer, pack->config().vocab_size).ids;
  }
  const int vocab_size = pack->config().vocab_size;
  reference::ReferenceBackend backend;
  auto model = Model::load(std::move(*pack), backend, std::move(options));
  EXPECT_TRUE(model.ok()) << model.error().message;
  auto state = (*model)->new_state(16);
  EXPECT_TRUE(state.ok());
  const std::vector<int32_t> tokens = {0, 1000, 17, 250, 300, 4};
  std::vector<float> values(static_cast<size_t>(vocab_size));
  const Segment segment{
      .state = state->get(), .tokens = tokens, .logits = LogitRows::kLast, .logits_out = values.data()};
  const auto ran = (*model)->run({&segment, 1});
  EXPECT_TRUE(ran.ok()) << ran.error().message;
  return values;
}

TEST_F(SmallPack, LosslessEncodingsGiveTheSameLogits) {
  const std::vector<float> expected = logits(input());
  EXPECT_EQ(logits(quantize(options("lossless", "lossless.gguf"))), expected);
  EXPECT_EQ(logits(quantize(options("lossless", "lossless-llama.gguf", "llama.cpp"))), expected);
  QuantizeOptions back = options("", "back");
  back.input = output("lossless.gguf");
  EXPECT_EQ(logits(quantize(back)), expected);
}

TEST_F(SmallPack, OfficialToOfficialIsACopy) {
  const std::string copy = quantize(options("", "copy"));
  for (const char* name : {"tensors.sha256", "tokenizer.json", "config.json"})
    EXPECT_EQ(read_bytes(copy + "/" + name), read_bytes(input() + "/" + name)) << name;
}

TEST_F(SmallPack, EveryRecipeGivesAPackThatRuns) {
  for (const std::string recipe : {"q2", "q4", "q8", "mxfp4"}) {
    for (const std::string dialect : {"ds4", "llama.cpp"}) {
      const std::string path = quantize(options(recipe, recipe + dialect + ".gguf", dialect));
      const std::vector<float> values = logits(path);
      EXPECT_NE(values.front(), 0) << path;
    }
  }
}

TEST_F(SmallPack, ShardsAreFoundAndHoldEverything) {
  QuantizeOptions split = options("q8", "split.gguf", "llama.cpp");
  split.to.shard_bytes = 4 << 20;
  quantize(split);
  QuantizeOptions whole = options("q8", "one.gguf", "llama.cpp");
  quantize(whole);
  std::string first;
  for (int count = 2; count < 40 && first.empty(); ++count) {
    const std::string name = output(fmt::format("split-00001-of-{:05}.gguf", count));
    if (file_exists(name)) first = name;
  }
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(logits(first), logits(whole.to.output));
}

TEST_F(SmallPack, AnInterruptedRunGoesOnToTheSameBytes) {
  const std::string whole = read_bytes(quantize(options("q8", "uninterrupted.gguf")));
  QuantizeOptions interrupted = options("q8", "interrupted.gguf");
  interrupted.to.journal_interval_bytes = 1;
  interrupted.to.threads = 1;
  for (const double part : {0.2, 0.6}) {
    interrupted.to.progress = [part](const Progress& now) {
      return static_cast<double>(now.done) < part * static_cast<double>(now.total);
    };
    const auto stopped = quantize_pack(interrupted);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
    EXPECT_FALSE(file_exists(interrupted.to.output));
  }
  interrupted.to.progress = {};
  const auto report = quantize_pack(interrupted);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_GT(report->resumed_bytes, whole.size() / 2);
  EXPECT_EQ(read_bytes(interrupted.to.output) == whole, true);
  EXPECT_EQ(read_bytes(interrupted.to.output + ".sha256"), read_bytes(output("uninterrupted.gguf.sha256")));
}

TEST_F(SmallPack, DraftStagesAreKeptWhenAskedFor) {
  QuantizeOptions with = options("q8", "draft.gguf");
  with.with_draft = true;
  quantize(with);
  const auto pack = open_pack(with.to.output);
  ASSERT_TRUE(pack.ok()) << pack.error().message;
  EXPECT_TRUE(pack->audit().has_draft);
  EXPECT_TRUE(pack->check_complete().ok());
  EXPECT_TRUE(pack->audit().unexpected.empty());
}

TEST_F(SmallPack, ImportanceOfAnotherModelIsRefused) {
  ImportanceMatrix importance;
  ASSERT_TRUE(importance
                  .add("layers.0.attn.wq_a.weight",
                       {.cols = 64, .mean_squares = std::vector<float>(64, 1), .rows = {1}})
                  .ok());
  ASSERT_TRUE(save_importance(importance, output("other.dat"), ImportanceFormat::kDat).ok());
  QuantizeOptions wrong = options("q2", "never.gguf");
  wrong.importance = output("other.dat");
  const auto report = quantize_pack(wrong);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kBadPack) << report.error().message;
  EXPECT_NE(report.error().message.find("attn"), std::string::npos) << report.error().message;
  EXPECT_FALSE(file_exists(output("never.gguf")));
  EXPECT_FALSE(file_exists(output("never.gguf.part")));
}

TEST_F(SmallPack, ImportanceChangesTheBytes) {
  ImportanceMatrix importance;
  std::vector<float> weights(512, 1);
  for (size_t column = 0; column < weights.size(); column += 3) weights[column] = 100;
  ASSERT_TRUE(
      importance
          .add("layers.0.ffn.shared_experts.w1.weight", {.cols = 512, .mean_squares = weights, .rows = {9}})
          .ok());
  ASSERT_TRUE(save_importance(importance, output("fits.gguf.imatrix"), ImportanceFormat::kGguf).ok());
  write_bytes(output("rule.txt"), "base q8\n*.shared_experts.w1.weight Q4_K\n");
  QuantizeOptions plain = options(output("rule.txt"), "plain.gguf"),
                  weighted = options(output("rule.txt"), "weighted.gguf");
  weighted.importance = output("fits.gguf.imatrix");
  const std::string a = read_bytes(quantize(plain) + ".sha256"),
                    b = read_bytes(quantize(weighted) + ".sha256");
  const auto line = [](const std::string& list, const std::string& name) {
    const size_t at = list.find("  blk." + name);
    return list.substr(at - 64, 64);
  };
  EXPECT_NE(line(a, "0.ffn_gate_shexp.weight"), line(b, "0.ffn_gate_shexp.weight"));
  EXPECT_EQ(line(a, "1.ffn_gate_shexp.weight"), line(b, "1.ffn_gate_shexp.weight"));
}

TEST(ConvertRows, TilesThatBecameRowsBecomeTilesAgain) {
  constexpr int64_t kRows = 64, kCols = 64;
  std::vector<std::byte> codes(kRows * kCols), scales(kRows * 2), tile_codes(kRows * kCols), tile_scales(4);
  for (size_t k = 0; k < codes.size(); ++k) codes[k] = static_cast<std::byte>(k * 37 % 0x7F);
  for (int64_t row = 0; row < kRows; ++row) {
    scales[2 * row] = static_cast<std::byte>(120 + row / 32);
    scales[2 * row + 1] = static_cast<std::byte>(90);
  }
  const WeightMatrix rows{.type = DType::kFp8Row32,
                          .rows = kRows,
                          .cols = kCols,
                          .data = codes.data(),
                          .row_bytes = kCols,
                          .scales = scales.data(),
                          .scale_row_bytes = 2};
  const PlannedUnit unit{.tensor = {.name = "x", .rows = kRows, .cols = kCols},
                         .encoding = DType::kFp8Tile32};
  ASSERT_TRUE(convert_rows(rows, unit, 0, kRows, {}, {tile_codes.data(), kCols, tile_scales.data(), 2}).ok());
  EXPECT_EQ(tile_codes, codes);
  EXPECT_EQ(tile_scales,
            (std::vector<std::byte>{std::byte{120}, std::byte{90}, std::byte{121}, std::byte{90}}));
}

}  // namespace
}  // namespace fathom
