// Rules of GBNF for JSON, written under a prefix as they are needed.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace fathom {

/// White space is what models write: nothing, or a space after ':' and ',', or a new line with its
/// indentation.
class JsonRules {
 public:
  enum Rule { kValue, kObject, kArray, kString, kChar, kNumber, kInteger, kSpace, kComma, kEdge, kRuleCount };

  explicit JsonRules(std::string_view prefix) : prefix_(prefix) {}

  /// The rule's name; its definition will be in text(). kSpace: behind ':'; kComma: with the comma; kEdge:
  /// inside of brackets.
  std::string use(Rule rule);
  void define(std::string_view name, std::string_view body);
  std::string fresh_name();
  size_t size() const { return text_.size(); }
  /// All definitions.
  std::string take_text();

 private:
  std::string prefix_;
  std::string text_;
  std::array<bool, kRuleCount> used_ = {};
  int names_ = 0;
};

}  // namespace fathom
