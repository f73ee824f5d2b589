#include "grammar/schema_keys.h"

#include <fmt/format.h>

#include <map>

#include "grammar/code_ranges.h"
#include "grammar/schema_strings.h"

namespace fathom {
namespace {

/// A trie of the names; each node is a rule for what may follow the characters up to it.
struct Node {
  std::map<char32_t, size_t> children;
  bool is_name = false;
};

std::vector<Node> make_trie(const std::vector<std::string>& names) {
  std::vector<Node> trie(1);
  for (const std::string& name : names) {
    size_t node = 0;
    for (size_t at = 0; at < name.size();) {
      const char32_t code = take_code(name, at);
      if (code > kLastCode) break;  // JSON text is UTF-8
      const auto [entry, fresh] = trie[node].children.try_emplace(code, trie.size());
      node = entry->second;
      if (fresh) trie.emplace_back();
    }
    trie[node].is_name = true;
  }
  return trie;
}

}  // namespace

std::string other_keys(const std::vector<std::string>& names, JsonRules& rules) {
  // What a key may be spelled with: characters as they are, and those that have a short escape.
  const CodeRanges spelled =
      normalize_ranges({{0x20, kLastCode}, {'\b', '\b'}, {'\t', '\n'}, {'\f', '\f'}, {'\r', '\r'}});
  const std::string any = rules.fresh_name();
  rules.define(any, fmt::format("{}* \"\\\"\"", gbnf_string_class(spelled)));
  const std::vector<Node> trie = make_trie(names);
  std::vector<std::string> rule_names;
  for (size_t node = 0; node < trie.size(); ++node) rule_names.push_back(rules.fresh_name());
  for (size_t node = 0; node < trie.size(); ++node) {
    CodeRanges taken;
    std::vector<std::string> choices;
    if (!trie[node].is_name) choices.push_back("\"\\\"\"");
    for (const auto& [code, child] : trie[node].children) {
      taken.push_back({code, code});
      const CodeRanges one = intersect_ranges({{code, code}}, spelled);
      if (!one.empty()) choices.push_back(fmt::format("{} {}", gbnf_string_class(one), rule_names[child]));
    }
    const CodeRanges left = intersect_ranges(spelled, invert_ranges(normalize_ranges(taken)));
    choices.push_back(fmt::format("{} {}", gbnf_string_class(left), any));
    rules.define(rule_names[node], fmt::format("{}", fmt::join(choices, " | ")));
  }
  return fmt::format("\"\\\"\" {}", rule_names[0]);
}

}  // namespace fathom
