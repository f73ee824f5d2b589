// Where a walk through a grammar may be: sets of states with the stacks below them, kept once and with the
// ways between them remembered, so that the second walk along the same text only reads tables.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/stack_pool.h"

namespace fathom {

struct StateItem {
  uint32_t state = 0;  // has edges of bytes or tokens
  StackNode stack = 0;
  bool operator==(const StateItem&) const = default;
};

/// Used by one thread. Deterministic: the same walks give the same numbers.
class StateSets {
 public:
  using Set = uint32_t;
  static constexpr Set kDead = 0;  // nothing can follow, and nothing has ended

  explicit StateSets(const Automaton& automaton);

  /// At the start of the grammar.
  Set start();
  /// Only `state`, as it is, with the empty stack below.
  Set single(uint32_t state);
  /// After leaving the rules whose callers `stack` holds; the empty stack leads nowhere.
  Set leave(StackNode stack);
  Set step(Set set, uint8_t byte) {
    const Set known = rows_[set] ? (*rows_[set])[byte] : kUnknown;
    return known != kUnknown ? known : find_step(set, byte);
  }
  /// After the token `id`, spelled `bytes`: whole, as an edge of tokens, or byte by byte.
  Set step_token(Set set, int32_t id, std::string_view bytes);

  std::span<const StateItem> items(Set set) const {
    return std::span(items_).subspan(sets_[set].begin, sets_[set].count);
  }
  /// Whether the grammar may end here: some stack is used up.
  bool ended(Set set) const { return sets_[set].ended; }
  const StackPool& stacks() const { return stacks_; }

  size_t bytes() const {
    return items_.size() * 8 + sets_.size() * 80 + row_count_ * sizeof(Row) + stacks_.bytes();
  }
  int64_t work() const { return work_ + stacks_.work(); }
  /// After `amount` more of work() every new step leads to kDead and exhausted() says so.
  void allow_work(int64_t amount) {
    work_limit_ = work() + amount;
    stacks_.set_work_limit(stacks_.work() + amount);
  }
  bool exhausted() const { return exhausted_; }

  /// Forgets everything but `set`, which gets a new number.
  void keep_only(Set& set);

 private:
  static constexpr Set kUnknown = UINT32_MAX;
  using Row = std::array<Set, 256>;
  struct Range {
    uint32_t begin = 0, count = 0;
    bool ended = false;
  };

  Set find_step(Set set, uint8_t byte);
  /// From where a byte or token has just led (arrived_) to all that can follow.
  Set close();
  void pop_finals(bool& ended);
  void merge_arrived();
  void call(uint32_t state, StackNode stack);
  Set intern(std::span<const StateItem> items, bool ended);

  const Automaton& automaton_;
  StackPool stacks_;
  std::vector<StateItem> items_;
  std::vector<Range> sets_;
  std::vector<std::unique_ptr<Row>> rows_;  // by set, made when first needed
  size_t row_count_ = 0;
  std::unordered_multimap<uint64_t, Set> known_;  // by hash
  std::vector<StateItem> arrived_, closed_;
  std::unordered_map<uint64_t, char> popped_;
  std::vector<StackNode> call_stacks_;  // by rank of a start
  std::vector<uint32_t> call_starts_;   // by rank
  std::vector<uint32_t> open_calls_;    // heap of ranks, lowest first
  int64_t work_ = 0;
  int64_t work_limit_ = INT64_MAX;
  bool exhausted_ = false;
};

}  // namespace fathom
