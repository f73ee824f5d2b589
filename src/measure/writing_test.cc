#include "measure/writing.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "measure/writing_test_target.h"

namespace fathom::measure {
namespace {

class WritingTest : public ::testing::Test {
 protected:
  WritingTest() {
    campaign_.folder = folder_.path("out");
    campaign_.settings.briefs = {small_brief("a"), small_brief("b")};
    campaign_.settings.seeds = {42, 43};
    campaign_.settings.target = "local";
    campaign_.say = [this](const std::string& line) { lines_.push_back(line); };
    script_.answer = [](const GenerateRequest& request) {
      return whole_answer(fmt::format("The sea, seed {}.", request.seed));
    };
  }

  Result<WritingRecord> run() { return run_writing(factory_of(script_), campaign_); }
  std::string text_of(const std::string& name) const {
    std::ifstream file(campaign_.folder + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  nlohmann::json json() const { return nlohmann::json::parse(text_of("writing.json")); }

  WritingFolder folder_;
  WritingScript script_;
  WritingCampaign campaign_;
  std::vector<std::string> lines_;
};

TEST_F(WritingTest, WritesEachBriefWithEachSeedByAFreshTarget) {
  const auto record = run();
  ASSERT_TRUE(record.ok()) << record.error().message;
  ASSERT_EQ(record->texts.size(), 4u);
  EXPECT_EQ(script_.made, 4);
  EXPECT_EQ(script_.started, 4);
  EXPECT_EQ(script_.stopped, 4);
  EXPECT_EQ(script_.cleared, 0);
  const GenerateRequest& request = script_.requests[1];
  EXPECT_EQ(request.prompt_text, "Write about the sea.");
  EXPECT_TRUE(request.is_chat);
  EXPECT_FALSE(request.ignore_eos);
  EXPECT_EQ(request.seed, 43u);
  EXPECT_EQ(request.temperature, 0.5);
  EXPECT_EQ(request.max_tokens, 32768);

  const WrittenText& text = record->texts[1];
  EXPECT_EQ(text.status, TextStatus::kDone);
  EXPECT_EQ(text.file, "a_43.txt");
  EXPECT_EQ(text_of("a_43.txt"), "The sea, seed 43.");
  EXPECT_TRUE(text.is_fresh);
  EXPECT_DOUBLE_EQ(text.total_s, 2.5);
  EXPECT_DOUBLE_EQ(*text.first_token_s, 1);
  EXPECT_DOUBLE_EQ(*text.generation_f1_tokens_per_s, 3);
  EXPECT_DOUBLE_EQ(*text.generation_f2_tokens_per_s, 2);
  EXPECT_EQ(text.tokens, 3);
  EXPECT_EQ(text.tokens_from, "ids");
  EXPECT_EQ(text.examination.length, 4);
  EXPECT_TRUE(text.examination.is_within_goal);
  EXPECT_EQ(text.examination.facts, (std::vector<bool>{true, false}));
  EXPECT_FALSE(text.loop.report.found);
}

TEST_F(WritingTest, TheRecordHoldsWhatTheTestIsAbout) {
  script_.answer = [](const GenerateRequest&) {
    Generation generation = whole_answer(std::string(3000, 'x'), {});
    generation.finish_reason = "length";
    return generation;
  };
  ASSERT_TRUE(run().ok());
  const auto record = json();
  EXPECT_EQ(record["kind"], "writing");
  EXPECT_EQ(record["target"]["model"], "tale");
  EXPECT_EQ(record["settings"]["thinking"], false);
  const auto& text = record["texts"][2];
  EXPECT_EQ(text["brief"], "b");
  EXPECT_EQ(text["finish_reason"], "length");
  EXPECT_EQ(text["tokens_from"], "arrivals");
  EXPECT_EQ(text["loop"]["looked_for_in"], "characters");
  EXPECT_EQ(text["loop"]["found"], true);
  EXPECT_EQ(text["loop"]["period"], 1);
  EXPECT_EQ(text["examination"]["within_goal"], false);
  EXPECT_EQ(text["examination"]["facts"]["sea"], false);
  EXPECT_EQ(text["examination"]["figures"]["characters_without_spaces"], 3000);
  EXPECT_EQ(text["examination"]["figures"]["repeated_character_8grams_per_1000_characters"][2], 1);
  EXPECT_EQ(text["examination"]["figures"]["last_characters"], std::string(20, 'x'));
}

TEST_F(WritingTest, AKilledTargetIsAFailureAndNoShortText) {
  script_.answer = [](const GenerateRequest& request) {
    Generation generation = whole_answer("The sea wa");
    if (request.seed == 42)
      generation.error = "http://host: the connection was closed", generation.finish_reason = "";
    return generation;
  };
  const auto record = run();
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_EQ(record->texts[0].status, TextStatus::kFailed);
  EXPECT_EQ(record->texts[0].error, "http://host: the connection was closed");
  EXPECT_EQ(record->texts[0].file, "a_42_unfinished.txt");
  EXPECT_EQ(text_of("a_42_unfinished.txt"), "The sea wa");
  EXPECT_FALSE(json()["texts"][0].contains("examination"));
  EXPECT_EQ(record->texts[1].status, TextStatus::kDone);
  EXPECT_NE(writing_table(*record).find("| a | 42 | failed: http://host"), std::string::npos);
  EXPECT_NE(writing_table(*record).find("\n| a | 1 | 1 |"), std::string::npos);

  // Tried again, and what went wrong stays known.
  script_.answer = [](const GenerateRequest&) { return whole_answer("The sea was calm."); };
  const auto again = run();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(script_.requests.size(), 6u);
  EXPECT_EQ(again->texts[0].status, TextStatus::kDone);
  EXPECT_EQ(again->texts[0].earlier_errors, (std::vector<std::string>{"http://host: the connection was closed"}));
  EXPECT_FALSE(file_exists(campaign_.folder + "/a_42_unfinished.txt"));
}

TEST_F(WritingTest, AnswersThatAreNotWholeAreFailures) {
  campaign_.settings.briefs.pop_back();
  campaign_.settings.seeds = {1, 2, 3, 4};
  script_.answer = [](const GenerateRequest& request) {
    if (request.seed == 1) return Generation{};
    Generation generation = whole_answer(request.seed == 2 ? "" : "The sea");
    if (request.seed == 3) generation.finish_reason = "abort";
    if (request.seed == 4) generation = whole_answer("", {});
    return generation;
  };
  const auto record = run();
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_EQ(record->texts[0].error, "the target gave no text and no reason");
  EXPECT_EQ(record->texts[1].error, "the target gave 3 ids and no text");
  EXPECT_EQ(record->texts[2].error, "the target ended the text: abort");
  // A model that says nothing has said so.
  EXPECT_EQ(record->texts[3].status, TextStatus::kDone);
  EXPECT_EQ(record->texts[3].examination.length, 0);
}

TEST_F(WritingTest, GoesOnWhereItWasStopped) {
  campaign_.is_stopped = [this] { return script_.requests.size() >= 2; };
  const auto record = run();
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_EQ(record->texts[1].status, TextStatus::kDone);
  EXPECT_EQ(record->texts[2].status, TextStatus::kNotRun);
  const std::string kept = json()["texts"][0]["begun"];
  campaign_.is_stopped = nullptr;
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(script_.requests.size(), 4u);
  EXPECT_EQ(json()["texts"][0]["begun"], kept);
  EXPECT_EQ(json()["texts"][0]["examination"]["length"], 4);
  EXPECT_EQ(json()["texts"][3]["status"], "done");
  // Nothing is left to do: nothing starts.
  const auto finished = run();
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(script_.started, 4);
  EXPECT_DOUBLE_EQ(*finished->texts[0].generation_f2_tokens_per_s, 2);
}

TEST_F(WritingTest, AStopDuringATextIsNoFaultOfTheTarget) {
  bool is_stopped = false;
  campaign_.is_stopped = [&] { return is_stopped; };
  script_.answer = [&](const GenerateRequest&) {
    is_stopped = true;
    Generation generation = whole_answer("The");
    generation.error = "closed";
    return generation;
  };
  const auto record = run();
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->texts[0].error, "stopped by the user: closed");
  EXPECT_EQ(record->texts[1].status, TextStatus::kNotRun);
}

TEST_F(WritingTest, ACampaignThatIsKilledLeavesAMark) {
  script_.answer = [this](const GenerateRequest& request) {
    if (request.seed == 43)
      std::filesystem::copy_file(record_path(campaign_.folder), folder_.path("as_killed.json"));
    return whole_answer("The sea was calm.");
  };
  campaign_.settings.briefs.pop_back();
  ASSERT_TRUE(run().ok());
  const auto again = [&] {
    std::filesystem::copy_file(folder_.path("as_killed.json"), record_path(campaign_.folder),
                               std::filesystem::copy_options::overwrite_existing);
    return run_writing(factory_of(script_), campaign_);
  };
  script_.answer = [](const GenerateRequest&) { return whole_answer("The sea was calm."); };
  const auto record = again();
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_EQ(script_.requests.size(), 3u);
  EXPECT_TRUE(record->texts[0].earlier_errors.empty());
  EXPECT_EQ(record->texts[1].earlier_errors,
            (std::vector<std::string>{"the campaign ended while it was written"}));
}

TEST_F(WritingTest, RefusesAFolderOfOtherSettingsAndSaysWhatDiffers) {
  ASSERT_TRUE(run().ok());
  const std::string before = text_of("writing.json");
  const auto refusal = [&](auto change) {
    WritingCampaign other = campaign_;
    change(other.settings);
    const auto record = run_writing(factory_of(script_), other);
    EXPECT_FALSE(record.ok());
    return record.ok() ? std::string() : record.error().message;
  };
  const std::string start = campaign_.folder + ": holds texts of other settings: ";
  EXPECT_EQ(refusal([](auto& settings) { settings.temperature = 0.7; }),
            start + "temperature: 0.5 there, 0.7 now");
  EXPECT_EQ(refusal([](auto& settings) { settings.max_tokens = 10; }),
            start + "tokens at most: 32768 there, 10 now");
  EXPECT_EQ(refusal([](auto& settings) { settings.seeds = {42}; }), start + "seeds: 42,43 there, 42 now");
  EXPECT_EQ(refusal([](auto& settings) { settings.target = "http://x"; }),
            start + "target: local there, http://x now");
  EXPECT_EQ(refusal([](auto& settings) { settings.briefs.pop_back(); }), start + "briefs: a,b there, a now");
  EXPECT_EQ(refusal([](auto& settings) { settings.briefs[1].text += "!"; }), start + "brief b: another text");
  EXPECT_EQ(text_of("writing.json"), before);
}

TEST_F(WritingTest, WhereNothingWasFinishedAnythingMayBegin) {
  script_.start_error = "expected at most 16384 tokens of context";
  ASSERT_FALSE(run().ok());
  script_.start_error.clear();
  script_.answer = [](const GenerateRequest&) { return Generation{.error = "killed"}; };
  campaign_.settings.max_tokens = 12000;
  ASSERT_TRUE(run().ok());
  script_.info.details = "another placement";
  script_.answer = [](const GenerateRequest&) { return whole_answer("The sea"); };
  const auto record = run();
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_EQ(record->target->details, "another placement");
  EXPECT_EQ(json()["settings"]["max_tokens"], 12000);
}

TEST_F(WritingTest, RefusesAnotherTargetBeforeItWritesAWord) {
  campaign_.is_stopped = [this] { return script_.requests.size() >= 2; };
  ASSERT_TRUE(run().ok());
  const std::string before = text_of("writing.json");
  campaign_.is_stopped = nullptr;
  script_.info.model = "fable";
  const auto record = run();
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().message,
            campaign_.folder + ": holds texts of another target: model: \"tale\" there, \"fable\" now");
  EXPECT_EQ(script_.requests.size(), 2u);
  EXPECT_EQ(script_.stopped, script_.started);
  EXPECT_EQ(text_of("writing.json"), before);
}

TEST_F(WritingTest, RefusesTextsThatWereChangedAndWritesMissingOnesAgain) {
  ASSERT_TRUE(run().ok());
  std::filesystem::remove(campaign_.folder + "/b_42.txt");
  const auto again = run();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(script_.requests.size(), 5u);
  EXPECT_EQ(again->texts[2].earlier_errors, (std::vector<std::string>{"b_42.txt was finished, and is gone"}));
  std::ofstream(campaign_.folder + "/a_42.txt") << "Mine.";
  const auto record = run();
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().message.find(campaign_.folder + "/a_42.txt: expected the text as it was written"), 0u);
}

TEST_F(WritingTest, EndsWhenTwoTargetsInARowDoNotStart) {
  script_.start_error = "no such program";
  const auto record = run();
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().message,
            "the target did not start 2 times in a row: the target did not start: no such program");
  EXPECT_EQ(script_.started, 2);
  EXPECT_EQ(json()["texts"][0]["status"], "failed");
  EXPECT_EQ(json()["texts"][0]["file"], "");
  EXPECT_EQ(json()["texts"][2]["status"], "not_run");
  script_.start_error.clear();
  const auto again = run();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->texts[0].status, TextStatus::kDone);
}

TEST_F(WritingTest, AServerThatRanAlreadyIsClearedAndSaidToBeNotFresh) {
  script_.info.address = "http://127.0.0.1:8080";
  const auto record = run();
  ASSERT_TRUE(record.ok());
  EXPECT_FALSE(record->texts[0].is_fresh);
  EXPECT_EQ(script_.cleared, 4);
}

TEST_F(WritingTest, OneCampaignAtATimeUsesAFolder) {
  script_.answer = [this](const GenerateRequest&) {
    WritingScript other = {.answer = [](const GenerateRequest&) { return whole_answer("no"); }};
    const auto second = run_writing(factory_of(other), campaign_);
    EXPECT_FALSE(second.ok());
    EXPECT_EQ(second.error().message, campaign_.folder + ": another campaign is writing there");
    return whole_answer("The sea");
  };
  EXPECT_TRUE(run().ok());
}

TEST_F(WritingTest, RefusesBriefsAndSeedsThatAreNoneOrTheSame) {
  campaign_.settings.seeds = {4, 4};
  EXPECT_EQ(run().error().message, "the writing test: expected each seed once, found 4 again");
  campaign_.settings.seeds = {};
  EXPECT_EQ(run().error().message, "the writing test: expected at least one brief and one seed, found 2 and 0");
  campaign_.settings.seeds = {4};
  campaign_.settings.briefs = {small_brief("a"), small_brief("a")};
  EXPECT_EQ(run().error().message, "the writing test: expected each brief once, found \"a\" again");
}

TEST_F(WritingTest, TextsWithoutTheirRecordAreNotOverwritten) {
  ASSERT_TRUE(run().ok());
  std::filesystem::remove(record_path(campaign_.folder));
  const auto again = run();
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("holds texts, but no writing.json"), std::string::npos) << again.error().message;
}

TEST_F(WritingTest, ADamagedRecordIsRefusedAndNamesTheMember) {
  ASSERT_TRUE(run().ok());
  const nlohmann::json whole = json();
  const auto refusal = [&](const char* pointer, nlohmann::json value) {
    nlohmann::json broken = whole;
    broken[nlohmann::json::json_pointer(pointer)] = std::move(value);
    std::ofstream(record_path(campaign_.folder)) << broken;
    const auto record = read_record(campaign_.folder);
    EXPECT_FALSE(record.ok()) << pointer;
    return record.ok() ? std::string() : record.error().message.substr(record_path(campaign_.folder).size());
  };
  EXPECT_EQ(refusal("/kind", "protocol"), ": kind: expected \"writing\", found \"protocol\"");
  EXPECT_EQ(refusal("/texts/1/seed", -1), ": texts[1]: seed: expected a whole number of 0 or more, found -1");
  EXPECT_EQ(refusal("/texts/1/brief", "c"), ": texts[1]: expected a brief of the settings, found \"c\"");
  EXPECT_EQ(refusal("/texts/1/seed", 42), ": texts[1]: expected each brief and seed once, found a 42 again");
  EXPECT_EQ(refusal("/texts/0/file", "../../secret"),
            ": texts[0]: file: expected a name without folders, found \"../../secret\"");
  EXPECT_EQ(refusal("/texts/0/loop/looked_for_in", "words"),
            ": texts[0]: loop: looked_for_in: expected \"ids\" or \"characters\", found \"words\"");
  EXPECT_EQ(refusal("/target/model", 7), ": target: model: expected a string, found 7");
  EXPECT_EQ(refusal("/settings/briefs/0/facts", 1), ": settings: briefs[0]: facts: expected an array, found 1");
}

}  // namespace
}  // namespace fathom::measure
