#include "measure/result.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

Stage full_stage() {
  Stage stage{.name = "32K", .context_tokens = 32768, .prompt_tokens = 41216, .new_tokens = 32768,
              .status = StageStatus::kFailed, .error = "late \"error\"", .evaluated_tokens = 32769,
              .cached_tokens_claimed = 0, .cached_tokens_implied = 8447, .first_token_s = 22.52,
              .prefill_tokens_per_s = 1455.1, .output_tokens = 256, .generation_f1_tokens_per_s = 37.03,
              .generation_f2_tokens_per_s = 36.89, .first_gaps_ms = {0.1, 27.5, 27, 310}, .gap_p50_ms = 27.01,
              .gap_p90_ms = 27.9, .gap_p99_ms = 31, .gap_max_ms = 45.5, .total_s = 29.4, .claimed_prefill_s = 22.5,
              .claimed_decode_s = 6.9, .finish_reason = "length", .output_ids = {0, 17, 129279},
              .output_sha256 = "ab12"};
  stage.process = {
      .resident_bytes = 1, .resident_peak_bytes = 2, .read_bytes = 0, .written_bytes = 4, .cpu_s = 5.5};
  stage.before = {.swap_used_bytes = 0, .swapped_in_bytes = 7, .swapped_out_bytes = 8, .memory_available_bytes = 9,
                  .disk_read_bytes = 10, .disk_written_bytes = 11};
  stage.observed = {"another program took 1 %"};
  stage.after = {.swap_used_bytes = 12, .swapped_in_bytes = 13, .swapped_out_bytes = 14,
                 .memory_available_bytes = 15, .disk_read_bytes = 16, .disk_written_bytes = 17};
  return stage;
}

/// Every member has a value of its own that is not its default.
BenchResult full_result() {
  BenchResult result{.name = "노트북 \"A\"",
                     .kind = "published",
                     .created = "2026-11-30T12:00:00Z",
                     .origin = "there",
                     .program = "fathom 0.1.0",
                     .variant = Variant::kHttpIdsReprocessed,
                     .formula = "both",
                     .pack_name = "Q2",
                     .pack_sha256 = "00ff"};
  result.target = {.engine = "engine", .driver = "driver", .address = "http://127.0.0.1:1", .command = "serve",
                   .model = "model", .pack_path = "/packs/q2", .details = "flags", .takes_ids = false,
                   .gives_ids = false, .gives_logprobs = true, .is_http = true, .continues_exactly = false};
  result.plan = {.sources = {{.name = "novel", .sha256 = "cd", .tokens = 417059}, {.name = "code"}},
                 .alone_tokens = {8192}, .step_tokens = {32768, 65536}, .generated_tokens = 0, .runs = 5,
                 .scale = "1/16"};
  result.environment = {.machine = "machine", .cpu = "cpu", .gpu = "gpu", .os = "os", .kernel = "kernel",
                        .power = "mains", .cores = 32, .memory_bytes = int64_t{256} << 30,
                        .more = {{"b", "2"}, {"a", "1"}, {"empty", ""}}};
  result.runs = {{.source = "novel", .number = 2, .stages = {full_stage(), Stage{.name = "64K"}},
                  .begun = "2026-11-30T12:01:00Z", .is_disturbed = true, .is_excluded = true,
                  .disturbances = {"swap grew"}, .error = "it went away"}};
  result.divergences = {{.source = "novel", .stage = "32K", .run_a = 1, .run_b = 3, .token = 41, .id_a = 5,
                         .id_b = 7, .logprob_a = -0.69, .logprob_b = -0.7}};
  result.published = {{.source = "novel", .stage = "32K", .metric = "first_token_s", .value = 1.5, .low = 1,
                       .high = 2}};
  result.remarks = {"one", "two"};
  return result;
}

TEST(ResultJson, EveryMemberReturns) {
  const Json json = to_json(full_result());
  const auto again = result_from_json(json, "x.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(*again), json);

  EXPECT_EQ(again->name, "노트북 \"A\"");
  EXPECT_EQ(again->variant, Variant::kHttpIdsReprocessed);
  EXPECT_FALSE(again->target.takes_ids);
  EXPECT_FALSE(again->target.continues_exactly);
  EXPECT_EQ(again->plan.generated_tokens, 0);
  EXPECT_EQ(again->plan.step_tokens, (std::vector<int64_t>{32768, 65536}));
  EXPECT_EQ(again->environment.more.at(0).first, "b");  // in their order
  EXPECT_EQ(again->environment.memory_bytes, int64_t{256} << 30);
  const Stage& stage = again->runs.at(0).stages.at(0);
  EXPECT_EQ(stage.status, StageStatus::kFailed);
  EXPECT_EQ(stage.cached_tokens_claimed, 0);
  EXPECT_EQ(stage.first_gaps_ms, (std::vector<double>{0.1, 27.5, 27, 310}));
  EXPECT_EQ(stage.output_ids, (std::vector<int32_t>{0, 17, 129279}));
  EXPECT_EQ(stage.before.swap_used_bytes, 0);
  EXPECT_EQ(stage.after.disk_written_bytes, 17);
  EXPECT_EQ(again->divergences.at(0).logprob_b, -0.7);
  EXPECT_EQ(again->published.at(0).high, 2);
}

// The lists of members are the only place that could forget one: a full stage has one member for each of Stage.
TEST(ResultJson, NoMemberIsForgotten) {
  const Json json = to_json(full_result());
  EXPECT_EQ(json.size(), 18u);  // 16 members, format, version
  EXPECT_EQ(json["runs"][0].size(), 8u);
  EXPECT_EQ(json["runs"][0]["stages"][0].size(), 29u);
  EXPECT_EQ(json["runs"][0]["stages"][0]["process"].size(), 5u);
  EXPECT_EQ(json["runs"][0]["stages"][0]["after"].size(), 6u);
  EXPECT_EQ(json["target"].size(), 12u);
  EXPECT_EQ(json["plan"].size(), 6u);
  EXPECT_EQ(json["environment"].size(), 9u);
  EXPECT_EQ(json["divergences"][0].size(), 9u);
  EXPECT_EQ(json["published"][0].size(), 6u);
}

TEST(ResultJson, WhatIsUnknownIsAbsent) {
  BenchResult result{.name = "n", .kind = "protocol"};
  Stage stage{.name = "8K", .prefill_tokens_per_s = std::numeric_limits<double>::infinity(), .gap_p50_ms = NAN};
  stage.process.read_bytes = -5;
  result.runs = {{.source = "novel", .number = 1, .stages = {stage}}};
  const Json json = to_json(result);
  EXPECT_EQ(json["runs"][0]["stages"][0], (Json{{"name", "8K"}, {"status", "not_run"}}));
  for (const char* name : {"environment", "published", "variant", "created", "remarks"})
    EXPECT_FALSE(json.contains(name)) << name;
  const auto again = result_from_json(json, "x");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_FALSE(again->variant.has_value());
  EXPECT_FALSE(again->environment.cores.has_value());
  EXPECT_FALSE(again->runs[0].stages[0].prefill_tokens_per_s.has_value());
}

TEST(ResultJson, TargetsReturnAlone) {
  const TargetInfo info = full_result().target;
  const auto again = target_from_json(to_json(info), "x");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(info));
  EXPECT_EQ(target_from_json({{"engine", 1}}, "worker").error().message,
            "worker: engine: expected a string, found 1");
}

TEST(ResultJson, RunsReturnAlone) {
  const auto run = full_result().runs[0];
  const auto again = run_from_json(to_json(run), "x");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(run));
  EXPECT_EQ(run_from_json(Json::array(), "pipe").error().message,
            "pipe: the file: expected an object, found an array");
}

std::string error_after(const char* pointer, const Json& value) {
  Json json = to_json(full_result());
  json[Json::json_pointer(pointer)] = value;
  const auto result = result_from_json(json, "a.json");
  return result.ok() ? "read" : result.error().message;
}

TEST(ResultJson, ErrorsNameFileAndMember) {
  EXPECT_EQ(error_after("/format", "fathom-writing"),
            "a.json: format: expected \"fathom-bench\", found \"fathom-writing\"");
  EXPECT_EQ(error_after("/version", 2), "a.json: version: expected 1, which this program reads, found 2");
  EXPECT_EQ(error_after("/kind", "guess"),
            "a.json: kind: expected \"protocol\" or \"published\", found \"guess\"");
  EXPECT_EQ(error_after("/name", 7), "a.json: name: expected a string, found 7");
  EXPECT_EQ(error_after("/runs/0/stages/0/first_token_s", "22"),
            "a.json: runs[0].stages[0].first_token_s: expected a number from 0, found \"22\"");
  EXPECT_EQ(error_after("/runs/0/stages/0/gap_p50_ms", nullptr),
            "a.json: runs[0].stages[0].gap_p50_ms: expected a number from 0, found null");
  EXPECT_EQ(error_after("/runs/0/stages/0/gap_p50_ms", -1.5),
            "a.json: runs[0].stages[0].gap_p50_ms: expected a number from 0, found -1.5");
  EXPECT_EQ(error_after("/runs/0/stages/0/output_ids/1", 2147483648),
            "a.json: runs[0].stages[0].output_ids[1]: expected a whole number from 0 to 2147483647, found "
            "2147483648");
  EXPECT_EQ(error_after("/runs/0/number", 1.0),
            "a.json: runs[0].number: expected a whole number from 0 to 2147483647, found 1.0");
  EXPECT_EQ(error_after("/runs/0/stages/0/prompt_tokens", uint64_t{1} << 63),
            "a.json: runs[0].stages[0].prompt_tokens: expected a whole number from 0 to 9223372036854775807, "
            "found 9223372036854775808");
  EXPECT_EQ(error_after("/runs/0/stages/0/status", "fine"),
            "a.json: runs[0].stages[0].status: expected \"ok\", \"failed\" or \"not_run\", found \"fine\"");
  EXPECT_EQ(error_after("/runs/0/stages", Json::object()),
            "a.json: runs[0].stages: expected an array, found an object");
  EXPECT_EQ(error_after("/environment", "fast"), "a.json: environment: expected an object, found \"fast\"");
  EXPECT_EQ(error_after("/target/is_http", 1), "a.json: target.is_http: expected true or false, found 1");
  EXPECT_EQ(error_after("/published/0/metric", "speed").find("a.json: published[0].metric: expected the name"),
            0u);
  EXPECT_EQ(error_after("/variant", "tcp").find("a.json: variant: expected the name of a variant"), 0u);
}

TEST(ResultJson, MembersThatMustBeThereAreMissed) {
  for (const char* name : {"name", "kind", "plan"}) {
    Json json = to_json(full_result());
    json.erase(name);
    const auto result = result_from_json(json, "a.json");
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_EQ(result.error().message, fmt::format("a.json: {}: expected this member, found none", name));
  }
}

// Later writers may add members; readers of this version pass over them.
TEST(ResultJson, UnknownMembersArePassedOver) { EXPECT_EQ(error_after("/runs/0/colour", "blue"), "read"); }

class ResultFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fathom-result-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "result.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string error_of(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    const auto result = read_result(path_);
    return result.ok() ? "read" : result.error().message;
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(ResultFile, ReturnsWhole) {
  ASSERT_TRUE(write_result(path_, full_result()).ok());
  const auto again = read_result(path_);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(full_result()));
  EXPECT_EQ(files(), 1u);
  const auto text = read_text_file(path_, 1 << 20);
  EXPECT_NE(text->find("\"output_ids\": [0,17,129279],\n"), std::string::npos);
}

// Bytes of a server that are no UTF-8 must not cost the result.
TEST_F(ResultFile, StrayBytesInATextAreReplaced) {
  BenchResult result = full_result();
  result.runs[0].error = "broken \xff\xfe text";
  ASSERT_TRUE(write_result(path_, result).ok());
  const auto again = read_result(path_);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->runs[0].error, "broken \uFFFD\uFFFD text");
}

TEST_F(ResultFile, EveryTruncationIsAnErrorThatNamesTheFile) {
  ASSERT_TRUE(write_result(path_, full_result()).ok());
  const std::string whole = *read_text_file(path_, 1 << 20);
  for (size_t size = 0; size + 2 < whole.size(); size += 7) {
    const std::string message = error_of(whole.substr(0, size));
    EXPECT_EQ(message.find(path_ + ": expected JSON"), 0u) << size << ": " << message;
  }
}

TEST_F(ResultFile, WhatIsNoJsonOfTheFormatIsRefused) {
  const std::string whole = to_json(full_result()).dump();
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return error_of(text);
  };
  EXPECT_EQ(with("22.52", "NaN").find(path_ + ": expected JSON, found something else at byte"), 0u);
  EXPECT_EQ(with("22.52", "1e999"), path_ + ": expected numbers that a double can hold, found a larger one");
  EXPECT_NE(with("32768", "99999999999999999999").find("expected a whole number"), std::string::npos);
  EXPECT_EQ(error_of("[]"), path_ + ": expected a JSON object, found an array");
  EXPECT_EQ(error_of("{}"), path_ + ": format: expected \"fathom-bench\", found null");
  const std::string deep = path_ + ": expected JSON nested at most 16 levels deep, found more";
  EXPECT_EQ(error_of(std::string(100'000, '[')), deep);
  std::string objects;
  for (int level = 0; level < 100'000; ++level) objects += "{\"a\":";
  EXPECT_EQ(error_of(objects), deep);
  EXPECT_NE(read_result(folder_ / "none.json").error().message.find("none.json"), std::string::npos);
  EXPECT_FALSE(read_result(folder_).ok());
}

TEST_F(ResultFile, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(write_result(path_, full_result()).ok());
  const std::string before = *read_text_file(path_, 1 << 20);
  BenchResult larger = full_result();
  larger.remarks.emplace_back(100'000, 'x');

  // A limit on the size of files fails a write half way, as a full disk does.
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 50'000, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto written = write_result(path_, larger);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);

  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find(path_), std::string::npos) << written.error().message;
  EXPECT_EQ(*read_text_file(path_, 1 << 20), before);
  EXPECT_EQ(files(), 1u);
}

TEST_F(ResultFile, DevicesAndMissingFoldersAreErrors) {
  for (const std::string& path : {std::string("/dev/full"), (folder_ / "none" / "a.json").string()}) {
    const auto written = write_result(path, full_result());
    ASSERT_FALSE(written.ok()) << path;
    EXPECT_NE(written.error().message.find(path), std::string::npos) << written.error().message;
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

TEST(ResultCsv, HasARowForEachStage) {
  BenchResult result = full_result();
  result.published.clear();
  const std::vector<std::string> lines = lines_of(to_csv(result));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].find("result,source,run,begun,disturbed,excluded,stage,status,context_tokens,"), 0u);
  EXPECT_EQ(
      lines[1].find("\"노트북 \"\"A\"\"\",novel,2,2026-11-30T12:01:00Z,yes,yes,32K,failed,32768,41216,32768,"
                    "32769,0,8447,256,1455.1,22.52,37.03,36.89,29.4,0.1,27.5,27,310,27.01,27.9,31,45.5,"),
      0u)
      << lines[1];
  EXPECT_NE(lines[1].find(",\"late \"\"error\"\"\""), std::string::npos);
  // Unknown figures are empty cells.
  EXPECT_NE(lines[2].find(",64K,not_run,,,,,,,,,,,,"), std::string::npos) << lines[2];
  const auto cells = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(cells(lines[2]), cells(lines[0]));
}

TEST(ResultCsv, PublishedFiguresShareARowOfTheirStage) {
  BenchResult result{.name = "p", .kind = "published"};
  result.published = {{.source = "novel", .stage = "8K", .metric = "prefill_tokens_per_s", .value = 1342},
                      {.source = "code", .stage = "8K", .metric = "prefill_tokens_per_s", .value = 1437},
                      {.source = "novel", .stage = "8K", .metric = "first_token_s", .value = 6.11}};
  const std::vector<std::string> lines = lines_of(to_csv(result));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].find("p,novel,,,,,8K,published,,,,,,,,1342,6.11,"), 0u) << lines[1];
  EXPECT_EQ(lines[2].find("p,code,,,,,8K,published,,,,,,,,1437,,"), 0u) << lines[2];
}

// What a server says of itself ends up in spreadsheets.
TEST(ResultCsv, TextsThatLookLikeFormulasAreMarked) {
  BenchResult result{.name = "=HYPERLINK(\"http://x\")", .kind = "protocol"};
  result.runs = {{.source = "+1", .number = 1, .stages = {Stage{.name = "@8K", .error = "a,b\nc"}}}};
  const std::string text = to_csv(result);
  EXPECT_NE(text.find("\n\"'=HYPERLINK(\"\"http://x\"\")\",'+1,1,"), std::string::npos) << text;
  EXPECT_NE(text.find(",'@8K,"), std::string::npos);
  EXPECT_NE(text.find(",\"a,b\nc\"\n"), std::string::npos);
}

}  // namespace
}  // namespace fathom::measure
