// What a campaign of the writing test leaves: writing.json and a file for each text. docs/bench_writing.md
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "measure/briefs.h"
#include "measure/target.h"
#include "measure/text_figures.h"

namespace fathom::measure {

struct WritingSettings {
  std::string target;  // what writes, as the user named it
  std::vector<WritingBrief> briefs;
  std::vector<uint64_t> seeds{42, 43, 44};
  double temperature = 0.5;
  int32_t max_tokens = 32768;
};

enum class TextStatus : uint8_t { kNotRun, kDone, kFailed };
const char* text_status_name(TextStatus status);  // "not_run", "done", "failed"

/// What is read out of a text, for the brief it follows.
struct TextExamination {
  TextFigures figures;
  int64_t length = 0;  // in the goal's unit
  bool is_within_goal = false;
  std::vector<bool> facts;  // [facts of the brief]
  int64_t facts_kept() const;
};
TextExamination examine(const WritingBrief& brief, std::string_view text);

struct WrittenText {
  std::string brief;
  uint64_t seed = 0;
  TextStatus status = TextStatus::kNotRun;
  std::string error;                        // of a failed one
  std::vector<std::string> earlier_errors;  // of attempts before this one
  std::string file,
      sha256;             // in the folder, and of its bytes; of a failed text, what had come of it: "" if nothing
  std::string begun;      // UTC, ISO 8601
  bool is_fresh = false;  // by a process that was started for it
  double total_s = 0;     // sent -> last byte
  std::optional<double> first_token_s;
  std::optional<double> generation_f1_tokens_per_s, generation_f2_tokens_per_s;  // as of a Stage
  int64_t tokens = 0;
  std::string tokens_from;  // who counted them: "ids", "claim" of the target, "arrivals" of pieces
  std::string finish_reason;
  LoopFinding loop;
  TextExamination examination;  // of a finished one
};

struct WritingRecord {
  std::string program;               // that ran the campaign: "fathom 0.1.0"
  std::string created;               // UTC, ISO 8601
  std::optional<TargetInfo> target;  // unknown until it started once
  WritingSettings settings;
  std::vector<WrittenText> texts;  // [briefs * seeds], all seeds of the first brief first

  const WritingBrief* brief(const std::string& name) const;
};

/// `texts` not run, in order.
WritingRecord new_record(const WritingSettings& settings);

/// FOLDER/writing.json.
std::string record_path(const std::string& folder);
Result<void> write_record(const std::string& folder, const WritingRecord& record);
/// Reads the texts, too: a finished one that was changed since is an error, one that is gone counts as not run.
Result<WritingRecord> read_record(const std::string& folder);
/// Of a finished text.
Result<std::string> read_written_text(const std::string& folder, const WrittenText& text);

/// What of the settings, or of what two targets say of themselves, is not the same; empty: they agree. Addresses
/// and commands are not compared: a port may be another one each time, and the settings name the target.
std::vector<std::string> differences(const WritingSettings& kept, const WritingSettings& wanted);

/// Two tables in Markdown: a line a text, and a line a brief.
std::string writing_table(const WritingRecord& record);

}  // namespace fathom::measure
