#include "measure/writing_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "measure/json_members.h"
#include "measure/result.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kTextBytesMax = uint64_t{64} << 20;
constexpr int64_t kMany = int64_t{1} << 53;
constexpr const char* kStatusNames[] = {"not_run", "done", "failed"};

OrderedJson number_or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson curve_to_json(const std::vector<GramCount>& curve) {
  OrderedJson shares = OrderedJson::array();
  for (const GramCount& count : curve) shares.push_back(count.share());
  return shares;
}

OrderedJson to_json(const TextFigures& figures) {
  return {{"characters", figures.characters},
          {"characters_without_spaces", figures.characters_without_spaces},
          {"invalid_bytes", figures.invalid_bytes},
          {"words", figures.words},
          {"distinct_words", figures.distinct_words},
          {"repeated_character_8grams", figures.character_grams.share()},
          {"repeated_word_4grams", figures.word_grams.share()},
          {"repeated_character_8grams_per_1000_characters", curve_to_json(figures.character_gram_curve)},
          {"repeated_word_4grams_per_1000_characters", curve_to_json(figures.word_gram_curve)},
          {"distinct_words_per_100_words", figures.distinct_word_curve},
          {"last_characters", figures.last_characters}};
}

OrderedJson to_json(const LoopFinding& loop) {
  return {{"looked_for_in", loop_basis_name(loop.basis)},
          {"found", loop.report.found},
          {"period", loop.report.period_tokens},
          {"repeats", loop.report.repeats},
          {"first", loop.report.first_token}};
}

OrderedJson to_json(const TextExamination& examination, const WritingBrief& brief) {
  OrderedJson facts = OrderedJson::object();
  for (size_t fact = 0; fact < brief.facts.size(); ++fact)
    facts[brief.facts[fact].name] = static_cast<bool>(examination.facts[fact]);
  return {{"length", examination.length},
          {"within_goal", examination.is_within_goal},
          {"facts_kept", examination.facts_kept()},
          {"facts", facts},
          {"figures", to_json(examination.figures)}};
}

OrderedJson to_json(const WrittenText& text, const WritingBrief& brief) {
  OrderedJson json = {{"brief", text.brief}, {"seed", text.seed}, {"status", text_status_name(text.status)}};
  if (!text.earlier_errors.empty()) json["earlier_errors"] = text.earlier_errors;
  if (text.status == TextStatus::kNotRun) return json;
  if (text.status == TextStatus::kFailed) json["error"] = text.error;
  json["file"] = text.file;
  json["sha256"] = text.sha256;
  json["begun"] = text.begun;
  json["fresh_process"] = text.is_fresh;
  json["total_s"] = text.total_s;
  json["first_token_s"] = number_or_null(text.first_token_s);
  json["generation_f1_tokens_per_s"] = number_or_null(text.generation_f1_tokens_per_s);
  json["generation_f2_tokens_per_s"] = number_or_null(text.generation_f2_tokens_per_s);
  json["tokens"] = text.tokens;
  json["tokens_from"] = text.tokens_from;
  json["finish_reason"] = text.finish_reason;
  json["loop"] = to_json(text.loop);
  if (text.status == TextStatus::kDone) json["examination"] = to_json(text.examination, brief);
  return json;
}

Result<LoopFinding> loop_from_json(const Json& json, const std::string& where) {
  JsonMembers members(json, where);
  LoopFinding loop;
  const std::string basis = members.text("looked_for_in");
  if (basis == loop_basis_name(LoopBasis::kCharacters))
    loop.basis = LoopBasis::kCharacters;
  else if (basis != loop_basis_name(LoopBasis::kIds))
    members.refuse("looked_for_in", "\"ids\" or \"characters\"", basis);
  loop.report.found = members.flag("found");
  loop.report.period_tokens = static_cast<int32_t>(members.whole("period", 0, INT32_MAX));
  loop.report.repeats = members.whole("repeats", 0, kMany);
  loop.report.first_token = members.whole("first", 0, kMany);
  FATHOM_TRY(members.result());
  return loop;
}

/// All but what is read out of the text itself.
Result<WrittenText> text_from_json(const Json& json, const std::string& where) {
  JsonMembers members(json, where);
  WrittenText text;
  text.brief = members.text("brief");
  text.seed = members.seed("seed");
  const std::string status = members.text("status");
  const auto* name = std::find(std::begin(kStatusNames), std::end(kStatusNames), status);
  if (name == std::end(kStatusNames))
    members.refuse("status", "\"not_run\", \"done\" or \"failed\"", status);
  else
    text.status = static_cast<TextStatus>(name - std::begin(kStatusNames));
  if (json.is_object() && json.contains("earlier_errors")) text.earlier_errors = members.texts("earlier_errors");
  FATHOM_TRY(members.result());
  if (text.status == TextStatus::kNotRun) return text;
  if (text.status == TextStatus::kFailed) text.error = members.text("error");
  text.file = members.text("file");
  // A name from a file that may come from anyone: nothing outside of the folder is opened.
  if (text.file.find('/') != std::string::npos || text.file == "..")
    members.refuse("file", "a name without folders", text.file);
  text.sha256 = members.text("sha256");
  text.begun = members.text("begun");
  text.is_fresh = members.flag("fresh_process");
  text.total_s = members.number("total_s");
  text.first_token_s = members.maybe_number("first_token_s");
  text.generation_f1_tokens_per_s = members.maybe_number("generation_f1_tokens_per_s");
  text.generation_f2_tokens_per_s = members.maybe_number("generation_f2_tokens_per_s");
  text.tokens = members.whole("tokens", 0, kMany);
  text.tokens_from = members.text("tokens_from");
  text.finish_reason = members.text("finish_reason");
  const Json& loop = members.object("loop");
  FATHOM_TRY(members.result());
  FATHOM_ASSIGN(text.loop, loop_from_json(loop, members.place("loop")));
  return text;
}

OrderedJson to_json(const WritingSettings& settings) {
  OrderedJson briefs = OrderedJson::array();
  for (const WritingBrief& brief : settings.briefs) briefs.push_back(to_json(brief));
  return {{"target", settings.target},         {"seeds", settings.seeds}, {"temperature", settings.temperature},
          {"max_tokens", settings.max_tokens}, {"thinking", false},       {"briefs", briefs}};
}

Result<WritingSettings> settings_from_json(const Json& json, const std::string& where) {
  JsonMembers members(json, where);
  WritingSettings settings;
  settings.seeds.clear();
  for (const Json& seed : members.array("seeds")) {
    if (seed.is_number_unsigned())
      settings.seeds.push_back(seed.get<uint64_t>());
    else
      members.refuse("seeds", "whole numbers of 0 or more", seed);
  }
  settings.target = members.text("target");
  settings.temperature = members.number("temperature");
  settings.max_tokens = static_cast<int32_t>(members.whole("max_tokens", 1, INT32_MAX));
  const Json& briefs = members.array("briefs");
  FATHOM_TRY(members.result());
  for (size_t number = 0; number < briefs.size(); ++number) {
    FATHOM_ASSIGN(WritingBrief brief, brief_from_json(briefs[number], members.place("briefs", number)));
    settings.briefs.push_back(std::move(brief));
  }
  return settings;
}

/// Fills the examination of a finished text.
Result<void> examine_file(const std::string& folder, const WritingBrief& brief, WrittenText& text) {
  if (text.status != TextStatus::kDone) return {};
  if (!file_exists(folder + "/" + text.file)) {
    std::vector<std::string> errors = std::move(text.earlier_errors);
    errors.push_back(text.file + " was finished, and is gone");
    text = {.brief = text.brief, .seed = text.seed, .earlier_errors = std::move(errors)};
    return {};
  }
  FATHOM_ASSIGN(const std::string bytes, read_written_text(folder, text));
  text.examination = examine(brief, bytes);
  return {};
}

}  // namespace

const char* text_status_name(TextStatus status) { return kStatusNames[static_cast<size_t>(status)]; }

int64_t TextExamination::facts_kept() const { return std::count(facts.begin(), facts.end(), true); }

TextExamination examine(const WritingBrief& brief, std::string_view text) {
  TextExamination examination;
  examination.figures = figures_of(text);
  examination.length = brief.length.length_of(examination.figures);
  examination.is_within_goal = brief.length.holds(examination.figures);
  examination.facts = facts_kept(brief, text);
  return examination;
}

const WritingBrief* WritingRecord::brief(const std::string& name) const {
  for (const WritingBrief& candidate : settings.briefs)
    if (candidate.name == name) return &candidate;
  return nullptr;
}

WritingRecord new_record(const WritingSettings& settings) {
  WritingRecord record{.program = "fathom " FATHOM_VERSION, .created = utc_now(), .settings = settings};
  for (const WritingBrief& brief : settings.briefs)
    for (const uint64_t seed : settings.seeds) record.texts.push_back({.brief = brief.name, .seed = seed});
  return record;
}

std::string record_path(const std::string& folder) { return folder + "/writing.json"; }

Result<void> write_record(const std::string& folder, const WritingRecord& record) {
  OrderedJson json = {{"kind", "writing"},
                      {"version", 1},
                      {"program", record.program},
                      {"created", record.created},
                      {"target", record.target ? OrderedJson(to_json(*record.target)) : OrderedJson(nullptr)},
                      {"settings", to_json(record.settings)},
                      {"texts", OrderedJson::array()}};
  for (const WrittenText& text : record.texts) json["texts"].push_back(to_json(text, *record.brief(text.brief)));
  return write_json_file(record_path(folder), json);
}

Result<WritingRecord> read_record(const std::string& folder) {
  const std::string path = record_path(folder);
  FATHOM_ASSIGN(const Json json, read_json_object(path));
  JsonMembers members(json, path);
  const std::string kind = members.text("kind");
  if (kind != "writing") members.refuse("kind", "\"writing\"", kind);
  members.whole("version", 1, 1);
  WritingRecord record{.program = members.text("program"), .created = members.text("created")};
  const Json& settings = members.object("settings");
  const Json& texts = members.array("texts");
  FATHOM_TRY(members.result());
  if (json.contains("target") && !json["target"].is_null()) {
    FATHOM_ASSIGN(record.target, target_from_json(json["target"], members.place("target")));
  }
  FATHOM_ASSIGN(record.settings, settings_from_json(settings, members.place("settings")));
  std::set<std::pair<std::string, uint64_t>> seen;
  for (size_t number = 0; number < texts.size(); ++number) {
    const std::string where = members.place("texts", number);
    FATHOM_ASSIGN(WrittenText text, text_from_json(texts[number], where));
    const WritingBrief* brief = record.brief(text.brief);
    if (brief == nullptr)
      return Error::invalid("{}: expected a brief of the settings, found \"{}\"", where, text.brief);
    if (!seen.emplace(text.brief, text.seed).second)
      return Error::invalid("{}: expected each brief and seed once, found {} {} again", where, text.brief,
                            text.seed);
    FATHOM_TRY(examine_file(folder, *brief, text));
    record.texts.push_back(std::move(text));
  }
  return record;
}

Result<std::string> read_written_text(const std::string& folder, const WrittenText& text) {
  FATHOM_ASSIGN(std::string bytes, read_text_file(folder + "/" + text.file, kTextBytesMax));
  if (const std::string found = sha256_hex(bytes); found != text.sha256) {
    return Error::invalid("{}/{}: expected the text as it was written, SHA-256 {}, found {}: it was changed since",
                          folder, text.file, text.sha256, found);
  }
  return bytes;
}

std::vector<std::string> differences(const WritingSettings& kept, const WritingSettings& wanted) {
  std::vector<std::string> found;
  const auto compare = [&](const char* name, const auto& there, const auto& here) {
    if (there != here) found.push_back(fmt::format("{}: {} there, {} now", name, there, here));
  };
  compare("target", kept.target, wanted.target);
  compare("temperature", kept.temperature, wanted.temperature);
  compare("tokens at most", kept.max_tokens, wanted.max_tokens);
  compare("seeds", fmt::format("{}", fmt::join(kept.seeds, ",")), fmt::format("{}", fmt::join(wanted.seeds, ",")));
  const auto names = [](const WritingSettings& settings) {
    std::string text;
    for (const WritingBrief& brief : settings.briefs) text += (text.empty() ? "" : ",") + brief.name;
    return text;
  };
  compare("briefs", names(kept), names(wanted));
  if (names(kept) != names(wanted)) return found;
  for (size_t brief = 0; brief < kept.briefs.size(); ++brief) {
    const OrderedJson there = to_json(kept.briefs[brief]), here = to_json(wanted.briefs[brief]);
    for (const auto& [member, value] : here.items())
      if (there[member] != value)
        found.push_back(fmt::format("brief {}: another {}", wanted.briefs[brief].name, member));
  }
  return found;
}

}  // namespace fathom::measure
