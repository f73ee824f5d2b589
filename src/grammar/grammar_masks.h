// Which tokens a state allows whatever called its rule: found once a grammar, shared by all answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/state_sets.h"
#include "grammar/vocabulary.h"

namespace fathom {

constexpr size_t kSharedMaskBytesMax = size_t{16} << 20;  // of one grammar
constexpr int64_t kWorkPerToken = 2'000'000;              // of one walk, for one mask or one token

/// Ids as a list when they are few, as bits otherwise.
class IdSet {
 public:
  IdSet() = default;
  explicit IdSet(std::span<const uint64_t> bits);
  void add_to(std::span<uint64_t> bits) const;
  /// Clears the bits of ids that are not in the set.
  void restrict(std::span<uint64_t> bits) const;
  size_t bytes() const { return 4 * ids_.size() + 8 * bits_.size(); }

 private:
  std::vector<int32_t> ids_;
  std::vector<uint64_t> bits_;
};

struct StateMask {
  IdSet allowed;
  /// Nodes of the trie at which the rule has ended within a token: what may follow depends on the callers.
  std::vector<uint32_t> exits;

  size_t bytes() const { return allowed.bytes() + 4 * exits.size() + sizeof(StateMask); }
};

/// Marks in `bits` the tokens below `node` that can be walked from `set`; calls exit(node) where the grammar
/// ended.
template <class Exit>
void walk_tokens(const TokenTrie& trie, StateSets& sets, uint32_t node, StateSets::Set set,
                 std::span<uint64_t> bits, Exit exit) {
  struct Level {
    uint32_t end;
    StateSets::Set set;
  };
  std::vector<Level> path = {{trie.end(node), set}};
  for (uint32_t at = node + 1; at < path.front().end;) {
    while (path.back().end <= at) path.pop_back();
    const StateSets::Set next = sets.step(path.back().set, trie.byte(at));
    const uint32_t end = trie.end(at);
    if (next == StateSets::kDead) {
      at = end;
      continue;
    }
    for (const int32_t id : trie.ids(at)) bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    if (end > at + 1) {
      if (sets.ended(next)) exit(at);
      path.push_back({end, next});
    }
    ++at;
  }
}

/// Any thread.
class StateMasks {
 public:
  StateMasks(const Automaton& automaton, const TokenTrie& trie);
  ~StateMasks();
  /// Null: the work was too much. `own` keeps the mask alive when the shared ones have used up their memory.
  const StateMask* of(uint32_t state, std::unique_ptr<StateMask>& own) const;
  /// Makes the masks of the states that allow the most, so that no answer waits for them.
  void prepare() const;

 private:
  std::unique_ptr<StateMask> make(uint32_t state) const;

  const Automaton& automaton_;
  const TokenTrie& trie_;
  mutable std::vector<std::atomic<const StateMask*>> masks_;  // by state
  mutable std::atomic<size_t> bytes_ = 0;
};

}  // namespace fathom
