#include "measure/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace fathom::measure {
namespace {

Stage stage_of(int64_t context_tokens, double prefill_tokens_per_s, std::vector<int32_t> ids = {1, 2, 3}) {
  Stage stage{.name = fmt::format("{}K", context_tokens / 1024), .context_tokens = context_tokens,
              .prompt_tokens = context_tokens, .new_tokens = context_tokens, .status = StageStatus::kOk,
              .first_token_s = static_cast<double>(context_tokens) / prefill_tokens_per_s,
              .prefill_tokens_per_s = prefill_tokens_per_s, .output_tokens = 3, .first_gaps_ms = {0.5, 20},
              .gap_p50_ms = 25, .total_s = 100, .output_ids = std::move(ids)};
  stage.output_sha256 = fmt::format("{}", fmt::join(stage.output_ids, "-"));
  return stage;
}

/// A step that goes on from the one before it.
Stage step_of(int64_t context_tokens, double prefill_tokens_per_s, std::vector<int32_t> ids) {
  Stage stage = stage_of(context_tokens, prefill_tokens_per_s, std::move(ids));
  stage.new_tokens = 32768;
  return stage;
}

BenchResult result_of(std::string name, std::vector<double> prefill_tokens_per_s) {
  BenchResult result{.name = std::move(name), .kind = "protocol", .variant = Variant::kSession, .formula = "both",
                     .pack_name = "Q2", .pack_sha256 = "0123456789abcdef"};
  result.plan.sources = {{.name = "novel", .sha256 = "aa", .tokens = 400000}};
  result.plan.alone_tokens = {8192};
  result.environment.machine = "box";
  int32_t number = 0;
  for (const double speed : prefill_tokens_per_s)
    result.runs.push_back({.source = "novel", .number = ++number, .stages = {stage_of(8192, speed)}});
  result.plan.runs = number;
  return result;
}

const ComparisonRow* row_of(const std::vector<ComparisonRow>& rows, const std::string& stage,
                            const std::string& metric) {
  for (const ComparisonRow& row : rows)
    if (row.stage == stage && row.metric == metric) return &row;
  return nullptr;
}

TEST(ComparisonRows, HaveSamplesAndRatiosToTheFirst) {
  const std::vector<BenchResult> results = {result_of("a", {4, 5, 6}), result_of("b", {10, 11, 12})};
  const auto rows = comparison_rows(results);
  const ComparisonRow* row = row_of(rows, "8K", "prefill_tokens_per_s");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->source, "novel");
  EXPECT_EQ(row->context_tokens, 8192);
  ASSERT_EQ(row->cells.size(), 2u);
  EXPECT_EQ(row->cells[0]->sample.count, 3);
  EXPECT_DOUBLE_EQ(row->cells[0]->sample.mean, 5);
  EXPECT_FALSE(row->cells[0]->ratio.has_value());
  EXPECT_DOUBLE_EQ(row->cells[1]->ratio->value, 2.2);
  EXPECT_NEAR(row->cells[1]->ratio->low, 1.506671, 1e-6);
  EXPECT_NEAR(row->cells[1]->ratio->high, 3.651608, 1e-6);
  EXPECT_EQ(row_of(rows, "8K", "gap_p50_ms")->cells[1]->sample.deviation, 0);
  EXPECT_EQ(row_of(rows, "8K", "first_gap_2_ms")->cells[0]->sample.mean, 20);
  EXPECT_EQ(row_of(rows, "8K", "first_gap_3_ms"), nullptr);
  EXPECT_EQ(row_of(rows, "8K", "generation_f1_tokens_per_s"), nullptr);
}

TEST(ComparisonRows, LeaveOutExcludedRunsAndStagesThatFailed) {
  BenchResult result = result_of("a", {4, 5, 6, 7});
  result.runs[0].is_excluded = true;
  result.runs[1].stages[0].status = StageStatus::kFailed;
  const auto rows = comparison_rows(std::span(&result, 1));
  EXPECT_EQ(row_of(rows, "8K", "prefill_tokens_per_s")->cells[0]->values, (std::vector<double>{6, 7}));
}

TEST(ComparisonRows, PublishedFiguresHaveNoSpread) {
  BenchResult published{.name = "article", .kind = "published"};
  published.published = {
      {.source = "novel", .stage = "8K", .metric = "prefill_tokens_per_s", .value = 10},
      {.source = "novel", .stage = "128K", .metric = "first_token_s", .low = 61, .high = 64},
      {.stage = "8K", .metric = "generation_f1_tokens_per_s", .value = 39.2}};
  const std::vector<BenchResult> results = {result_of("a", {4, 5, 6}), published};
  const auto rows = comparison_rows(results);
  const Cell cell = *row_of(rows, "8K", "prefill_tokens_per_s")->cells[1];
  EXPECT_EQ(cell.published, 10);
  EXPECT_EQ(cell.sample.count, 0);
  EXPECT_DOUBLE_EQ(cell.ratio->value, 2);
  EXPECT_TRUE(std::isnan(cell.ratio->low));
  const ComparisonRow* range = row_of(rows, "128K", "first_token_s");
  EXPECT_EQ(range->context_tokens, 131072);
  EXPECT_FALSE(range->cells[0].has_value());
  EXPECT_EQ(range->cells[1]->published_high, 64);
  EXPECT_FALSE(range->cells[1]->ratio.has_value());
  // What is of no known source comes last and meets nothing else.
  EXPECT_EQ(rows.back().source, "");
  EXPECT_EQ(rows.back().metric, "generation_f1_tokens_per_s");
}

TEST(ComparisonRows, StagesAreInOrderOfContextAndSourcesOfAppearance) {
  BenchResult a = result_of("a", {4});
  a.runs[0].stages = {step_of(65536, 3, {1}), stage_of(2048, 9)};
  BenchResult b = result_of("b", {4});
  b.runs.push_back({.source = "code", .number = 1, .stages = {stage_of(8192, 5)}});
  std::vector<std::string> seen;
  for (const ComparisonRow& row : comparison_rows(std::vector{a, b}))
    if (row.metric == "prefill_tokens_per_s") seen.push_back(row.source + " " + row.stage);
  EXPECT_EQ(seen, (std::vector<std::string>{"novel 2K", "novel 8K", "novel 64K", "code 8K"}));
}

// The same length by itself and as a step is not the same work.
TEST(ComparisonRows, PromptsAloneAreNotMixedWithSteps) {
  BenchResult result = result_of("a", {4});
  result.plan.alone_tokens = {65536};
  result.plan.step_tokens = {32768, 65536};
  result.runs[0].stages = {stage_of(65536, 10), stage_of(32768, 20), step_of(65536, 30, {1})};
  const auto rows = comparison_rows(std::span(&result, 1));
  EXPECT_EQ(row_of(rows, "64K alone", "prefill_tokens_per_s")->cells[0]->values, std::vector<double>{10});
  EXPECT_EQ(row_of(rows, "64K", "prefill_tokens_per_s")->cells[0]->values, std::vector<double>{30});
  EXPECT_EQ(row_of(rows, "32K", "prefill_tokens_per_s")->cells[0]->values, std::vector<double>{20});
}

TEST(Agreements, CountPairsAndTellWhereTheyPart) {
  BenchResult a = result_of("a", {4, 5, 6});
  a.runs[2].stages[0].output_ids = {1, 9, 3};
  BenchResult b = result_of("b", {4});
  b.runs[0].stages[0].output_ids = {1, 2};
  const auto agreements = agreements_of(std::vector{a, b});
  ASSERT_EQ(agreements.size(), 2u);  // b alone has one run: no pair
  EXPECT_EQ(agreements[0].result, 0u);
  EXPECT_FALSE(agreements[0].is_with_first);
  EXPECT_EQ(agreements[0].pairs, 3);
  EXPECT_EQ(agreements[0].equal_pairs, 1);
  EXPECT_EQ(agreements[0].first_divergence, 1);
  EXPECT_TRUE(agreements[1].is_with_first);
  EXPECT_EQ(agreements[1].pairs, 3);
  EXPECT_EQ(agreements[1].equal_pairs, 0);
  EXPECT_EQ(agreements[1].first_divergence, 1);
}

TEST(Agreements, OfTextsAreByHashAndNeverWithIds) {
  BenchResult a = result_of("a", {4, 5});
  for (BenchResult* result : {&a}) for (auto& run : result->runs) run.stages[0].output_ids.clear();
  a.runs[1].stages[0].output_sha256 = "other";
  const BenchResult b = result_of("b", {4});
  const auto agreements = agreements_of(std::vector{a, b});
  ASSERT_EQ(agreements.size(), 1u);
  EXPECT_EQ(agreements[0].pairs, 1);
  EXPECT_EQ(agreements[0].equal_pairs, 0);
  EXPECT_FALSE(agreements[0].first_divergence.has_value());
}

TEST(Agreements, AfterADivergenceLaterPromptsDiffer) {
  BenchResult result = result_of("a", {4, 5});
  result.runs[0].stages = {stage_of(32768, 1, {1, 2}), step_of(65536, 1, {3})};
  result.runs[1].stages = {stage_of(32768, 1, {1, 7}), step_of(65536, 1, {3})};
  const auto agreements = agreements_of(std::span(&result, 1));
  ASSERT_EQ(agreements.size(), 2u);
  EXPECT_EQ(agreements[0].first_divergence, 1);
  EXPECT_EQ(agreements[1].pairs, 0);
  EXPECT_EQ(agreements[1].other_prompts, 1);
}

TEST(Agreements, OtherTextsAreNotCompared) {
  BenchResult b = result_of("b", {4});
  b.plan.sources[0].sha256 = "bb";
  EXPECT_TRUE(agreements_of(std::vector{result_of("a", {4}), b}).empty());
}

TEST(RunCounts, ExcludedDisturbedAndFailed) {
  BenchResult result = result_of("a", {1, 2, 3, 4, 5});
  result.plan.runs = 3;
  result.runs[0].is_disturbed = result.runs[0].is_excluded = true;
  result.runs[1].is_disturbed = true;
  result.runs[2].stages[0].status = StageStatus::kFailed;
  result.runs[3].error = "the server did not start";
  const auto counts = run_counts(std::span(&result, 1));
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts[0].planned, 3);
  EXPECT_EQ(counts[0].measured, 5);
  EXPECT_EQ(counts[0].excluded, 1);
  EXPECT_EQ(counts[0].disturbed, 1);
  EXPECT_EQ(counts[0].failed, 2);
}

std::vector<std::string> warnings_of(const std::vector<BenchResult>& results) {
  std::vector<std::string> texts;
  for (const Warning& warning : comparison_warnings(results)) texts.push_back(warning.text);
  return texts;
}

TEST(Warnings, OfEqualConditionsAreNone) {
  EXPECT_EQ(warnings_of({result_of("a", {1, 2}), result_of("b", {3, 4})}), std::vector<std::string>());
  EXPECT_EQ(warnings_of({result_of("a", {1, 2})}), std::vector<std::string>());
  EXPECT_EQ(warnings_of({}), std::vector<std::string>());
}

/// The warnings that one change of the second of two results brings.
std::vector<std::string> warnings_after(void (*change)(BenchResult&)) {
  std::vector<BenchResult> results = {result_of("a", {1, 2}), result_of("b", {3, 4})};
  change(results[1]);
  return warnings_of(results);
}

TEST(Warnings, SayWhatIsNotComparable) {
  const std::pair<void (*)(BenchResult&), const char*> changes[] = {
      {[](BenchResult& b) { b.variant = Variant::kHttpIdsReprocessed; },
       "Prompts reach the engines in different ways: A: inside of the engine's process, only what is new is "
       "evaluated; "
       "B: HTTP with ids, the generated part is evaluated again (256 tokens more in each step after the "
       "first). "
       "First-token times and prefill speeds of different ways are not comparable."},
      {[](BenchResult& b) { b.variant.reset(); },
       "Not known, so whether it is the same cannot be told: the way of the prompts of B."},
      {[](BenchResult& b) { b.pack_sha256 = "ffff456789abcdef"; },
       "The packs differ: A: Q2 (SHA-256 0123456789ab); B: Q2 (SHA-256 ffff456789ab). Other weights are other "
       "work "
       "and other answers."},
      {[](BenchResult& b) { b.pack_sha256.clear(); },
       "Not known, so whether it is the same cannot be told: the pack's checksum of B."},
      {[](BenchResult& b) { b.plan.sources[0].sha256 = "bb"; },
       "The texts called \"novel\" differ: A: aa; B: bb. Other texts choose other experts, and speculation "
       "succeeds "
       "more or less often."},
      {[](BenchResult& b) { b.plan.sources[0].sha256.clear(); },
       "Not known, so whether it is the same cannot be told: the source texts of B."},
      {[](BenchResult& b) { b.plan.alone_tokens = {2048}; },
       "The prompts by themselves differ: A: 8192; B: 2048."},
      {[](BenchResult& b) { b.plan.scale = "1/16"; },
       "The lengths are scaled: A: 1; B: 1/16. A short run says nothing of a long one."},
      {[](BenchResult& b) { b.plan.generated_tokens = 64; },
       "The generated tokens of a stage differ: A: 256; B: 64."},
      {[](BenchResult& b) { b.environment.machine = "other"; },
       "The machines differ: A: box; B: other. Ratios are of machine and engine together."},
      {[](BenchResult& b) { b.runs.pop_back(); }, "The number of runs a source differs: A: 2; B: 1."},
      {[](BenchResult& b) { b.runs[0].is_disturbed = true; }, "B: 1 run disturbed and nevertheless kept."},
      {[](BenchResult& b) { b.runs[0].error = "gone"; }, "B: 1 run not whole: a stage failed or was not run."},
  };
  for (const auto& [change, expected] : changes)
    EXPECT_EQ(warnings_after(change), std::vector<std::string>{expected});
}

TEST(Warnings, OfSourcesOfWhichOnlySomeAreShared) {
  const auto texts =
      warnings_after([](BenchResult& b) { b.plan.sources.push_back({.name = "code", .sha256 = "cc"}); });
  ASSERT_FALSE(texts.empty());
  EXPECT_EQ(texts[0], "The sources differ: A: novel; B: code, novel. Only those that both have are compared.");
}

TEST(Warnings, OfExcludedRuns) {
  std::vector<BenchResult> results = {result_of("a", {1, 2, 3})};
  results[0].runs[1].is_disturbed = results[0].runs[1].is_excluded = true;
  EXPECT_EQ(warnings_of(results),
            std::vector<std::string>{
                "A: 1 of 3 runs excluded, 1 as disturbed and 0 as not whole; they are in no mean."});
}

TEST(Warnings, OfPublishedFiguresAreOne) {
  std::vector<BenchResult> results = {result_of("a", {1, 2}), result_of("b", {}), result_of("c", {})};
  for (const size_t index : {1u, 2u}) {
    results[index].kind = "published";
    results[index].plan.runs = 2;
  }
  const auto warnings = comparison_warnings(results);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].text.starts_with("B, C: figures of a publication, not measured with this program;"));
  EXPECT_EQ(warnings[0].results, (std::vector<size_t>{1, 2}));
}

TEST(Warnings, OfFormulasOnlyWhereNoneIsShared) {
  std::vector<BenchResult> results = {result_of("a", {1, 2}), result_of("b", {1, 2}), result_of("c", {1, 2})};
  results[1].formula = "f1";
  EXPECT_EQ(warnings_of(results), std::vector<std::string>());
  results[2].formula = "f2";
  const auto warnings = comparison_warnings(results);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].text.find("Generation speed is computed by different formulas: B: F1 only"), 0u);
  EXPECT_EQ(warnings[0].results, (std::vector<size_t>{1, 2}));
}

TEST(Warnings, EqualBytesAreOnePackWhateverItsName) {
  EXPECT_EQ(warnings_after([](BenchResult& b) { b.pack_name = "copy of Q2"; }), std::vector<std::string>());
}

TEST(EnvironmentRows, FlagDifferencesAmongWhatIsKnown) {
  std::vector<BenchResult> results = {result_of("a", {}), result_of("b", {}), result_of("c", {})};
  results[0].environment.kernel = "6.1";
  results[2].environment.kernel = "6.2";
  results[1].environment.memory_bytes = int64_t{256} << 30;
  results[2].environment.more = {{"governor", "performance"}};
  std::vector<std::string> lines;
  for (const EnvironmentRow& row : environment_rows(results))
    lines.push_back(fmt::format("{}{}: {}", row.name, row.differs ? "!" : "", fmt::join(row.values, "|")));
  EXPECT_EQ(lines, (std::vector<std::string>{"machine: box|box|box", "memory: |256.0 GiB|", "kernel!: 6.1||6.2",
                                             "pack: Q2|Q2|Q2",
                                             "pack's SHA-256: 0123456789abcdef|0123456789abcdef|0123456789abcdef",
                                             "governor: ||performance"}));
}

TEST(ResultLetters, GoOnAfterZ) {
  EXPECT_EQ(result_letter(0), "A");
  EXPECT_EQ(result_letter(25), "Z");
  EXPECT_EQ(result_letter(26), "AA");
  EXPECT_EQ(result_letter(52), "BA");
}

}  // namespace
}  // namespace fathom::measure
