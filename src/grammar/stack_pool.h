// Sets of stacks of return states, shared and kept once: equal sets have equal numbers.
//
// A node stands for the set of stacks that a walk may have below its current state. It holds at most one
// frame a return state, and that frame's node holds everything that may lie below it: the set of stacks, read
// from the top, is a deterministic automaton. However ambiguous a grammar is, a walk has one node for each
// state it may be in.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace fathom {

using StackNode = uint32_t;

struct StackFrame {
  uint32_t back = 0;  // state to go on with
  StackNode below = 0;
  bool operator==(const StackFrame&) const = default;
};

class StackPool {
 public:
  /// Only the empty stack.
  static constexpr StackNode kBottom = 0;

  StackPool();

  StackNode push(uint32_t back, StackNode below);
  /// The stacks of both.
  StackNode unite(StackNode a, StackNode b);
  /// Ascending by return state.
  std::span<const StackFrame> frames(StackNode node) const {
    return std::span(frames_).subspan(nodes_[node].begin, nodes_[node].count);
  }
  /// Whether the empty stack is among them.
  bool has_bottom(StackNode node) const { return nodes_[node].bottom; }

  size_t size() const { return nodes_.size(); }
  size_t bytes() const { return nodes_.size() * 24 + frames_.size() * 8 + unions_.size() * 48; }
  /// Grows with everything that is done.
  int64_t work() const { return work_; }
  /// Once work() has passed this, results are meaningless.
  void set_work_limit(int64_t limit) { work_limit_ = limit; }

  /// Copies what `roots` need into a fresh pool and writes their new numbers.
  StackPool keep(std::span<StackNode> roots) const;

 private:
  struct Node {
    uint32_t begin = 0;
    uint32_t count = 0;
    bool bottom = false;
  };

  StackNode intern(std::span<const StackFrame> frames, bool bottom);
  size_t slot_of(std::span<const StackFrame> frames, bool bottom) const;
  bool find_union(StackNode a, StackNode b, StackNode& both) const;

  std::vector<Node> nodes_;  // a node's frames have lower numbers than it has
  std::vector<StackFrame> frames_;
  std::vector<uint32_t> table_;  // open addressing; node + 1, 0 is free
  std::unordered_map<uint64_t, StackNode> unions_;
  int64_t work_ = 0;
  int64_t work_limit_ = INT64_MAX;
};

}  // namespace fathom
