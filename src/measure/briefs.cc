#include "measure/briefs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "measure/embedded_files.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr size_t kNameBytesMax = 40;
constexpr size_t kFactsMax = 100;
constexpr int64_t kLengthMax = 10'000'000;

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Result<LengthGoal> length_from_json(const Json& json, const std::string& where) {
  JsonMembers members(json, where);
  LengthGoal goal;
  const std::string unit = members.text("unit");
  if (unit == length_unit_name(LengthUnit::kWords))
    goal.unit = LengthUnit::kWords;
  else if (unit != length_unit_name(LengthUnit::kCharactersWithoutSpaces))
    members.refuse("unit", "\"characters_without_spaces\" or \"words\"", unit);
  goal.low = members.whole("low", 0, kLengthMax);
  goal.high = members.whole("high", goal.low, kLengthMax);
  FATHOM_TRY(members.result());
  return goal;
}

Result<Fact> fact_from_json(const Json& json, const std::string& where) {
  JsonMembers members(json, where);
  Fact fact{members.text("name"), members.texts("any_of")};
  if (fact.name.empty()) members.refuse("name", "a name", fact.name);
  if (fact.any_of.empty()) members.refuse("any_of", "at least one string", Json::array());
  for (const std::string& string : fact.any_of)
    if (folded(string).find_first_not_of(' ') == std::string::npos)
      members.refuse("any_of", "strings that are not empty", string);
  FATHOM_TRY(members.result());
  return fact;
}

}  // namespace

const char* length_unit_name(LengthUnit unit) {
  return unit == LengthUnit::kWords ? "words" : "characters_without_spaces";
}

const char* unit_words(LengthUnit unit) {
  return unit == LengthUnit::kWords ? "words" : "characters without spaces";
}

nlohmann::ordered_json to_json(const WritingBrief& brief) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::array();
  for (const Fact& fact : brief.facts) facts.push_back({{"name", fact.name}, {"any_of", fact.any_of}});
  return {
      {"name", brief.name},
      {"language", brief.language},
      {"text", brief.text},
      {"length",
       {{"unit", length_unit_name(brief.length.unit)}, {"low", brief.length.low}, {"high", brief.length.high}}},
      {"facts", facts}};
}

Result<WritingBrief> brief_from_json(const Json& json, const std::string& where) {
  JsonMembers members(json, where);
  WritingBrief brief;
  brief.name = members.text("name");
  if (!is_file_name(brief.name))
    members.refuse("name", fmt::format("1 to {} letters of ASCII, digits, - or _", kNameBytesMax), brief.name);
  brief.language = members.text("language");
  brief.text = members.text("text");
  if (brief.text.empty()) members.refuse("text", "what the target is told", brief.text);
  const Json& length = members.object("length");
  const Json& facts = members.array("facts");
  if (facts.size() > kFactsMax) members.refuse("facts", fmt::format("at most {} facts", kFactsMax), facts);
  FATHOM_TRY(members.result());
  FATHOM_ASSIGN(brief.length, length_from_json(length, members.place("length")));
  for (size_t number = 0; number < facts.size(); ++number) {
    FATHOM_ASSIGN(Fact fact, fact_from_json(facts[number], members.place("facts", number)));
    brief.facts.push_back(std::move(fact));
  }
  return brief;
}

std::vector<std::string> brief_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : writing_briefs()) names.emplace_back(file.name.substr(0, file.name.find('.')));
  return names;
}

Result<WritingBrief> read_brief(const std::string& name_or_path) {
  for (const EmbeddedFile& file : writing_briefs()) {
    if (name_or_path != file.name.substr(0, file.name.find('.'))) continue;
    FATHOM_ASSIGN(const Json json, parse_json_object(file.bytes, std::string(file.name)));
    return brief_from_json(json, std::string(file.name));
  }
  if (!file_exists(name_or_path)) {
    return Error::not_found("{}: expected a file or one of {}, found neither", name_or_path,
                            fmt::join(brief_names(), ", "));
  }
  FATHOM_ASSIGN(const Json json, read_json_object(name_or_path));
  return brief_from_json(json, name_or_path);
}

std::vector<bool> facts_kept(const WritingBrief& brief, std::string_view text) {
  const std::string searched = folded(text);
  std::vector<bool> kept;
  for (const Fact& fact : brief.facts) {
    kept.push_back(std::any_of(fact.any_of.begin(), fact.any_of.end(),
                               [&](const std::string& string) { return occurs_in(searched, string); }));
  }
  return kept;
}

}  // namespace fathom::measure
