#include "measure/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fathom::measure {
namespace {

constexpr std::string_view kPage =
    "<!doctype html><script type=\"application/json\">FATHOM_REPORT_DATA</script><p>end";

BenchResult result_of(std::string name, std::vector<double> speeds) {
  BenchResult result{.name = std::move(name), .kind = "protocol", .variant = Variant::kSession};
  result.plan.sources = {{.name = "novel"}};
  int32_t number = 0;
  for (const double speed : speeds) {
    Stage stage{.name = "8K", .context_tokens = 8192, .new_tokens = 8192, .status = StageStatus::kOk,
                .prefill_tokens_per_s = speed, .output_sha256 = "ab"};
    result.runs.push_back({.source = "novel", .number = ++number, .stages = {stage}});
  }
  return result;
}

std::string between_scripts(const std::string& page) {
  const std::string begin = "application/json\">";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

nlohmann::json data_of(const std::vector<BenchResult>& results) {
  const auto page = render_report_with(kPage, results);
  EXPECT_TRUE(page.ok()) << page.error().message;
  return nlohmann::json::parse(between_scripts(*page));
}

TEST(Report, HoldsTheComparison) {
  BenchResult first = result_of("one", {4, 5, 6});
  first.runs[0].is_disturbed = true;
  first.runs[0].disturbances = {"8K: swap grew by 3 MB"};
  const auto data = data_of({first, result_of("two", {10, 11, 12})});
  EXPECT_EQ(data["results"][1]["letter"], "B");
  EXPECT_EQ(data["results"][1]["name"], "two");
  const auto& row = data["rows"][0];
  EXPECT_EQ(row["metric"], "prefill_tokens_per_s");
  EXPECT_EQ(row["context"], 8192);
  EXPECT_EQ(row["cells"][0]["mean"], 5.0);
  EXPECT_EQ(row["cells"][0]["n"], 3);
  EXPECT_FALSE(row["cells"][0].contains("ratio"));
  EXPECT_DOUBLE_EQ(row["cells"][1]["ratio"], 2.2);
  EXPECT_NEAR(row["cells"][1]["ratioLow"], 1.506671, 1e-6);
  EXPECT_EQ(data["agreements"][0]["pairs"], 3);
  EXPECT_EQ(data["runs"][0]["disturbed"], 1);
  EXPECT_EQ(data["notes"].size(), 1u);
  EXPECT_EQ(data["notes"][0]["reasons"][0], "8K: swap grew by 3 MB");
  EXPECT_EQ(data["metrics"][0]["unit"], "tokens/s");
  EXPECT_NE(data["warnings"].back()["text"].get<std::string>().find("whether it is the same"), std::string::npos);
}

TEST(Report, WhatIsUnknownIsAbsent) {
  const auto data = data_of({result_of("one", {4})});
  const auto& cell = data["rows"][0]["cells"][0];
  EXPECT_EQ(cell["mean"], 4.0);
  for (const char* name : {"deviation", "low", "high", "variation"}) EXPECT_FALSE(cell.contains(name)) << name;
  EXPECT_FALSE(data["results"][0].contains("machine"));
}

// Names come from servers and files of strangers.
TEST(Report, NoTextCanLeaveItsElement) {
  const std::string hostile = "</script><script>alert(1)</script><!-- \u2028\u2029 & FATHOM_REPORT_DATA \xff";
  BenchResult result = result_of(hostile, {4});
  result.environment.more = {{hostile, hostile}};
  result.runs[0].stages[0].name = hostile;
  const auto page = render_report_with(kPage, std::span(&result, 1));
  ASSERT_TRUE(page.ok());
  const std::string inner = between_scripts(*page);
  EXPECT_EQ(page->size(), kPage.size() - std::string_view("FATHOM_REPORT_DATA").size() + inner.size());
  EXPECT_EQ(inner.find_first_of("<>&"), std::string::npos);
  EXPECT_TRUE(std::all_of(inner.begin(), inner.end(), [](char c) { return c >= ' ' && c < 127; }));
  EXPECT_EQ(nlohmann::json::parse(inner)["results"][0]["name"],
            "</script><script>alert(1)</script><!-- \u2028\u2029 & FATHOM_REPORT_DATA \uFFFD");
}

TEST(Report, NeedsResultsAndAPageWithOnePlace) {
  const std::vector<BenchResult> results = {result_of("one", {4})};
  EXPECT_FALSE(render_report_with(kPage, {}).ok());
  EXPECT_EQ(render_report_with("<p>", results).error().message,
            "report: expected FATHOM_REPORT_DATA once in the page, found it nowhere");
  EXPECT_FALSE(render_report_with("FATHOM_REPORT_DATA FATHOM_REPORT_DATA", results).ok());
}

// One file, and nothing in it names another.
TEST(Report, ThePageIsWholeOrSaidToBeMissing) {
  const std::vector<BenchResult> results = {result_of("one", {4, 5}), result_of("two", {6, 7})};
  const auto page = render_report(results);
  if (!page.ok()) {
    EXPECT_NE(page.error().message.find("built without its pages"), std::string::npos) << page.error().message;
    GTEST_SKIP() << "the page was not built";
  }
  EXPECT_TRUE(page->starts_with("<!doctype html>"));
  EXPECT_LT(page->size(), 300'000u);
  for (const char* forbidden : {" src=", "<link", "@import", "url(http", "FATHOM_REPORT_DATA"})
    EXPECT_EQ(page->find(forbidden), std::string::npos) << forbidden;
  EXPECT_NE(page->find("default-src 'none'"), std::string::npos);
}

}  // namespace
}  // namespace fathom::measure
