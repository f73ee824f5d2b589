// Blind judging: texts of several engines in a drawn order, without a word of who wrote them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/writing_record.h"

namespace fathom::measure {

constexpr int32_t kScoreMax = 4;
/// What each means is in judging/instructions.md, which goes into the package.
inline constexpr std::array<const char*, 6> kJudgingItems = {"request_followed", "consistency", "plot_and_ending",
                                                             "readability",      "depth",       "no_repetition"};

struct JudgedFolder {
  std::string engine;  // what results call it
  std::string folder;  // of a writing campaign
};

struct JudgingPackage {
  std::string id;  // of the package, in its sheet and in its key
  int64_t texts = 0;
  std::vector<std::string> left_out;  // texts that were not finished, for people
  std::vector<std::string> warnings;  // texts that name what wrote them, for people
};

struct JudgingOptions {
  std::vector<JudgedFolder> folders;
  std::string package;           // folder that does not exist, or is empty
  std::string key;               // file outside of the package
  std::optional<uint64_t> seed;  // of the order; drawn from the system if not given. In the key, nowhere else
};

/// Writes text_01.txt and so on, brief_NAME.txt, answer_sheet.json and instructions.md into the package, and who
/// wrote what into the key.
Result<JudgingPackage> make_judging_package(const JudgingOptions& options);

struct KeyText {
  std::string name;  // "text_01"
  std::string engine, brief;
  uint64_t seed = 0;
  std::string sha256;
  std::string end;  // the last characters that are no white space, as far as a judge could copy
  int64_t length = 0, facts = 0, facts_kept = 0;
  bool is_within_goal = false, has_loop = false;
};

struct JudgingKey {
  std::string id;
  uint64_t seed = 0;
  std::vector<std::string> engines;  // in the order they were given
  std::vector<KeyText> texts;
  std::vector<std::string> left_out;
};
Result<JudgingKey> read_judging_key(const std::string& path);

}  // namespace fathom::measure
