// What is to be written: a brief with a goal for its length and facts that must be kept.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "measure/text_figures.h"

namespace fathom::measure {

struct Fact {
  std::string name;                 // for people
  std::vector<std::string> any_of;  // one of them has to occur
};

enum class LengthUnit : uint8_t { kCharactersWithoutSpaces, kWords };
const char* length_unit_name(LengthUnit unit);  // "characters_without_spaces", "words"
const char* unit_words(LengthUnit unit);        // "characters without spaces", "words"

struct LengthGoal {
  LengthUnit unit = LengthUnit::kCharactersWithoutSpaces;
  int64_t low = 0, high = 0;
  int64_t length_of(const TextFigures& figures) const {
    return unit == LengthUnit::kWords ? figures.words : figures.characters_without_spaces;
  }
  bool holds(const TextFigures& figures) const { return length_of(figures) >= low && length_of(figures) <= high; }
};

struct WritingBrief {
  std::string name;      // part of file names: letters, digits, - and _
  std::string language;  // for people
  std::string text;      // what the target is told, whole
  LengthGoal length;
  std::vector<Fact> facts;
};

/// Names of the briefs that come with the program, or a path.
Result<WritingBrief> read_brief(const std::string& name_or_path);
std::vector<std::string> brief_names();

nlohmann::ordered_json to_json(const WritingBrief& brief);
Result<WritingBrief> brief_from_json(const nlohmann::json& json, const std::string& where);

/// Of each fact, whether one of its strings occurs in the text.
std::vector<bool> facts_kept(const WritingBrief& brief, std::string_view text);

}  // namespace fathom::measure
