// One rule of a grammar as a nondeterministic automaton, small rules written out inside of it.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar/gbnf.h"

namespace fathom {

constexpr size_t kNfaStatesMax = 1'000'000;

struct NfaEdge {
  enum class Kind : uint8_t { kEmpty, kBytes, kCall, kToken, kOtherToken };
  Kind kind = Kind::kEmpty;
  uint8_t first = 0, last = 0;  // kBytes
  int32_t id = 0;               // kCall: the rule; tokens: the id
  int32_t target = 0;
  int32_t next = -1;  // of the same state, in Nfa::edges
};

struct Nfa {
  static constexpr int32_t kStart = 0;
  static constexpr int32_t kFinal = 1;
  std::vector<int32_t> first_edge = {-1, -1};  // by state
  std::vector<NfaEdge> edges;

  int32_t add_state() {
    first_edge.push_back(-1);
    return static_cast<int32_t>(first_edge.size()) - 1;
  }
  void add_edge(int32_t from, NfaEdge edge) {
    edge.next = first_edge[static_cast<size_t>(from)];
    first_edge[static_cast<size_t>(from)] = static_cast<int32_t>(edges.size());
    edges.push_back(edge);
  }
};

/// What has to be known of each rule before automata are built.
struct RuleFacts {
  bool nullable = false;   // matches the empty text
  bool inlined = false;    // written out where it is used
  bool reachable = false;  // from the root, through rules that are not inlined
};
std::vector<RuleFacts> find_rule_facts(const Gbnf& gbnf);

/// kInvalidArgument when more than `states_max` states are needed.
Result<Nfa> build_nfa(const Gbnf& gbnf, const std::vector<RuleFacts>& facts, int32_t rule, size_t states_max);

}  // namespace fathom
