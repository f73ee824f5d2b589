#include "measure/judgments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measure/writing_test_target.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr const char* kEnd = "그리고그는우산을접고막차를보냈다.";

class JudgmentsTest : public ::testing::Test {
 protected:
  JudgmentsTest() : key_(folder_.path("key.json")) {
    Json texts = Json::array();
    for (int number = 1; number <= 4; ++number)
      texts.push_back({{"text", fmt::format("text_{:02}", number)},
                       {"engine", number % 2 == 1 ? "North" : "South"},
                       {"brief", "a"},
                       {"seed", 40 + number},
                       {"sha256", ""},
                       {"end", kEnd},
                       {"length", 10},
                       {"within_goal", number <= 3},
                       {"loop", number == 1},
                       {"facts", 6},
                       {"facts_kept", number == 4 ? 5 : 6}});
    std::ofstream(key_) << Json{{"kind", "writing key"},
                                {"version", 1},
                                {"package", "p1"},
                                {"seed", 7},
                                {"engines", {"North", "South"}},
                                {"left_out", {"South: a 45, failed"}},
                                {"texts", texts}};
  }

  static Json entry(const std::string& text, std::vector<int> scores, const std::string& end = kEnd) {
    Json json = {{"text", text}, {"brief", "a"}, {"last_20_characters", end}};
    for (size_t item = 0; item < kJudgingItems.size(); ++item) json[kJudgingItems[item]] = scores[item];
    return json;
  }
  static Json entry(const std::string& text, int score) { return entry(text, std::vector<int>(6, score)); }
  static Json blank(const std::string& text) {
    Json json = {{"text", text}, {"brief", "a"}, {"last_20_characters", ""}, {"comment", ""}};
    for (const char* item : kJudgingItems) json[item] = nullptr;
    return json;
  }
  void sheet(const std::string& judge, Json entries, const std::string& package = "p1") {
    const std::string path = folder_.path(fmt::format("sheet_{}.json", sheets_.size()));
    std::ofstream(path) << Json{{"kind", "writing judgement"},
                                {"version", 1},
                                {"package", package},
                                {"judge", judge},
                                {"texts", std::move(entries)}};
    sheets_.push_back(path);
  }
  JudgingOutcome merge() {
    auto outcome = merge_judgments(key_, sheets_);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return outcome.ok() ? std::move(outcome).value() : JudgingOutcome{};
  }
  /// What was rejected of one sheet with this entry, without the sheet's path.
  std::string rejection(Json wrong) {
    sheets_.clear();
    sheet("Kim", Json::array({std::move(wrong)}));
    const JudgingOutcome outcome = merge();
    EXPECT_TRUE(outcome.judgments.empty());
    EXPECT_EQ(outcome.rejected.size(), 1u);
    return outcome.rejected.empty() ? "" : outcome.rejected[0].substr(sheets_[0].size());
  }

  WritingFolder folder_;
  std::string key_;
  std::vector<std::string> sheets_;
};

TEST_F(JudgmentsTest, GivesEachEngineMeansOverItsTexts) {
  sheet("Kim", {entry("text_01", {4, 3, 2, 1, 0, 4}), entry("text_02", 1), entry("text_03", {2, 3, 2, 1, 0, 4})});
  sheet("Lee", {entry("text_01", {2, 3, 2, 1, 0, 4}), entry("text_02", 3), blank("text_03"), blank("text_04")});
  const JudgingOutcome outcome = merge();
  EXPECT_TRUE(outcome.rejected.empty());
  EXPECT_EQ(outcome.judges, (std::vector<std::string>{"Kim", "Lee"}));
  ASSERT_EQ(outcome.engines.size(), 2u);
  const EngineScore& north = outcome.engines[0];
  EXPECT_EQ(north.engine, "North");
  EXPECT_EQ(north.texts, 2);
  EXPECT_EQ(north.texts_judged, 2);
  EXPECT_EQ(north.judgments, 3);
  // Texts: (4 + 2) / 2 = 3 and 2.
  EXPECT_EQ(north.items[0].count, 2);
  EXPECT_DOUBLE_EQ(north.items[0].mean, 2.5);
  EXPECT_DOUBLE_EQ(north.items[0].deviation, std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(north.items[1].deviation, 0);
  // (14 + 12) / 2 = 13 and 12.
  EXPECT_DOUBLE_EQ(north.total.mean, 12.5);
  EXPECT_EQ(north.within_goal, 2);
  EXPECT_EQ(north.loops, 1);
  EXPECT_EQ(north.within_goal_without_loop, 1);
  EXPECT_EQ(north.all_facts_kept, 2);
  const EngineScore& south = outcome.engines[1];
  EXPECT_EQ(south.texts_judged, 1);
  EXPECT_DOUBLE_EQ(south.total.mean, 12);
  EXPECT_TRUE(std::isnan(south.total.deviation));
  EXPECT_EQ(south.all_facts_kept, 1);
}

TEST_F(JudgmentsTest, MeasuresAgreementWhereTextsWereReadTwice) {
  sheet("Kim", {entry("text_01", 0), entry("text_02", 4), entry("text_03", 2)});
  sheet("Lee", {entry("text_01", 0), entry("text_02", 4)});
  const JudgingOutcome outcome = merge();
  EXPECT_DOUBLE_EQ(outcome.total.alpha, 1);
  EXPECT_EQ(outcome.total.texts, 2);
  EXPECT_DOUBLE_EQ(outcome.items[5].alpha, 1);
  EXPECT_EQ(outcome.statements[0], "Agreement is that of the 2 of 4 texts that two judges or more have read.");
  EXPECT_EQ(outcome.statements.back(), "Not judged: South: a 45, failed.");
}

TEST_F(JudgmentsTest, SaysWhenNothingIsKnownOfAgreement) {
  sheet("Kim", {entry("text_01", 0), entry("text_02", 4)});
  sheet("Lee", {entry("text_03", 1), entry("text_04", 2)});
  const JudgingOutcome outcome = merge();
  EXPECT_TRUE(std::isnan(outcome.total.alpha));
  EXPECT_EQ(outcome.statements[0].find("Each text was read by one judge: nothing is known"), 0u);
  EXPECT_NE(to_markdown(outcome).find("Each text was read by one judge"), std::string::npos);
  EXPECT_TRUE(to_json(outcome)["agreement"]["total"]["alpha"].is_null());
  sheets_.clear();
  EXPECT_EQ(merge().statements[0], "No judgement counts: there are no scores.");
}

TEST_F(JudgmentsTest, RejectsEntriesAndSaysWhy) {
  const std::string by = " (judge Kim, text_01)";
  EXPECT_EQ(rejection(entry("text_09", 1)),
            ": texts[0]: text: expected a text of the package, found \"text_09\" (judge Kim, text_09)");
  EXPECT_EQ(rejection(entry("text_01", {1, 1, 5, 1, 1, 1})),
            ": texts[0]: plot_and_ending: expected a whole number from 0 to 4, found 5" + by);
  EXPECT_EQ(rejection(entry("text_01", {1, -1, 1, 1, 1, 1})),
            ": texts[0]: consistency: expected a whole number from 0 to 4, found -1" + by);
  Json half = entry("text_01", 1);
  half["depth"] = 3.5;
  EXPECT_EQ(rejection(half), ": texts[0]: depth: expected a whole number from 0 to 4, found 3.5" + by);
  half["depth"] = nullptr;
  EXPECT_EQ(rejection(half), ": texts[0]: depth: expected a whole number from 0 to 4, found null" + by);
  half.erase("depth");
  EXPECT_EQ(rejection(half), ": texts[0]: depth: expected a whole number from 0 to 4, found nothing" + by);
  EXPECT_EQ(rejection(entry("text_01", {1, 1, 1, 1, 1, 1}, "그는 문을 닫았다.")),
            ": texts[0]: last_20_characters: expected the end of text_01, found \"그는 문을 닫았다.\"" + by);
  EXPECT_EQ(rejection(entry("text_01", {1, 1, 1, 1, 1, 1}, "")),
            ": texts[0]: last_20_characters: expected the end of text_01, found \"\"" + by);
  EXPECT_EQ(rejection("text_01"), ": texts[0]: expected an object, found \"text_01\" (judge Kim, )");
}

TEST_F(JudgmentsTest, AWrongEntryCostsNoOtherOne) {
  sheet("Kim", {entry("text_01", 9), entry("text_02", 2), entry("text_02", 4)});
  sheet("Kim", {entry("text_02", 0), entry("text_01", 3)});
  const JudgingOutcome outcome = merge();
  ASSERT_EQ(outcome.judgments.size(), 2u);
  EXPECT_EQ(outcome.judgments[0].text, "text_02");
  EXPECT_EQ(outcome.judgments[0].total(), 12);
  EXPECT_EQ(outcome.judgments[1].text, "text_01");
  ASSERT_EQ(outcome.rejected.size(), 3u);
  EXPECT_EQ(outcome.rejected[1],
            sheets_[0] + ": texts[2]: Kim has judged text_02 already: the first judgement counts");
  EXPECT_EQ(outcome.rejected[2],
            sheets_[1] + ": texts[0]: Kim has judged text_02 already: the first judgement counts");
}

TEST_F(JudgmentsTest, RejectsWholeSheetsThatAreNotOfThisPackage) {
  sheet("Kim", Json::array({entry("text_01", 1)}), "p2");
  sheet(" ", Json::array({entry("text_01", 1)}));
  sheets_.push_back(folder_.path("none.json"));
  sheets_.push_back(folder_.path("broken.json"));
  std::ofstream(sheets_.back()) << "{\"kind\": ";
  sheets_.push_back(key_);
  const JudgingOutcome outcome = merge();
  EXPECT_TRUE(outcome.judgments.empty());
  ASSERT_EQ(outcome.rejected.size(), 5u);
  EXPECT_EQ(outcome.rejected[0], sheets_[0] + ": package: expected that of the key, p1, found \"p2\"");
  EXPECT_EQ(outcome.rejected[1], sheets_[1] + ": judge: expected a name, found \" \"");
  for (size_t sheet = 2; sheet < 5; ++sheet)
    EXPECT_NE(outcome.rejected[sheet].find(sheets_[sheet]), std::string::npos) << outcome.rejected[sheet];
  EXPECT_FALSE(merge_judgments(folder_.path("none.json"), {}).ok());
}

TEST(ProofOfReadingTest, TakesTheEndAsPeopleAndModelsCopyIt) {
  EXPECT_TRUE(proves_reading("우산을 접고 막차를\n보냈다.", kEnd));
  EXPECT_TRUE(proves_reading(kEnd, kEnd));
  EXPECT_FALSE(proves_reading("막차를 보냈다.", kEnd));             // too little
  EXPECT_FALSE(proves_reading("우산을 접고 막차를 보냈다", kEnd));  // not to the last character
  EXPECT_FALSE(proves_reading("", kEnd));
  EXPECT_FALSE(proves_reading("", "짧은끝."));
  EXPECT_TRUE(proves_reading("짧은 끝.", "짧은끝."));
  EXPECT_TRUE(proves_reading("\"We can't stay here,\"", "“Wecan’tstayhere,”"));
  EXPECT_TRUE(proves_reading("“We can’t stay here,”", "\"Wecan'tstayhere,\""));
  EXPECT_FALSE(proves_reading("\xFF\xFE", kEnd));
  EXPECT_TRUE(proves_reading("", ""));  // of a text without a word there is nothing to copy
}

TEST_F(JudgmentsTest, WritesATableAndTheSameAsJson) {
  sheet("Kim", {entry("text_01", 4), entry("text_02", 1), entry("text_03", 2)});
  // Compilers differ on whether one element in braces is an array.
  sheet("A|B", Json::array({entry("text_01", 4)}));
  const JudgingOutcome outcome = merge();
  const std::string table = to_markdown(outcome);
  EXPECT_NE(table.find("| North | 2 | 2 | 18.00 ± 8.49 | 3.00 ± 1.41 |"), std::string::npos) << table;
  EXPECT_NE(table.find("| South | 2 | 1 | 6.00 | 1.00 |"), std::string::npos) << table;
  EXPECT_NE(table.find("4 judgements by 2 judges."), std::string::npos) << table;
  const auto json = to_json(outcome);
  EXPECT_EQ(json["engines"][0]["total"]["mean"], 18);
  EXPECT_EQ(json["engines"][0]["items"]["depth"]["n"], 2);
  EXPECT_TRUE(json["engines"][1]["total"]["sd"].is_null());
  EXPECT_EQ(json["judgments"][3]["scores"][0], 4);
  EXPECT_EQ(json["agreement"]["measure"], "Krippendorff's alpha, ordinal");
}

}  // namespace
}  // namespace fathom::measure
