// Contents of JSON strings as GBNF, without the quotes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/code_ranges.h"

namespace fathom {

constexpr size_t kPatternBytesMax = 4096;
constexpr int kPatternDepthMax = 32;

/// Characters of `ranges` as a JSON string spells them: as they are, or by the shortest escape where one is
/// needed.
std::string gbnf_string_class(const CodeRanges& ranges);
/// Ranges as a class of GBNF, in its brackets.
std::string gbnf_class(const CodeRanges& ranges, bool inverse = false);

struct PatternGrammar {
  std::string expression;
  int64_t min_length = 0;   // of what it matches, in characters
  int64_t max_length = -1;  // -1: without end
  /// Set if the pattern is ^[class]{m,n}$: `repeated` is then the class, and the lengths are all that it
  /// says.
  std::string repeated;
};
/// A regular expression in ECMAScript's notation. Not anchored, it matches texts that contain a match; `any`
/// is a rule for one character of a string. kInvalidArgument: look-around, back references and the like.
Result<PatternGrammar> gbnf_pattern(std::string_view pattern, std::string_view any);

/// "date", "uuid", ...; none: not known.
std::optional<std::string> gbnf_format(std::string_view format);

}  // namespace fathom
