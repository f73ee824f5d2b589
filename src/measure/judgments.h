// From filled answer sheets and the key to figures of engines.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "measure/agreement.h"
#include "measure/judging.h"
#include "measure/statistics.h"

namespace fathom::measure {

/// Proof of having read to the end: so many characters, white space apart, have to be the end of the text.
constexpr size_t kProofCharactersMin = 12;

struct Judgment {
  std::string judge, text;
  std::array<int32_t, kJudgingItems.size()> scores{};
  int32_t total() const;
};

struct EngineScore {
  std::string engine;
  int64_t texts = 0, texts_judged = 0, judgments = 0;
  int64_t within_goal = 0, loops = 0, within_goal_without_loop = 0, all_facts_kept = 0;
  std::array<Sample, kJudgingItems.size()> items;  // over texts, each the mean of its judges
  Sample total;                                    // 0 .. 24
};

struct JudgingOutcome {
  std::string id;
  std::vector<std::string> judges;
  std::vector<Judgment> judgments;    // that count
  std::vector<std::string> rejected;  // what does not, and why
  std::vector<EngineScore> engines;
  std::array<JudgeAgreement, kJudgingItems.size()> items;
  JudgeAgreement total;
  std::vector<std::string> statements;  // what these figures can and cannot say
};

/// Sheets that cannot be read, or are of another package, are rejected whole; entries that name an unknown text,
/// lack an item, go beyond 0 .. 4, or show another ending are rejected alone; a judge's second judgement of a text
/// is, too. Texts left empty are no judgements. Fails only when the key cannot be read.
Result<JudgingOutcome> merge_judgments(const std::string& key_path, const std::vector<std::string>& sheet_paths);

/// Whether `copied` is the end of a text that ends with `end`, white space and the form of quotation marks apart.
bool proves_reading(std::string_view copied, std::string_view end);

nlohmann::ordered_json to_json(const JudgingOutcome& outcome);
std::string to_markdown(const JudgingOutcome& outcome);

}  // namespace fathom::measure
