#include "grammar/json_rules.h"

#include <fmt/format.h>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/schema_numbers.h"

namespace fathom {
namespace {

constexpr std::string_view kNames[] = {"value",  "object",  "array", "string", "char",
                                       "number", "integer", "space", "comma",  "edge"};
static_assert(std::size(kNames) == JsonRules::kRuleCount);

// Bounded: a model must not be able to go on with white space for ever.
constexpr std::string_view kNewLine = R"("\n" (" "{0,48} | "\t"{0,12}))";

// Escaped surrogates come in pairs: a high one and a low one behind it.
constexpr std::string_view kCharacter =
    R"([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-ceA-CEfF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} |)"
    R"( [dD] [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2})))";

}  // namespace

std::string JsonRules::use(Rule rule) {
  const std::string name = fmt::format("{}-{}", prefix_, kNames[rule]);
  if (used_[rule]) return name;
  used_[rule] = true;
  switch (rule) {
    case kValue:
      define(name, fmt::format(R"({} | {} | {} | {} | "true" | "false" | "null")", use(kObject), use(kArray),
                               use(kString), use(kNumber)));
      break;
    case kObject:
      define(name, fmt::format(R"("{{" {0} ({1} ":" {2} {3} ({4} {1} ":" {2} {3})* {0})? "}}")", use(kEdge),
                               use(kString), use(kSpace), use(kValue), use(kComma)));
      break;
    case kArray:
      define(name, fmt::format(R"("[" {0} ({1} ({2} {1})* {0})? "]")", use(kEdge), use(kValue), use(kComma)));
      break;
    case kString:
      define(name, fmt::format(R"("\"" {}* "\"")", use(kChar)));
      break;
    case kChar:
      define(name, kCharacter);
      break;
    case kNumber:
      // Within what a double holds: JSON's readers refuse 1e999.
      define(name,
             fmt::format(
                 R"("-"? ("0" | [1-9] [0-9]{{0,{0}}}) ("." [0-9]{{1,{1}}})? ([eE] [+\-]? [0-9]{{1,2}})?)",
                 kNumberDigitsMax - 1, kNumberDigitsMax));
      break;
    case kInteger:
      define(name, fmt::format(R"("0" | "-"? [1-9] [0-9]{{0,{}}})", kNumberDigitsMax - 1));
      break;
    case kSpace:
      define(name, R"(" "?)");
      break;
    case kComma:
      define(name, fmt::format(R"("," (" " | {})?)", kNewLine));
      break;
    case kEdge:
      define(name, fmt::format("({})?", kNewLine));
      break;
    case kRuleCount:
      break;
  }
  return name;
}

void JsonRules::define(std::string_view name, std::string_view body) {
  text_ += fmt::format("{} ::= {}\n", name, body);
}

std::string JsonRules::fresh_name() { return fmt::format("{}-{}", prefix_, ++names_); }

std::string JsonRules::take_text() { return std::move(text_); }

std::string json_object_gbnf(std::string_view prefix) {
  JsonRules rules(prefix);
  const std::string object = rules.use(JsonRules::kObject);
  rules.define(prefix, object);
  return rules.take_text();
}

}  // namespace fathom
