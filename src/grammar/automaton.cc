#include "grammar/automaton.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <unordered_map>

#include "grammar/nfa.h"

namespace fathom {
namespace {

using Edge = NfaEdge::Kind;
using Set = std::vector<int32_t>;  // states of an Nfa, ascending

struct RawCall {
  int32_t rule = 0;
  uint32_t back = 0;
};
struct RawState {
  std::vector<ByteEdge> bytes;
  std::vector<TokenEdge> tokens;
  std::vector<RawCall> calls;
  bool final = false;
};

struct SetHash {
  size_t operator()(const Set& set) const {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const int32_t state : set) hash = (hash ^ static_cast<uint64_t>(state)) * 0x100000001B3u;
    return hash ^ hash >> 29;
  }
};

/// What one grammar may cost while it is built.
struct Budget {
  int64_t work = kAutomatonWorkMax;
  size_t nfa_states = kNfaStatesMax;
  size_t edges = kAutomatonEdgesMax;
};

/// Makes one rule's automaton deterministic, as far as that does not make it much larger: `(a|b)* a
/// (a|b){20}` would need a million states. Such a rule keeps a state for each of the Nfa's.
class Determinizer {
 public:
  Determinizer(const Nfa& nfa, bool merge, size_t states_max, std::vector<RawState>& out, Budget& budget)
      : nfa_(nfa),
        merge_(merge),
        states_max_(states_max),
        out_(out),
        base_(out.size()),
        budget_(budget),
        closures_(nfa.first_edge.size()) {}

  /// The start is the first state that is added. False: too large.
  bool run() {
    out_.emplace_back();
    sets_.push_back(nullptr);
    if (!expand(closure(Nfa::kStart), base_)) return false;
    for (size_t k = 1; k < sets_.size(); ++k)
      if (!expand(*sets_[k], base_ + k)) return false;
    return true;
  }

 private:
  bool important(int32_t state) const {
    if (state == Nfa::kFinal) return true;
    for (int32_t e = nfa_.first_edge[static_cast<size_t>(state)]; e >= 0;
         e = nfa_.edges[static_cast<size_t>(e)].next)
      if (nfa_.edges[static_cast<size_t>(e)].kind != Edge::kEmpty) return true;
    return false;
  }

  /// States that matter and are reached without taking anything.
  const Set& closure(int32_t state) {
    Set& known = closures_[static_cast<size_t>(state)];
    if (!known.empty()) return known;
    if (marks_.empty()) marks_.resize(nfa_.first_edge.size());
    Set pending = {state};
    marks_[static_cast<size_t>(state)] = 1;
    for (size_t k = 0; k < pending.size(); ++k) {
      if (important(pending[k])) known.push_back(pending[k]);
      for (int32_t e = nfa_.first_edge[static_cast<size_t>(pending[k])]; e >= 0;) {
        const NfaEdge& edge = nfa_.edges[static_cast<size_t>(e)];
        e = edge.next;
        --budget_.work;
        if (edge.kind != Edge::kEmpty || marks_[static_cast<size_t>(edge.target)]) continue;
        marks_[static_cast<size_t>(edge.target)] = 1;
        pending.push_back(edge.target);
      }
    }
    for (const int32_t it : pending) marks_[static_cast<size_t>(it)] = 0;
    std::sort(known.begin(), known.end());
    budget_.work -= 4 * static_cast<int64_t>(known.size());  // they are kept: this bounds the memory, too
    return known;
  }

  bool add_state(const Set& set, uint32_t& id) {
    const auto [entry, fresh] = ids_.try_emplace(set, static_cast<uint32_t>(out_.size()));
    id = entry->second;
    if (!fresh) return true;
    budget_.work -= static_cast<int64_t>(set.size()) + 16;
    if (sets_.size() >= states_max_ || budget_.work < 0) return false;
    sets_.push_back(&entry->first);
    out_.emplace_back();
    return true;
  }

  /// Calls `emit` with the state for `targets`, or with each of their states.
  template <class Emit>
  bool reach(const Set& targets, Emit emit) {
    uint32_t id = 0;
    Set all;
    for (const int32_t target : targets) {
      const Set& one = closure(target);
      all.insert(all.end(), one.begin(), one.end());
      budget_.work -= static_cast<int64_t>(one.size());
      if (budget_.work < 0) return false;
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (all.empty()) return true;
    if (merge_) {
      if (!add_state(all, id)) return false;
      return emit(id);
    }
    for (const int32_t state : all)
      if (!add_state({state}, id) || !emit(id)) return false;
    return true;
  }

  bool count_edge() { return budget_.edges > 0 && budget_.edges--; }

  bool expand(const Set& set, size_t id) {
    std::vector<const NfaEdge*> bytes;
    std::map<std::pair<Edge, int32_t>, Set> others;
    bool final = false;
    for (const int32_t state : set) {
      final |= state == Nfa::kFinal;
      for (int32_t e = nfa_.first_edge[static_cast<size_t>(state)]; e >= 0;) {
        const NfaEdge& edge = nfa_.edges[static_cast<size_t>(e)];
        e = edge.next;
        --budget_.work;
        if (edge.kind == Edge::kBytes)
          bytes.push_back(&edge);
        else if (edge.kind != Edge::kEmpty)
          others[{edge.kind, edge.id}].push_back(edge.target);
      }
    }
    // The start is entered without taking anything, and an empty match is not its end but an edge around the
    // call.
    if (id != base_) out_[id].final = final;
    for (const auto& entry : others) {
      const Set& targets = entry.second;
      const auto& label = entry.first;
      const Edge kind = label.first;
      const int32_t named = label.second;
      const bool placed = reach(targets, [&](uint32_t target) {
        if (kind == Edge::kCall)
          out_[id].calls.push_back({named, target});
        else
          out_[id].tokens.push_back({named, kind == Edge::kOtherToken, target});
        return count_edge();
      });
      if (!placed) return false;
    }
    return merge_ ? expand_merged(bytes, id) : expand_apart(bytes, id);
  }

  bool expand_apart(const std::vector<const NfaEdge*>& bytes, size_t id) {
    for (const NfaEdge* edge : bytes) {
      const bool placed = reach({edge->target}, [&](uint32_t target) {
        out_[id].bytes.push_back({edge->first, edge->last, target});
        return count_edge();
      });
      if (!placed) return false;
    }
    return true;
  }

  bool expand_merged(const std::vector<const NfaEdge*>& bytes, size_t id) {
    std::bitset<257> borders;
    for (const NfaEdge* edge : bytes) borders.set(edge->first), borders.set(edge->last + size_t{1});
    Set targets;
    for (size_t first = 0; first < 256;) {
      size_t end = first + 1;
      while (end < 256 && !borders[end]) ++end;
      targets.clear();
      for (const NfaEdge* edge : bytes)
        if (edge->first <= first && first <= edge->last) targets.push_back(edge->target);
      budget_.work -= static_cast<int64_t>(bytes.size());
      std::sort(targets.begin(), targets.end());
      const bool placed = reach(targets, [&](uint32_t target) {
        std::vector<ByteEdge>& edges = out_[id].bytes;
        if (!edges.empty() && edges.back().target == target && edges.back().last + size_t{1} == first) {
          edges.back().last = static_cast<uint8_t>(end - 1);
          return true;
        }
        edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(end - 1), target});
        return count_edge();
      });
      if (!placed) return false;
      first = end;
    }
    return true;
  }

  const Nfa& nfa_;
  bool merge_;
  size_t states_max_;
  std::vector<RawState>& out_;
  size_t base_;
  Budget& budget_;
  std::vector<Set> closures_;
  std::vector<char> marks_;
  std::vector<const Set*> sets_;  // of each state; keys of ids_ stay where they are
  std::unordered_map<Set, uint32_t, SetHash> ids_;
};

/// Drops what cannot come to an end and arranges the rest.
class Assembler {
 public:
  Assembler(const Gbnf& gbnf, const std::vector<RuleFacts>& facts, std::vector<RawState> raw,
            std::vector<uint32_t> starts)
      : gbnf_(gbnf), facts_(facts), raw_(std::move(raw)), starts_(std::move(starts)), useful_(raw_.size()) {}

  Result<Automaton> assemble() {
    find_useful();
    const auto root = static_cast<size_t>(gbnf_.root);
    automaton_.empty_matches = facts_[root].nullable;
    const GbnfRule& rule = gbnf_.rules[root];
    if (!useful_[starts_[root]] && !automaton_.empty_matches)
      return Error::invalid("grammar, line {}, column {}: the rule \"{}\" matches nothing", rule.line,
                            rule.column, rule.name);
    place_states();
    FATHOM_TRY(rank_starts());
    return std::move(automaton_);
  }

 private:
  // Backwards from final states. A call leads on when its rule can end and the state behind it can.
  void find_useful() {
    std::vector<std::vector<uint32_t>> sources(raw_.size());  // by target of a byte or token
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> calls(
        raw_.size());  // by either needed state: source, other
    std::vector<uint32_t> pending;
    for (uint32_t state = 0; state < raw_.size(); ++state) {
      for (const ByteEdge& edge : raw_[state].bytes) sources[edge.target].push_back(state);
      for (const TokenEdge& edge : raw_[state].tokens) sources[edge.target].push_back(state);
      for (const RawCall& call : raw_[state].calls) {
        const uint32_t start = starts_[static_cast<size_t>(call.rule)];
        calls[start].push_back({state, call.back});
        calls[call.back].push_back({state, start});
      }
      if (raw_[state].final) pending.push_back(state);
    }
    for (const uint32_t state : pending) useful_[state] = 1;
    const auto add = [&](uint32_t state) {
      if (!useful_[state]) useful_[state] = 1, pending.push_back(state);
    };
    while (!pending.empty()) {
      const uint32_t state = pending.back();
      pending.pop_back();
      for (const uint32_t source : sources[state]) add(source);
      for (const auto& [source, other] : calls[state])
        if (useful_[other]) add(source);
    }
  }

  void place_states() {
    std::vector<uint32_t> numbers(raw_.size());
    uint32_t count = 0;
    for (size_t state = 0; state < raw_.size(); ++state)
      if (useful_[state]) numbers[state] = count++;
    const auto root = starts_[static_cast<size_t>(gbnf_.root)];
    automaton_.states.resize(std::max(count, 1u));
    if (useful_[root]) automaton_.start = numbers[root];
    for (size_t k = 0; k < raw_.size(); ++k) {
      if (!useful_[k]) continue;
      Automaton::State& state = automaton_.states[numbers[k]];
      state.bytes_begin = static_cast<uint32_t>(automaton_.byte_edges.size());
      state.tokens_begin = static_cast<uint32_t>(automaton_.token_edges.size());
      state.calls_begin = static_cast<uint32_t>(automaton_.call_edges.size());
      for (const ByteEdge& edge : raw_[k].bytes)
        if (useful_[edge.target])
          automaton_.byte_edges.push_back({edge.first, edge.last, numbers[edge.target]});
      for (const TokenEdge& edge : raw_[k].tokens)
        if (useful_[edge.target])
          automaton_.token_edges.push_back({edge.id, edge.other, numbers[edge.target]});
      for (const RawCall& call : raw_[k].calls) {
        const uint32_t start = starts_[static_cast<size_t>(call.rule)];
        if (useful_[start] && useful_[call.back])
          automaton_.call_edges.push_back({numbers[start], numbers[call.back]});
      }
      state.bytes_end = static_cast<uint32_t>(automaton_.byte_edges.size());
      state.tokens_end = static_cast<uint32_t>(automaton_.token_edges.size());
      state.calls_end = static_cast<uint32_t>(automaton_.call_edges.size());
      state.final = raw_[k].final;
      state.tail = state.final && state.bytes_begin == state.bytes_end &&
                   state.tokens_begin == state.tokens_end && state.calls_begin == state.calls_end;
    }
    for (size_t rule = 0; rule < starts_.size(); ++rule)
      if (facts_[rule].reachable && useful_[starts_[rule]]) rules_.push_back({numbers[starts_[rule]], rule});
  }

  // Callers first. Rules that are left over call themselves before they have taken anything.
  Result<void> rank_starts() {
    std::unordered_map<uint32_t, uint32_t> callers;  // of each start, not yet ranked
    for (const auto& [start, rule] : rules_)
      for (const CallEdge& call : automaton_.calls(start)) ++callers[call.start];
    std::vector<uint32_t> order;
    for (const auto& [start, rule] : rules_)
      if (!callers.contains(start)) order.push_back(start);
    for (size_t k = 0; k < order.size(); ++k) {
      automaton_.states[order[k]].rank = static_cast<uint32_t>(k);
      for (const CallEdge& call : automaton_.calls(order[k]))
        if (--callers[call.start] == 0) order.push_back(call.start);
    }
    automaton_.ranks = static_cast<uint32_t>(order.size());
    if (order.size() == rules_.size()) return {};
    return Error::invalid("grammar: {} begins with itself (left recursion)", recursive_rule(callers));
  }

  // Of the rules that are left, one that is part of a circle: going back from any of them leads into one.
  std::string recursive_rule(const std::unordered_map<uint32_t, uint32_t>& open) const {
    std::unordered_map<uint32_t, uint32_t> caller;
    const auto left = [&](uint32_t start) {
      const auto entry = open.find(start);
      return entry != open.end() && entry->second > 0;
    };
    uint32_t at = 0;
    for (const auto& [start, rule] : rules_) {
      if (!left(start)) continue;
      at = start;
      for (const CallEdge& call : automaton_.calls(start)) caller[call.start] = start;
    }
    for (size_t k = 0; k < rules_.size(); ++k) at = caller.at(at);
    for (const auto& [start, rule] : rules_) {
      if (start != at) continue;
      const GbnfRule& it = gbnf_.rules[rule];
      return fmt::format("the rule \"{}\" of line {}, column {}", it.name, it.line, it.column);
    }
    return "a rule";
  }

  const Gbnf& gbnf_;
  const std::vector<RuleFacts>& facts_;
  std::vector<RawState> raw_;
  std::vector<uint32_t> starts_;  // of each rule, in raw_
  std::vector<char> useful_;
  std::vector<std::pair<uint32_t, size_t>> rules_;  // start, rule
  Automaton automaton_;
};

Result<void> add_rule(const Gbnf& gbnf, const std::vector<RuleFacts>& facts, int32_t rule, Budget& budget,
                      std::vector<RawState>& raw) {
  FATHOM_ASSIGN(const Nfa nfa, build_nfa(gbnf, facts, rule, budget.nfa_states));
  budget.nfa_states -= std::min(budget.nfa_states, nfa.first_edge.size());
  const size_t base = raw.size();
  const size_t edges = budget.edges;
  const size_t left = kAutomatonStatesMax - std::min(kAutomatonStatesMax, base);
  if (Determinizer(nfa, true, std::min(left, 64 + 4 * nfa.first_edge.size()), raw, budget).run()) return {};
  raw.resize(base);
  budget.edges = edges;
  if (Determinizer(nfa, false, left, raw, budget).run()) return {};
  const GbnfRule& it = gbnf.rules[static_cast<size_t>(rule)];
  return Error::invalid(
      "grammar, line {}, column {}: with the rule \"{}\" the grammar needs more than {} states, {} "
      "edges, or {} steps to build",
      it.line, it.column, it.name, kAutomatonStatesMax, kAutomatonEdgesMax, kAutomatonWorkMax);
}

}  // namespace

Result<Automaton> build_automaton(const Gbnf& gbnf) {
  const std::vector<RuleFacts> facts = find_rule_facts(gbnf);
  std::vector<RawState> raw;
  std::vector<uint32_t> starts(gbnf.rules.size());
  Budget budget;
  for (size_t rule = 0; rule < gbnf.rules.size(); ++rule) {
    starts[rule] = static_cast<uint32_t>(raw.size());
    if (facts[rule].reachable) FATHOM_TRY(add_rule(gbnf, facts, static_cast<int32_t>(rule), budget, raw));
  }
  if (raw.empty()) raw.emplace_back();
  return Assembler(gbnf, facts, std::move(raw), std::move(starts)).assemble();
}

}  // namespace fathom
