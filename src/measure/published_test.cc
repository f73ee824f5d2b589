#include "measure/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure/compare.h"
#include "measure/result.h"

namespace fathom::measure {
namespace {

BenchResult published(std::string_view name) {
  for (const PublishedFile& file : published_results()) {
    if (file.name != name) continue;
    auto result = parse_result(file.bytes, std::string(name));
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? std::move(result).value() : BenchResult{};
  }
  ADD_FAILURE() << "no file " << name;
  return {};
}

const PublishedFigure* figure_of(const BenchResult& result, std::string_view source, std::string_view stage,
                                 std::string_view metric) {
  for (const PublishedFigure& figure : result.published)
    if (figure.source == source && figure.stage == stage && figure.metric == metric) return &figure;
  return nullptr;
}

/// Whether all that `part` has is in `whole`.
bool is_part_of(const nlohmann::json& part, const nlohmann::json& whole) {
  if (!part.is_object() && !part.is_array()) return part == whole;
  if (part.is_array() && part.size() != whole.size()) return false;
  for (const auto& item : part.items()) {
    if (part.is_object() && !whole.contains(item.key())) return false;
    const nlohmann::json& other = part.is_object() ? whole[item.key()] : whole[std::stoul(item.key())];
    if (!is_part_of(item.value(), other)) return false;
  }
  return true;
}

// A member that is misspelled would be passed over in silence.
TEST(Published, AllFilesAreReadWhole) {
  EXPECT_EQ(published_results().size(), 13u);
  EXPECT_TRUE(std::is_sorted(published_results().begin(), published_results().end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const PublishedFile& file : published_results()) {
    const auto result = parse_result(file.bytes, std::string(file.name));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_TRUE(is_part_of(nlohmann::json::parse(file.bytes), to_json(*result))) << file.name;
    EXPECT_EQ(result->kind, "published") << file.name;
    EXPECT_FALSE(result->origin.empty()) << file.name;
    EXPECT_FALSE(result->name.empty()) << file.name;
    EXPECT_FALSE(result->published.empty()) << file.name;
    EXPECT_TRUE(result->variant.has_value()) << file.name;
    EXPECT_TRUE(result->runs.empty()) << file.name;
  }
}

TEST(Published, EveryFigureSaysSomethingOnceAndItsFormulaIsTheResults) {
  for (const PublishedFile& file : published_results()) {
    const BenchResult result = published(file.name);
    for (const PublishedFigure& figure : result.published) {
      EXPECT_NE(figure.value.has_value(), figure.low.has_value()) << file.name << " " << figure.metric;
      EXPECT_EQ(figure.low.has_value(), figure.high.has_value()) << file.name << " " << figure.metric;
      EXPECT_LT(figure.low.value_or(0), figure.high.value_or(1)) << file.name << " " << figure.metric;
      EXPECT_EQ(figure_of(result, figure.source, figure.stage, figure.metric), &figure) << file.name;
      const bool is_generation = figure.metric.starts_with("generation");
      EXPECT_EQ(is_generation, figure.metric.starts_with("generation_" + result.formula)) << file.name;
    }
  }
}

TEST(Published, FiguresAreTheArticles) {
  const BenchResult ds4 = published("m5-ultra-ds4-q2.json");
  EXPECT_EQ(figure_of(ds4, "novel", "32K", "prefill_tokens_per_s")->value, 1560);
  EXPECT_EQ(figure_of(ds4, "code", "128K", "prefill_tokens_per_s")->value, 1591);
  EXPECT_EQ(figure_of(ds4, "novel", "128K", "generation_f1_tokens_per_s")->value, 37.03);
  EXPECT_EQ(ds4.variant, Variant::kSession);
  const BenchResult mlx = published("m5-ultra-mlx-serve-iq3.json");
  EXPECT_EQ(figure_of(mlx, "novel", "128K", "prefill_tokens_per_s")->value, 2937);
  EXPECT_EQ(figure_of(mlx, "code", "128K", "prefill_tokens_per_s")->value, 3098);
  EXPECT_EQ(figure_of(mlx, "", "32K", "prefill_tokens_per_s")->high, 4006);
  EXPECT_EQ(mlx.variant, Variant::kHttpIdsReprocessed);
  const BenchResult llama = published("m5-ultra-llama.cpp-ud-iq3_xxs.json");
  EXPECT_EQ(figure_of(llama, "", "128K", "first_token_s")->low, 63);
  EXPECT_EQ(llama.variant, Variant::kHttpIdsExact);
  EXPECT_EQ(published("m4-max-ds4-q2-streamed.json").formula, "f2");
}

// The article's own figures agree with each other, so they were copied right.
TEST(Published, FirstTokenTimesAndSpeedsAgree) {
  const BenchResult ds4 = published("m5-ultra-ds4-q2.json");
  const double first_token_s = *figure_of(ds4, "novel", "128K", "first_token_s")->value;
  const double rate = *figure_of(ds4, "novel", "128K", "generation_f1_tokens_per_s")->value;
  EXPECT_NEAR(32769 / first_token_s, *figure_of(ds4, "novel", "128K", "prefill_tokens_per_s")->value, 0.5);
  EXPECT_NEAR(first_token_s + 256 / rate, *figure_of(ds4, "novel", "128K", "total_s")->value, 0.05);
  const BenchResult omlx = published("m5-ultra-omlx-oq2e.json");
  EXPECT_NEAR(33025 / *figure_of(omlx, "novel", "128K", "prefill_tokens_per_s")->value,
              *figure_of(omlx, "", "128K", "first_token_s")->high, 0.5);
}

TEST(Published, MachinesOfTwoFormulasAreWarnedOf) {
  const std::vector<BenchResult> results = {published("m5-ultra-ds4-q2.json"),
                                            published("m4-max-ds4-q2-streamed.json")};
  const auto warnings = comparison_warnings(results);
  const auto begins = [&](std::string_view text) {
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const Warning& warning) { return warning.text.starts_with(text); });
  };
  EXPECT_TRUE(begins("Generation speed is computed by different formulas: A: F1"));
  EXPECT_TRUE(begins("The machines differ: A: M5 Ultra, 256 GB; B: M4 Max, 128 GB."));
  EXPECT_FALSE(begins("Prompts reach"));
}

}  // namespace
}  // namespace fathom::measure
