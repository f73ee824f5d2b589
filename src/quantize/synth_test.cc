#include "quantize/synth.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "format/test_files.h"
#include "quantize/encode.h"
#include "quantize/synth_config.h"
#include "quantize/synth_rows.h"
#include "quantize/synth_tokenizer.h"
#include "tensor/weight_check.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

ModelConfig chosen(const std::string& layers) {
  const ModelConfig whole = *load_shape("v41-flash");
  return select_layers(whole, *parse_layers(layers, whole.num_layers));
}

TEST(SynthConfig, ParsesLists) {
  EXPECT_EQ(*parse_layers("0..1,20..21,30", 40), (std::vector<int>{0, 1, 20, 21, 30}));
  for (const char* wrong : {"", "1..", "2..1", "3,3", "5,4", "40", "-1", "0,,1", "a", "0..1,"}) {
    const auto list = parse_layers(wrong, 40);
    ASSERT_FALSE(list.ok()) << wrong;
    EXPECT_NE(list.error().message.find("within 0..39"), std::string::npos);
  }
}

TEST(SynthConfig, SourcesMoveToTheFirstLayerThatReadsThem) {
  const ModelConfig c = chosen("0..1,20..21");
  EXPECT_EQ(c.compress_ratios, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(c.kv_source_layer_ids, (std::vector<int>{2}));
  EXPECT_EQ(c.index_source_layer_ids, (std::vector<int>{2}));
  EXPECT_EQ(c.candidate_source_layer_id, 2);
  EXPECT_EQ(c.encoder_layers(), 2);
  EXPECT_EQ(c.engram.layer_ids, (std::vector<int>{1}));

  // Layers 5 and 9 read what 2 and 8 made; 30 reads the rows of 20 and the selection of 28.
  const ModelConfig d = chosen("5,9,22,30,31");
  EXPECT_EQ(d.compress_ratios, (std::vector<int>{2, 2, 1, 1, 1}));
  EXPECT_EQ(d.kv_source_layer_ids, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(d.index_source_layer_ids, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(d.candidate_source_layer_id, 2);
  EXPECT_EQ(d.draft.target_layer_ids, (std::vector<int>{2, 3, 4}));
  EXPECT_TRUE(validate_config(d, "d").ok());
}

TEST(SynthConfig, AnySubsetIsValid) {
  const ModelConfig whole = *load_shape("v41-flash");
  for (int first = 0; first < 40; ++first) {
    for (int last = first; last < 40; last += 3) {
      ModelConfig c = select_layers(whole, *parse_layers(fmt::format("{}..{}", first, last), 40));
      const auto sized = size_engram(c, 1000);
      ASSERT_TRUE(sized.ok());
      const auto valid = validate_config(c, "subset");
      ASSERT_TRUE(valid.ok()) << first << ".." << last << ": " << valid.error().message;
      for (const int layer : c.engram.layer_ids) EXPECT_LE(layer, c.encoder_layers());
    }
  }
}

TEST(SynthTokenizer, IsOneOfTheReleasesSize) {
  ModelConfig config = *load_shape("v41-flash");
  const auto vocabulary = make_vocabulary(config);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->merges.size(), 127741u);  // as many as the release has
  EXPECT_GT(config.engram.compressed_vocab_size, 90000);
  const auto tokenizer = Tokenizer::from_json(vocabulary_to_json(*vocabulary), "made up");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 129280);
  EXPECT_EQ(tokenizer->named().user, 128803);
  EXPECT_EQ(tokenizer->named().think_open, 128821);
  EXPECT_EQ(tokenizer->named().image, 129264);
  const std::string text = "Once upon a time, 12 Ünïcödé\n\tthings";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode("once upon").size(), 6u);  // merges do something
  const auto again = vocabulary_from_json(vocabulary_to_json(*vocabulary), "made up", 129280);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->tokens, vocabulary->tokens);
  EXPECT_EQ(again->types, vocabulary->types);
  EXPECT_EQ(again->merges, vocabulary->merges);
}

struct Made {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  WeightMatrix matrix;
};

Made make(DType type, int64_t rows, int64_t cols, uint64_t seed, int64_t step) {
  PlannedUnit unit{.tensor = {.name = "layers.0.attn.wq_a.weight", .rows = rows, .cols = cols},
                   .encoding = type};
  RandomRows source(seed);
  Made made;
  made.values.resize(static_cast<size_t>(rows * unit.value_row_bytes()));
  made.scales.resize(static_cast<size_t>(rows * std::max<int64_t>(1, unit.scale_row_bytes())));
  const RowTarget out{made.values.data(), unit.value_row_bytes(),
                      unit.scale_row_bytes() > 0 ? made.scales.data() : nullptr, unit.scale_row_bytes()};
  EXPECT_TRUE(source.begin(unit, 0).ok());
  for (int64_t row = 0; row < rows; row += step)
    EXPECT_TRUE(source.fill(row, std::min(step, rows - row), out.from(row, unit.scale_rows())).ok());
  made.matrix = {.type = type,
                 .rows = rows,
                 .cols = cols,
                 .data = made.values.data(),
                 .row_bytes = unit.value_row_bytes(),
                 .scales = made.scales.data(),
                 .scale_row_bytes = unit.scale_row_bytes()};
  return made;
}

TEST(SynthRows, AreFiniteAndOfTheRightMagnitudeInEveryEncoding) {
  constexpr int64_t kRows = 64, kCols = 512;
  const double expected = 1 / std::sqrt(512.0);
  for (int value = 0; value <= static_cast<int>(DType::kFp4Row32); ++value) {
    const DType type = static_cast<DType>(value);
    const bool apart = type == DType::kFp8Tile32 || type == DType::kFp8Row32 || type == DType::kFp4Row32;
    if (!can_encode(type) && !apart) continue;
    const Made made = make(type, kRows, kCols, 7, kRows);
    EXPECT_FALSE(first_unusable_row(made.matrix).has_value()) << dtype_name(type);
    std::vector<float> values(kCols);
    double squares = 0, sum = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      decode_row(made.matrix, row, values.data());
      for (const float x : values) {
        squares += double{x} * x;
        sum += x;
      }
    }
    const double rms = std::sqrt(squares / (kRows * kCols));
    EXPECT_GT(rms, expected / 2.5) << dtype_name(type);
    EXPECT_LT(rms, expected * 2.5) << dtype_name(type);
    EXPECT_LT(std::abs(sum / (kRows * kCols)), rms / 5) << dtype_name(type);
    EXPECT_EQ(make(type, kRows, kCols, 7, 32).values, made.values) << dtype_name(type);
    EXPECT_NE(make(type, kRows, kCols, 8, kRows).values, made.values) << dtype_name(type);
  }
}

OutputReport synthesize(const SynthOptions& options) {
  const auto report = synthesize_pack(options);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? *report : OutputReport();
}

TEST(Synth, PacksOpenCompleteAndAreMarked) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> outputs[] = {
      {"official", "official"}, {"q2", "q2.gguf"}, {"mxfp4", "mxfp4.gguf"}};
  for (const auto& [format, name] : outputs) {
    SynthOptions options{.shape = "mini", .layers = "0..1,4..5", .format = format, .engram = "64"};
    options.to.output = folder.file(name);
    synthesize(options);
    const auto pack = open_pack(options.to.output);
    ASSERT_TRUE(pack.ok()) << pack.error().message;
    EXPECT_TRUE(pack->check_complete().ok());
    EXPECT_TRUE(pack->audit().unexpected.empty());
    EXPECT_TRUE(pack->config().synthetic);
    EXPECT_FALSE(pack->config().engram.sparse);
    EXPECT_EQ(pack->config().num_layers, 4);
  }
}

TEST(Synth, SparseTablesAreHolesAndSaySo) {
  const TemporaryFolder folder;
  for (const std::string dialect : {"official", "ds4", "llama.cpp"}) {
    SynthOptions options{.shape = "mini", .layers = "0..1,4", .format = "mxfp4", .engram = "sparse"};
    if (dialect == "official") options.format = dialect;
    options.to.dialect = dialect;
    options.to.output = folder.file(dialect == "official" ? dialect : dialect + ".gguf");
    const OutputReport report = synthesize(options);
    EXPECT_GT(report.hole_bytes, 6000000u);
    const auto pack = open_pack(options.to.output);
    ASSERT_TRUE(pack.ok()) << pack.error().message;
    EXPECT_TRUE(pack->config().engram.sparse) << dialect;
    EXPECT_TRUE(pack->engram_table(1)->is_sparse);
    EXPECT_LT(pack->files().back().allocated_bytes + report.hole_bytes / 2, pack->files().back().size_bytes);
  }
}

TEST(Synth, RefusesWhatItCannotMake) {
  const auto message = [](SynthOptions options, const std::string& output) {
    options.to.output = output;
    const auto report = synthesize_pack(options);
    return report.ok() ? std::string() : report.error().message;
  };
  EXPECT_EQ(message({.shape = "huge"}, "x"),
            "shape: expected v41-flash, mini or a config.json, found \"huge\"");
  EXPECT_EQ(message({.shape = "mini", .format = "q2"}, "x"), "x: the format q2 is stored in a .gguf file");
  EXPECT_EQ(message({.shape = "mini", .engram = "some"}, "x"),
            "engram: expected auto, full, sparse, none or rows a column, found \"some\"");
  EXPECT_EQ(message({.shape = "mini", .format = "official"}, "x.gguf"),
            "x.gguf: expected a folder for the dialect official");
}

}  // namespace
}  // namespace fathom
