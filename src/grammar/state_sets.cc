#include "grammar/state_sets.h"

#include <algorithm>

namespace fathom {
namespace {

constexpr StackNode kNoCall = UINT32_MAX;
constexpr int64_t kWorkPerRow = 64;  // a row is a kilobyte: the limit of work is one of memory, too

uint64_t item_key(StateItem item) { return uint64_t{item.state} << 32 | item.stack; }

bool by_state(const StateItem& a, const StateItem& b) {
  return a.state != b.state ? a.state < b.state : a.stack < b.stack;
}

uint64_t hash_items(std::span<const StateItem> items, bool ended) {
  uint64_t hash = ended ? 0x9E3779B97F4A7C15u : 0xCBF29CE484222325u;
  for (const StateItem& item : items) {
    hash = (hash ^ item_key(item)) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

StateSets::StateSets(const Automaton& automaton)
    : automaton_(automaton), call_stacks_(automaton.ranks, kNoCall), call_starts_(automaton.ranks) {
  intern({}, false);
}

StateSets::Set StateSets::start() {
  arrived_ = {{automaton_.start, StackPool::kBottom}};
  const Set inside = close();
  if (!automaton_.empty_matches) return inside;
  const std::vector<StateItem> copy(items(inside).begin(), items(inside).end());
  return intern(copy, true);
}

StateSets::Set StateSets::single(uint32_t state) {
  const StateItem item{state, StackPool::kBottom};
  return intern({&item, 1}, false);
}

StateSets::Set StateSets::leave(StackNode stack) {
  arrived_.clear();
  for (const StackFrame& frame : stacks_.frames(stack)) arrived_.push_back({frame.back, frame.below});
  return close();
}

StateSets::Set StateSets::find_step(Set set, uint8_t byte) {
  arrived_.clear();
  for (const StateItem& item : items(set)) {
    for (const ByteEdge& edge : automaton_.bytes(item.state))
      if (edge.first <= byte && byte <= edge.last) arrived_.push_back({edge.target, item.stack});
  }
  const Set next = arrived_.empty() ? kDead : close();
  if (!rows_[set]) {
    rows_[set] = std::make_unique<Row>();
    rows_[set]->fill(kUnknown);
    ++row_count_;
    work_ += kWorkPerRow;
  }
  (*rows_[set])[byte] = next;
  return next;
}

StateSets::Set StateSets::step_token(Set set, int32_t id, std::string_view bytes) {
  Set spelled = bytes.empty() ? kDead : set;
  for (const char byte : bytes) {
    spelled = step(spelled, static_cast<uint8_t>(byte));
    if (spelled == kDead) break;
  }
  arrived_.clear();
  for (const StateItem& item : items(set)) {
    for (const TokenEdge& edge : automaton_.tokens(item.state))
      if ((edge.id == id) != edge.other) arrived_.push_back({edge.target, item.stack});
  }
  if (arrived_.empty()) return spelled;
  const Set whole = close();
  if (spelled == kDead || whole == kDead) return spelled == kDead ? whole : spelled;

  arrived_.assign(items(spelled).begin(), items(spelled).end());
  arrived_.insert(arrived_.end(), items(whole).begin(), items(whole).end());
  merge_arrived();
  const std::vector<StateItem> both = arrived_;
  return intern(both, ended(spelled) || ended(whole));
}

// Stacks that end a rule go on behind its callers.
void StateSets::pop_finals(bool& ended) {
  popped_.clear();
  for (size_t k = 0; k < arrived_.size(); ++k) {
    const StateItem item = arrived_[k];
    ++work_;
    if (!automaton_.states[item.state].final) continue;
    ended |= stacks_.has_bottom(item.stack);
    for (const StackFrame& frame : stacks_.frames(item.stack)) {
      const StateItem next{frame.back, frame.below};
      if (popped_.try_emplace(item_key(next), 1).second) arrived_.push_back(next);
    }
    if (work() > work_limit_) return;
  }
}

// One item a state.
void StateSets::merge_arrived() {
  std::sort(arrived_.begin(), arrived_.end(), by_state);
  size_t kept = 0;
  for (const StateItem& item : arrived_) {
    if (kept > 0 && arrived_[kept - 1].state == item.state)
      arrived_[kept - 1].stack = stacks_.unite(arrived_[kept - 1].stack, item.stack);
    else
      arrived_[kept++] = item;
  }
  arrived_.resize(kept);
}

void StateSets::call(uint32_t state, StackNode stack) {
  for (const CallEdge& edge : automaton_.calls(state)) {
    ++work_;
    const uint32_t rank = automaton_.states[edge.start].rank;
    // Nothing would happen at `back` but going back further; keeping it would let lists that recurse at their
    // end grow a stack.
    const StackNode below = automaton_.states[edge.back].tail ? stack : stacks_.push(edge.back, stack);
    if (call_stacks_[rank] != kNoCall) {
      call_stacks_[rank] = stacks_.unite(call_stacks_[rank], below);
      continue;
    }
    call_stacks_[rank] = below;
    call_starts_[rank] = edge.start;
    open_calls_.push_back(rank);
    std::push_heap(open_calls_.begin(), open_calls_.end(), std::greater<>());
  }
}

StateSets::Set StateSets::close() {
  bool ended = false;
  pop_finals(ended);
  merge_arrived();
  closed_.clear();
  const auto take = [&](StateItem item) {
    const Automaton::State& state = automaton_.states[item.state];
    if (state.bytes_begin != state.bytes_end || state.tokens_begin != state.tokens_end)
      closed_.push_back(item);
    if (state.calls_begin != state.calls_end) call(item.state, item.stack);
  };
  for (const StateItem& item : arrived_) take(item);
  // In the order of ranks every caller has been seen before the rule is entered: each is entered once.
  while (!open_calls_.empty()) {
    std::pop_heap(open_calls_.begin(), open_calls_.end(), std::greater<>());
    const uint32_t rank = open_calls_.back();
    open_calls_.pop_back();
    const StateItem item{call_starts_[rank], call_stacks_[rank]};
    call_stacks_[rank] = kNoCall;
    take(item);
  }
  if (work() > work_limit_) {
    exhausted_ = true;
    return kDead;
  }
  std::sort(closed_.begin(), closed_.end(), by_state);
  return intern(closed_, ended);
}

StateSets::Set StateSets::intern(std::span<const StateItem> items, bool ended) {
  work_ += static_cast<int64_t>(items.size()) + 1;
  const uint64_t hash = hash_items(items, ended);
  for (auto [entry, end] = known_.equal_range(hash); entry != end; ++entry) {
    const std::span<const StateItem> other = this->items(entry->second);
    if (sets_[entry->second].ended == ended &&
        std::equal(items.begin(), items.end(), other.begin(), other.end()))
      return entry->second;
  }
  const auto set = static_cast<Set>(sets_.size());
  sets_.push_back({static_cast<uint32_t>(items_.size()), static_cast<uint32_t>(items.size()), ended});
  items_.insert(items_.end(), items.begin(), items.end());
  rows_.emplace_back();
  known_.emplace(hash, set);
  return set;
}

void StateSets::keep_only(Set& set) {
  std::vector<StateItem> live(items(set).begin(), items(set).end());
  const bool live_ended = ended(set);
  std::vector<StackNode> roots;
  for (const StateItem& item : live) roots.push_back(item.stack);
  StackPool kept = stacks_.keep(roots);
  for (size_t k = 0; k < live.size(); ++k) live[k].stack = roots[k];
  StateSets fresh(automaton_);
  fresh.stacks_ = std::move(kept);
  std::swap(items_, fresh.items_);
  std::swap(sets_, fresh.sets_);
  std::swap(rows_, fresh.rows_);
  std::swap(row_count_, fresh.row_count_);
  std::swap(known_, fresh.known_);
  std::swap(stacks_, fresh.stacks_);
  set = intern(live, live_ended);
}

}  // namespace fathom
