#include "measure/judging.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "measure/writing_test_target.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

class JudgingTest : public ::testing::Test {
 protected:
  JudgingTest() {
    write("north", "Northern engine");
    write("south", "Southern engine");
    options_ = {.folders = {{"North", folder_.path("north")}, {"South", folder_.path("south")}},
                .package = folder_.path("package"),
                .key = folder_.path("key.json"),
                .seed = 7};
  }

  /// A campaign of two texts; each says who wrote it in a way that only this test knows.
  void write(const std::string& name, const std::string& engine, const std::string& words = "The sea of") {
    WritingScript script;
    script.info.engine = engine + " 3.1";
    script.answer = [&](const GenerateRequest& request) {
      if (request.seed == 44) return Generation{.error = "killed"};
      return whole_answer(
          fmt::format("{} {} {}, told to its very end.\n", words, name.substr(0, 1), request.seed));
    };
    WritingCampaign campaign;
    campaign.settings.briefs = {small_brief("a")};
    campaign.settings.seeds = {42, 43, 44};
    campaign.folder = folder_.path(name);
    ASSERT_TRUE(run_writing(factory_of(script), campaign).ok());
  }
  std::string read(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string packed(const std::string& name) const { return read(folder_.path("package/" + name)); }
  /// Texts of the package in order.
  std::string order() const {
    std::string texts;
    for (int number = 1; number <= 4; ++number) texts += packed(fmt::format("text_{:02}.txt", number));
    return texts;
  }

  WritingFolder folder_;
  JudgingOptions options_;
};

TEST_F(JudgingTest, ThePackageHoldsTextsBriefsSheetAndInstructionsOnly) {
  const auto package = make_judging_package(options_);
  ASSERT_TRUE(package.ok()) << package.error().message;
  EXPECT_EQ(package->texts, 4);
  EXPECT_EQ(package->left_out, (std::vector<std::string>{"North: a 44, failed", "South: a 44, failed"}));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options_.package))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"answer_sheet.json", "brief_a.txt", "instructions.md", "text_01.txt",
                                          "text_02.txt", "text_03.txt", "text_04.txt"}));
  EXPECT_EQ(packed("brief_a.txt"), "Write about the sea.\n");
  const Json sheet = Json::parse(packed("answer_sheet.json"));
  EXPECT_EQ(sheet["package"], package->id);
  ASSERT_EQ(sheet["texts"].size(), 4u);
  EXPECT_EQ(sheet["texts"][3]["text"], "text_04");
  EXPECT_EQ(sheet["texts"][3]["brief"], "a");
  EXPECT_EQ(sheet["texts"][3]["last_20_characters"], "");
  for (const char* item : kJudgingItems) {
    EXPECT_TRUE(sheet["texts"][0][item].is_null());
    EXPECT_NE(packed("instructions.md").find(fmt::format("| `{}` |", item)), std::string::npos);
  }
}

TEST_F(JudgingTest, NothingInThePackageSaysWhoWroteOrWhen) {
  ASSERT_TRUE(make_judging_package(options_).ok());
  for (const auto& entry : std::filesystem::directory_iterator(options_.package)) {
    const std::string bytes = entry.path().filename().string() + "\n" + read(entry.path().string());
    for (const std::string& telling :
         {std::string("North"), std::string("South"), std::string("north"), std::string("south"),
          std::string("tale"), std::string("engine"), std::string("/packs"), std::string("20:"),
          std::string("202"), std::filesystem::temp_directory_path().string()})
      EXPECT_EQ(bytes.find(telling), std::string::npos) << entry.path() << " says " << telling;
  }
}

TEST_F(JudgingTest, TheKeySaysWhoWroteWhatAndIsForItsOwnerOnly) {
  const auto package = make_judging_package(options_);
  ASSERT_TRUE(package.ok());
  const auto key = read_judging_key(options_.key);
  ASSERT_TRUE(key.ok()) << key.error().message;
  EXPECT_EQ(key->id, package->id);
  EXPECT_EQ(key->seed, 7u);
  EXPECT_EQ(key->engines, (std::vector<std::string>{"North", "South"}));
  ASSERT_EQ(key->texts.size(), 4u);
  for (const KeyText& text : key->texts) {
    const std::string initial = text.engine == "North" ? "n" : "s";
    EXPECT_EQ(packed(text.name + ".txt"),
              fmt::format("The sea of {} {}, told to its very end.\n", initial, text.seed));
    EXPECT_EQ(text.end, fmt::format("Theseaof{}{},toldtoitsveryend.", initial, text.seed));
    EXPECT_EQ(text.facts, 2);
    EXPECT_EQ(text.facts_kept, 1);
    EXPECT_EQ(text.length, 10);
    EXPECT_FALSE(text.is_within_goal);
  }
  struct stat status {};
  ASSERT_EQ(::stat(options_.key.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0077, 0u);
}

TEST_F(JudgingTest, TheSeedAloneGivesTheOrder) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    options_.seed = seed;
    ASSERT_TRUE(make_judging_package(options_).ok());
    orders.insert(order());
    std::filesystem::remove_all(options_.package);
    std::filesystem::remove(options_.key);
  }
  EXPECT_GT(orders.size(), 12u);  // of the 24 orders of four texts
  options_.seed = 7;
  ASSERT_TRUE(make_judging_package(options_).ok());
  const std::string first = order();
  options_.package = folder_.path("package2"), options_.key = folder_.path("key2.json");
  ASSERT_TRUE(make_judging_package(options_).ok());
  EXPECT_EQ(read(folder_.path("package2/text_01.txt")), first.substr(0, first.find('\n') + 1));
}

TEST_F(JudgingTest, WithoutASeedOneIsDrawn) {
  options_.seed.reset();
  ASSERT_TRUE(make_judging_package(options_).ok());
  const auto key = read_judging_key(options_.key);
  ASSERT_TRUE(key.ok());
  std::filesystem::remove_all(options_.package);
  std::filesystem::remove(options_.key);
  ASSERT_TRUE(make_judging_package(options_).ok());
  EXPECT_NE(read_judging_key(options_.key)->seed, key->seed);
}

TEST_F(JudgingTest, WarnsOfTextsThatNameTheirWriter) {
  write("west", "Western engine", "As a Western TALE of");
  options_.folders.push_back({"West", folder_.path("west")});
  const auto package = make_judging_package(options_);
  ASSERT_TRUE(package.ok()) << package.error().message;
  EXPECT_EQ(
      package->warnings,
      (std::vector<std::string>{"West: a 42: the text says \"West\"", "West: a 42: the text says \"Western\"",
                                "West: a 42: the text says \"tale\"", "West: a 43: the text says \"West\"",
                                "West: a 43: the text says \"Western\"", "West: a 43: the text says \"tale\""}));
}

TEST_F(JudgingTest, RefusesWhatWouldMixOrLoseSomething) {
  const auto refusal = [&](auto change) {
    JudgingOptions options = options_;
    change(options);
    const auto package = make_judging_package(options);
    EXPECT_FALSE(package.ok());
    return package.ok() ? std::string() : package.error().message;
  };
  EXPECT_EQ(refusal([](auto& options) { options.folders.clear(); }),
            "expected at least one folder of texts, found none");
  EXPECT_EQ(refusal([](auto& options) { options.folders[1].engine = "North"; }),
            folder_.path("south") + ": expected another name for each folder, found \"North\" again");
  EXPECT_EQ(refusal([](auto& options) { options.key = options.package + "/key.json"; }),
            folder_.path("package/key.json") + ": expected a file outside of the package, found one in " +
                options_.package);
  EXPECT_NE(refusal([](auto& options) { options.key = options.package + "/x/../key.json"; }).find("outside"),
            std::string::npos);
  EXPECT_NE(refusal([&](auto& options) { options.folders[0].folder = folder_.path("none"); }).find("none"),
            std::string::npos);
  ASSERT_TRUE(make_judging_package(options_).ok());
  EXPECT_NE(refusal([&](auto& options) { options.key = folder_.path("other.json"); }).find("found one with files"),
            std::string::npos);
  EXPECT_NE(
      refusal([&](auto& options) { options.package = folder_.path("other"); }).find("key of another package"),
      std::string::npos);
}

TEST_F(JudgingTest, RefusesBriefsOfOneNameThatDiffer) {
  const std::string path = folder_.path("south/writing.json");
  Json record = Json::parse(read(path));
  record["settings"]["briefs"][0]["text"] = "Write about the hills.";
  std::ofstream(path) << record;
  EXPECT_EQ(make_judging_package(options_).error().message,
            folder_.path("south") + ": expected the brief a of the other folders, found another of this name");
  EXPECT_FALSE(file_exists(options_.key));
}

}  // namespace
}  // namespace fathom::measure
