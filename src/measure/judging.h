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
struct JudgingItem {
  const char* name;     // in sheets
  const char* meaning;  // for the instructions
};
inline constexpr std::array<JudgingItem, 6> kJudgingItems = {{
    {"request_followed", "The text is what the brief asks for: form, length, person, tense, facts."},
    {"consistency", "Names, places, times, objects and what people know stay the same and fit together."},
    {"plot_and_ending", "Things happen for reasons, the tension holds, and the ending answers the beginning."},
    {"readability", "The sentences are correct, natural and good to read in the language of the brief."},
    {"depth", "People and their choices matter; the text says more than what happens."},
    {"no_repetition", "Nothing is said again and again: neither words, nor sentences, nor scenes."},
}};

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
  std::string package;              // folder that does not exist, or is empty
  std::string key;                  // file outside of the package
  std::optional<uint64_t> seed;     // of the order; drawn from the system if not given. In the key, nowhere else
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
