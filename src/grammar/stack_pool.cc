#include "grammar/stack_pool.h"

#include <algorithm>

namespace fathom {
namespace {

uint64_t hash_frames(std::span<const StackFrame> frames, bool bottom) {
  uint64_t hash = bottom ? 0x9E3779B97F4A7C15u : 0xCBF29CE484222325u;
  for (const StackFrame& frame : frames) {
    hash = (hash ^ (uint64_t{frame.back} << 32 | frame.below)) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  return hash;
}

uint64_t pair_key(StackNode a, StackNode b) { return uint64_t{std::min(a, b)} << 32 | std::max(a, b); }

}  // namespace

StackPool::StackPool() : table_(64) { intern({}, true); }

size_t StackPool::slot_of(std::span<const StackFrame> frames, bool bottom) const {
  const size_t mask = table_.size() - 1;
  size_t slot = hash_frames(frames, bottom) & mask;
  for (; table_[slot] != 0; slot = (slot + 1) & mask) {
    const Node& node = nodes_[table_[slot] - 1];
    if (node.bottom == bottom && node.count == frames.size() &&
        std::equal(frames.begin(), frames.end(), frames_.begin() + node.begin))
      break;
  }
  return slot;
}

StackNode StackPool::intern(std::span<const StackFrame> frames, bool bottom) {
  work_ += static_cast<int64_t>(frames.size()) + 1;
  size_t slot = slot_of(frames, bottom);
  if (table_[slot] != 0) return table_[slot] - 1;
  if (2 * (nodes_.size() + 1) > table_.size()) {
    table_.assign(2 * table_.size(), 0);
    for (StackNode node = 0; node < nodes_.size(); ++node)
      table_[slot_of(this->frames(node), nodes_[node].bottom)] = node + 1;
    slot = slot_of(frames, bottom);
  }
  const auto node = static_cast<StackNode>(nodes_.size());
  nodes_.push_back({static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(frames.size()), bottom});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  table_[slot] = node + 1;
  return node;
}

StackNode StackPool::push(uint32_t back, StackNode below) {
  const StackFrame frame{back, below};
  return intern({&frame, 1}, false);
}

bool StackPool::find_union(StackNode a, StackNode b, StackNode& both) const {
  both = a;
  if (a == b) return true;
  const auto entry = unions_.find(pair_key(a, b));
  if (entry == unions_.end()) return false;
  both = entry->second;
  return true;
}

// Stacks can be as deep as the answer is long, so that a recursion here could overflow the thread's stack.
StackNode StackPool::unite(StackNode a, StackNode b) {
  StackNode both = 0;
  if (find_union(a, b, both)) return both;
  std::vector<std::pair<StackNode, StackNode>> open = {{a, b}};
  std::vector<StackFrame> merged;
  while (!open.empty()) {
    if (work_ > work_limit_) return a;
    const auto [x, y] = open.back();
    const std::span<const StackFrame> left = frames(x), right = frames(y);
    work_ += static_cast<int64_t>(left.size() + right.size()) + 1;
    merged.clear();
    bool waits = false;
    for (size_t i = 0, j = 0; i < left.size() || j < right.size();) {
      if (j == right.size() || (i < left.size() && left[i].back < right[j].back)) {
        merged.push_back(left[i++]);
      } else if (i == left.size() || right[j].back < left[i].back) {
        merged.push_back(right[j++]);
      } else {
        if (find_union(left[i].below, right[j].below, both)) {
          merged.push_back({left[i].back, both});
        } else {
          open.push_back({left[i].below, right[j].below});
          waits = true;
        }
        ++i, ++j;
      }
    }
    if (waits) continue;
    open.pop_back();
    unions_.emplace(pair_key(x, y), intern(merged, has_bottom(x) || has_bottom(y)));
  }
  find_union(a, b, both);
  return both;
}

StackPool StackPool::keep(std::span<StackNode> roots) const {
  std::vector<char> live(nodes_.size());
  for (const StackNode root : roots) live[root] = 1;
  for (size_t node = nodes_.size(); node-- > 0;) {
    if (!live[node]) continue;
    for (const StackFrame& frame : frames(static_cast<StackNode>(node))) live[frame.below] = 1;
  }
  StackPool kept;
  std::vector<StackNode> numbers(nodes_.size());
  std::vector<StackFrame> renamed;
  for (StackNode node = 0; node < nodes_.size(); ++node) {
    if (!live[node]) continue;
    renamed.clear();
    for (const StackFrame& frame : frames(node)) renamed.push_back({frame.back, numbers[frame.below]});
    numbers[node] = kept.intern(renamed, has_bottom(node));
  }
  for (StackNode& root : roots) root = numbers[root];
  return kept;
}

}  // namespace fathom
