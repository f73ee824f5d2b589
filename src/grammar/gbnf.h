// GBNF text as a tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_ranges.h"

namespace fathom {

constexpr size_t kGbnfTextBytesMax = size_t{4} << 20;
constexpr size_t kGbnfNodesMax = 500'000;
constexpr size_t kGbnfRulesMax = 50'000;
constexpr int kGbnfDepthMax = 128;              // of parentheses
constexpr int32_t kGbnfRepetitionMax = 65'535;  // the largest m or n of {m,n}

struct GbnfNode {
  enum class Kind : uint8_t {
    kBytes,       // `bytes`, one after the other
    kClass,       // a character of `ranges`; not empty, normal
    kRule,        // the rule `id`
    kToken,       // the token `id`
    kOtherToken,  // any token but `id`, and none that ends an answer
    kSequence,
    kChoice,
    kRepeat,  // its child `min` to `max` times; max -1: without end
  };
  Kind kind = Kind::kSequence;
  int32_t id = 0;
  int32_t min = 0, max = 0;
  std::string bytes;
  CodeRanges ranges;
  std::vector<int32_t> children;  // in Gbnf::nodes
};

struct GbnfRule {
  std::string name;
  int32_t body = -1;         // in Gbnf::nodes
  int line = 0, column = 0;  // from 1, of its definition
};

struct Gbnf {
  std::vector<GbnfNode> nodes;
  std::vector<GbnfRule> rules;
  int32_t root = 0;  // in rules
};

/// kInvalidArgument with line and column (in bytes, from 1).
Result<Gbnf> parse_gbnf(std::string_view text);

}  // namespace fathom
