// A grammar as automata over bytes and tokens, one a rule, which call one another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "grammar/gbnf.h"

namespace fathom {

constexpr size_t kAutomatonStatesMax = 200'000;
constexpr size_t kAutomatonEdgesMax = 4'000'000;
constexpr int64_t kAutomatonWorkMax = 15'000'000;  // steps of building; about a second at most

struct ByteEdge {
  uint8_t first = 0, last = 0;
  uint32_t target = 0;
};
struct TokenEdge {
  int32_t id = 0;
  bool other = false;  // any token but `id`
  uint32_t target = 0;
};
/// The rule whose automaton begins at state `start`, then on at state `back`.
struct CallEdge {
  uint32_t start = 0;
  uint32_t back = 0;
};

/// Every state can still reach the end of its rule. The start of a rule has no edge into it and is never
/// final: a call of a rule that may be empty stands beside an edge around it.
struct Automaton {
  struct State {
    uint32_t bytes_begin = 0, bytes_end = 0;    // in byte_edges
    uint32_t tokens_begin = 0, tokens_end = 0;  // in token_edges
    uint32_t calls_begin = 0, calls_end = 0;    // in call_edges
    uint32_t rank = 0;  // of a rule's start: below the ranks of all that it calls before any byte
    bool final = false;
    bool tail = false;  // final and without edges: whoever comes back here goes back at once
  };
  std::vector<State> states;
  std::vector<ByteEdge> byte_edges;
  std::vector<TokenEdge> token_edges;
  std::vector<CallEdge> call_edges;
  uint32_t start = 0;
  bool empty_matches = false;
  uint32_t ranks = 0;  // of all starts: 0 to ranks - 1

  std::span<const ByteEdge> bytes(uint32_t state) const {
    return std::span(byte_edges)
        .subspan(states[state].bytes_begin, states[state].bytes_end - states[state].bytes_begin);
  }
  std::span<const TokenEdge> tokens(uint32_t state) const {
    return std::span(token_edges)
        .subspan(states[state].tokens_begin, states[state].tokens_end - states[state].tokens_begin);
  }
  std::span<const CallEdge> calls(uint32_t state) const {
    return std::span(call_edges)
        .subspan(states[state].calls_begin, states[state].calls_end - states[state].calls_begin);
  }
};

/// kInvalidArgument: left recursion, a root that nothing can match, or a limit above.
Result<Automaton> build_automaton(const Gbnf& gbnf);

}  // namespace fathom
