#include "measure/briefs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

Json small_brief() {
  return Json::parse(R"({"name": "mine", "language": "English", "text": "Write.",
                         "length": {"unit": "words", "low": 1, "high": 3},
                         "facts": [{"name": "sea", "any_of": ["sea", "ocean"]}]})");
}

TEST(BriefsTest, ThoseOfTheProgramAreWhole) {
  EXPECT_EQ(brief_names(), (std::vector<std::string>{"ko", "en"}));
  for (const std::string& name : brief_names()) {
    const auto brief = read_brief(name);
    ASSERT_TRUE(brief.ok()) << brief.error().message;
    EXPECT_EQ(brief->name, name);
    EXPECT_EQ(brief->facts.size(), 6u);
    // What is asked for is in the request: a fact that cannot be found there was never told.
    for (const bool is_kept : facts_kept(*brief, brief->text)) EXPECT_TRUE(is_kept) << name;
  }
  const auto korean = read_brief("ko");
  EXPECT_EQ(korean->length.unit, LengthUnit::kCharactersWithoutSpaces);
  EXPECT_EQ(korean->length.low, 9000);
  EXPECT_EQ(korean->length.high, 11000);
}

TEST(BriefsTest, GoOutAsTheyCameIn) {
  const auto brief = brief_from_json(small_brief(), "x");
  ASSERT_TRUE(brief.ok()) << brief.error().message;
  EXPECT_EQ(Json::parse(to_json(*brief).dump()), small_brief());
}

TEST(BriefsTest, LengthIsCountedInTheUnitOfTheGoal) {
  const TextFigures figures = figures_of("one two three");
  EXPECT_EQ((LengthGoal{LengthUnit::kWords, 1, 3}.length_of(figures)), 3);
  EXPECT_TRUE((LengthGoal{LengthUnit::kWords, 1, 3}.holds(figures)));
  EXPECT_FALSE((LengthGoal{LengthUnit::kWords, 4, 9}.holds(figures)));
  EXPECT_EQ((LengthGoal{LengthUnit::kCharactersWithoutSpaces, 1, 3}.length_of(figures)), 11);
  EXPECT_FALSE((LengthGoal{LengthUnit::kCharactersWithoutSpaces, 1, 10}.holds(figures)));
}

TEST(BriefsTest, AFactIsKeptByOneOfItsStrings) {
  const auto brief = brief_from_json(small_brief(), "x");
  EXPECT_EQ(facts_kept(*brief, "The OCEAN."), std::vector<bool>{true});
  EXPECT_EQ(facts_kept(*brief, "The lake."), std::vector<bool>{false});
  EXPECT_EQ(facts_kept(*brief, ""), std::vector<bool>{false});
}

TEST(BriefsTest, ErrorsNameFileMemberExpectedAndFound) {
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Case cases[] = {
      {"/name", "a/b", "b.json: name: expected 1 to 40 letters of ASCII, digits, - or _, found \"a/b\""},
      {"/name", 3, "b.json: name: expected a string, found 3"},
      {"/text", "", "b.json: text: expected what the target is told, found \"\""},
      {"/length", Json::array(), "b.json: length: expected an object, found an array of 0"},
      {"/length/unit", "lines",
       "b.json: length: unit: expected \"characters_without_spaces\" or \"words\", found \"lines\""},
      {"/length/high", 0, "b.json: length: high: expected a whole number from 1 to 10000000, found 0"},
      {"/length/low", 1.5, "b.json: length: low: expected a whole number from 0 to 10000000, found 1.5"},
      {"/facts", nullptr, "b.json: facts: expected an array, found null"},
      {"/facts/0", "sea", "b.json: facts[0]: expected an object, found \"sea\""},
      {"/facts/0/any_of", Json::array(),
       "b.json: facts[0]: any_of: expected at least one string, found an array of 0"},
      {"/facts/0/any_of/1", " ", "b.json: facts[0]: any_of: expected strings that are not empty, found \" \""},
      {"/facts/0/any_of/0", 7, "b.json: facts[0]: any_of: expected an array of strings, found 7"},
  };
  for (const Case& one : cases) {
    Json json = small_brief();
    json[Json::json_pointer(one.pointer)] = one.value;
    const auto brief = brief_from_json(json, "b.json");
    ASSERT_FALSE(brief.ok()) << one.pointer;
    EXPECT_EQ(brief.error().message, one.message);
  }
  for (const char* member : {"name", "language", "text", "length", "facts"}) {
    Json json = small_brief();
    json.erase(member);
    const auto brief = brief_from_json(json, "b.json");
    ASSERT_FALSE(brief.ok()) << member;
    EXPECT_NE(brief.error().message.find(std::string(member) + ": expected"), std::string::npos);
    EXPECT_NE(brief.error().message.find("found nothing"), std::string::npos);
  }
}

TEST(BriefsTest, ReadsTheUsersOwnFiles) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / fmt::format("fathom_brief_{}.json", ::getpid())).string();
  std::ofstream(path) << small_brief();
  const auto brief = read_brief(path);
  ASSERT_TRUE(brief.ok()) << brief.error().message;
  EXPECT_EQ(brief->name, "mine");
  for (const char* broken : {"", "{", "[]", "{\"name\": \"\xFF\"}", "null"}) {
    std::ofstream(path) << broken;
    const auto refused = read_brief(path);
    ASSERT_FALSE(refused.ok()) << broken;
    EXPECT_EQ(refused.error().message.find(path), 0u) << refused.error().message;
  }
  std::ofstream(path) << std::string(100'000, '[');
  EXPECT_FALSE(read_brief(path).ok());
  std::filesystem::remove(path);
  EXPECT_EQ(read_brief(path).error().message, path + ": expected a file or one of ko, en, found neither");
}

}  // namespace
}  // namespace fathom::measure
