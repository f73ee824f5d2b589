#include "engine/prefix_cache.h"

#include <algorithm>
#include <limits>

namespace fathom {
namespace {

// Longer edges are chains of nodes, so that splitting one copies little: 1.8 MB of rows at the real shape.
constexpr int64_t kNodeTokensMax = 2048;
// A node, a snapshot, their vectors and pointers to them.
constexpr int64_t kNodeOverheadBytes = 256;

}  // namespace

struct PrefixCache::Snapshot {
  std::vector<std::byte> windows;
  std::vector<float> logits;  // of the token after the last; empty: none
  int64_t rewind_floor = 0;
  uint64_t last_used = 0;

  int64_t bytes() const { return static_cast<int64_t>(windows.size() + logits.size() * 4); }
};

struct PrefixCache::Node {
  Node* parent = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int32_t> tokens;  // [begin, end)
  std::vector<std::byte> rows;  // SequenceState::export_rows(begin, end)
  std::vector<std::unique_ptr<Node>> children;  // no two begin with the same token
  std::unique_ptr<Snapshot> snapshot;           // at `end`

  Node* child(int32_t token) const {
    for (const auto& next : children)
      if (next->tokens.front() == token) return next.get();
    return nullptr;
  }
};

PrefixCache::PrefixCache(const StateShape& shape, int64_t bytes_max)
    : shape_(shape), bytes_max_(bytes_max), root_(std::make_unique<Node>()) {}

// A long conversation is a long chain: it is taken apart from its ends, not by recursion.
PrefixCache::~PrefixCache() {
  while (!kept_.empty()) drop(*kept_.back());
}

PrefixCache::Statistics PrefixCache::statistics() const {
  return {.entries = static_cast<int64_t>(kept_.size()),
          .bytes = bytes_,
          .bytes_max = bytes_max_,
          .evictions = evictions_};
}

int64_t PrefixCache::node_bytes(int64_t begin, int64_t end) const {
  return shape_.rows_bytes(begin, end) + (end - begin) * 4 + kNodeOverheadBytes;
}

// ---- Looking ----

PrefixCache::Place PrefixCache::walk(std::span<const int32_t> tokens) const {
  Place place{.node = root_.get(), .matched = 0};
  while (place.matched == place.node->end && place.matched < static_cast<int64_t>(tokens.size())) {
    Node* next = place.node->child(tokens[static_cast<size_t>(place.matched)]);
    if (next == nullptr) break;
    const std::span<const int32_t> rest = tokens.subspan(static_cast<size_t>(place.matched));
    const size_t shorter = std::min(rest.size(), next->tokens.size());
    const auto parted =
        std::mismatch(next->tokens.begin(), next->tokens.begin() + static_cast<ptrdiff_t>(shorter), rest.begin());
    place.node = next;
    place.matched += parted.first - next->tokens.begin();
  }
  return place;
}

int64_t PrefixCache::kept_tokens(std::span<const int32_t> tokens) const {
  const Place place = walk(tokens);
  for (const Node* node = place.node; node != nullptr; node = node->parent)
    if (node->snapshot != nullptr && node->end <= place.matched) return node->end;
  return 0;
}

PrefixCache::Match PrefixCache::find(std::span<const int32_t> prompt) const {
  const auto wanted = static_cast<int64_t>(prompt.size());
  const Place place = walk(prompt);
  Match best;
  const auto take = [&](Node* node, int64_t reused) {
    if (reused <= best.reused_tokens) return;
    best.reused_tokens = reused;
    best.snapshot_tokens = node->end;
    best.node = node;
  };
  for (Node* node = place.node; node != nullptr; node = node->parent) {
    if (node->snapshot == nullptr || node->end > place.matched) continue;
    if (node->end < wanted) take(node, node->end);
    else if (!node->snapshot->logits.empty()) take(node, wanted);
  }
  // A snapshot somewhat further on serves as well: its rings can go back a little.
  const int64_t keep = std::min(place.matched, wanted - 1);
  if (keep > best.reused_tokens) look_beyond(*place.node, keep, best);
  return best;
}

void PrefixCache::look_beyond(Node& node, int64_t keep, Match& best) const {
  if (node.snapshot != nullptr && node.end > keep && node.snapshot->rewind_floor <= keep &&
      (best.reused_tokens < keep || node.end < best.snapshot_tokens)) {
    best.reused_tokens = keep;
    best.snapshot_tokens = node.end;
    best.node = &node;
  }
  if (node.end - keep > shape_.ring_slots) return;
  for (const auto& next : node.children) look_beyond(*next, keep, best);
}

Result<bool> PrefixCache::restore(const Match& match, SequenceState& state, std::span<float> logits) {
  FATHOM_CHECK(match.node != nullptr && match.node->snapshot != nullptr);
  std::vector<SequenceState::RowsPiece> pieces;
  for (const Node* node = match.node; node->parent != nullptr; node = node->parent)
    pieces.push_back({.begin = node->begin, .end = node->end, .bytes = node->rows.data()});
  std::reverse(pieces.begin(), pieces.end());
  Snapshot& snapshot = *match.node->snapshot;
  FATHOM_TRY(state.assemble(pieces, snapshot.windows));
  snapshot.last_used = ++clock_;
  if (match.reused_tokens < match.node->end) {
    FATHOM_TRY(state.rewind(match.reused_tokens));
    return false;
  }
  if (snapshot.logits.empty()) return false;
  std::copy(snapshot.logits.begin(), snapshot.logits.end(), logits.begin());
  return true;
}

// ---- Keeping ----

int64_t PrefixCache::needed_bytes(const Place& place, std::span<const int32_t> tokens, size_t logits) const {
  const auto end = static_cast<int64_t>(tokens.size());
  int64_t bytes = shape_.windows_bytes() + static_cast<int64_t>(logits) * 4 + kNodeOverheadBytes;
  if (place.matched < place.node->end) bytes += kNodeOverheadBytes;  // it will be split
  for (int64_t begin = place.matched; begin < end; begin += kNodeTokensMax)
    bytes += node_bytes(begin, std::min(end, begin + kNodeTokensMax));
  return bytes;
}

bool PrefixCache::keep(std::span<const int32_t> tokens, const SequenceState& state, std::span<const float> logits,
                       std::span<const std::span<const int32_t>> incoming) {
  const auto end = static_cast<int64_t>(tokens.size());
  FATHOM_CHECK(end == state.position() && !state.decoder_pending());
  if (end == 0) return false;
  Place place = walk(tokens);
  if (place.matched == end && place.node->end == end && place.node->snapshot != nullptr) {
    Snapshot& there = *place.node->snapshot;
    there.last_used = ++clock_;
    const auto more = static_cast<int64_t>(logits.size()) * 4;
    if (there.logits.empty() && bytes_ + more <= bytes_max_) {
      there.logits.assign(logits.begin(), logits.end());
      bytes_ += more;
    }
    return true;
  }
  if (needed_bytes({.node = root_.get(), .matched = 0}, tokens, logits.size()) > bytes_max_) return false;
  // What makes room may take away some of the path, so the place is looked for again.
  while (bytes_ + needed_bytes(place, tokens, logits.size()) > bytes_max_) {
    if (!make_room(needed_bytes(place, tokens, logits.size()), place.node, incoming)) return false;
    place = walk(tokens);
  }
  Node* node = place.node;
  if (place.matched < node->end) node = split(*node, place.matched);
  while (node->end < end) node = append(*node, tokens, std::min(end, node->end + kNodeTokensMax), state);
  node->snapshot = std::make_unique<Snapshot>();
  node->snapshot->windows = state.export_windows().value();
  node->snapshot->logits.assign(logits.begin(), logits.end());
  node->snapshot->rewind_floor = state.rewind_floor();
  node->snapshot->last_used = ++clock_;
  bytes_ += node->snapshot->bytes() + kNodeOverheadBytes;
  kept_.push_back(node);
  return true;
}

PrefixCache::Node* PrefixCache::append(Node& parent, std::span<const int32_t> tokens, int64_t end,
                                       const SequenceState& state) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->begin = parent.end;
  node->end = end;
  const auto own = tokens.subspan(static_cast<size_t>(node->begin), static_cast<size_t>(end - node->begin));
  node->tokens.assign(own.begin(), own.end());
  node->rows.resize(static_cast<size_t>(shape_.rows_bytes(node->begin, end)));
  state.export_rows(node->begin, end, node->rows.data());
  bytes_ += node_bytes(node->begin, end);
  parent.children.push_back(std::move(node));
  return parent.children.back().get();
}

// Cuts a node in two at `position`, inside it. Gives the front half, which is new; the back half stays where
// it is, with the snapshot and the children.
PrefixCache::Node* PrefixCache::split(Node& node, int64_t position) {
  auto front = std::make_unique<Node>();
  front->parent = node.parent;
  front->begin = node.begin;
  front->end = position;
  const auto cut = node.tokens.begin() + static_cast<ptrdiff_t>(position - node.begin);
  front->tokens.assign(node.tokens.begin(), cut);
  std::vector<int32_t> back_tokens(cut, node.tokens.end());
  std::vector<std::byte> back_rows;
  front->rows.reserve(static_cast<size_t>(shape_.rows_bytes(node.begin, position)));
  back_rows.reserve(static_cast<size_t>(shape_.rows_bytes(position, node.end)));
  const std::byte* from = node.rows.data();
  const auto deal = [&](int64_t to_front, int64_t to_back) {
    front->rows.insert(front->rows.end(), from, from + to_front);
    back_rows.insert(back_rows.end(), from + to_front, from + to_front + to_back);
    from += to_front + to_back;
  };
  deal((position - node.begin) * 4, (node.end - position) * 4);
  for (const StateShape::Source& source : shape_.sources) {
    const int64_t front_rows = position / source.ratio - node.begin / source.ratio;
    const int64_t rows_left = node.end / source.ratio - position / source.ratio;
    deal(front_rows * shape_.compressed_row_bytes, rows_left * shape_.compressed_row_bytes);
    deal(front_rows * shape_.index_row_bytes, rows_left * shape_.index_row_bytes);
  }
  bytes_ += kNodeOverheadBytes;
  node.begin = position;
  node.tokens = std::move(back_tokens);
  node.rows = std::move(back_rows);

  Node* made = front.get();
  auto& place = *std::find_if(node.parent->children.begin(), node.parent->children.end(),
                              [&](const auto& child) { return child.get() == &node; });
  front->children.push_back(std::move(place));
  place = std::move(front);
  node.parent = made;
  return made;
}

// ---- Making room ----

// Tokens that would have to be evaluated again, for each byte that comes free, discounted by age.
double PrefixCache::worth(const Node& node) const {
  int64_t before = 0;
  bool owns_rows = node.children.empty();
  int64_t bytes = node.snapshot->bytes() + kNodeOverheadBytes;
  for (const Node* at = &node; at->parent != nullptr; at = at->parent) {
    if (owns_rows) bytes += node_bytes(at->begin, at->end);
    const Node& parent = *at->parent;
    if (parent.snapshot != nullptr) {
      before = parent.end;
      break;
    }
    owns_rows = owns_rows && parent.children.size() == 1;
  }
  const double age = static_cast<double>(clock_ - node.snapshot->last_used + 1);
  return static_cast<double>(node.end - before) / static_cast<double>(bytes) / age;
}

// Drops the snapshot that is worth least. The one that `path` itself ends in is what the new state goes on from:
// it goes last.
bool PrefixCache::make_room(int64_t needed, const Node* path, std::span<const std::span<const int32_t>> incoming) {
  std::vector<const Node*> wanted;
  for (const std::span<const int32_t> prompt : incoming) wanted.push_back(find(prompt).node);
  Node* least = nullptr;
  double least_worth = std::numeric_limits<double>::infinity();
  int64_t bytes_wanted = 0;
  for (Node* node : kept_) {
    if (std::find(wanted.begin(), wanted.end(), node) != wanted.end()) {
      bytes_wanted += node->snapshot->bytes();
      continue;
    }
    const double node_worth = node == path ? std::numeric_limits<double>::max() : worth(*node);
    if (node_worth >= least_worth) continue;
    least = node;
    least_worth = node_worth;
  }
  if (least == nullptr || bytes_wanted + needed > bytes_max_) return false;
  ++evictions_;
  drop(*least);
  return true;
}

// The snapshot goes, and rows that no other snapshot needs.
void PrefixCache::drop(Node& node) {
  std::erase(kept_, &node);
  bytes_ -= node.snapshot->bytes() + kNodeOverheadBytes;
  node.snapshot.reset();
  Node* at = &node;
  while (at->parent != nullptr && at->children.empty() && at->snapshot == nullptr) {
    Node* parent = at->parent;
    bytes_ -= node_bytes(at->begin, at->end);
    std::erase_if(parent->children, [&](const auto& child) { return child.get() == at; });
    at = parent;
  }
}

}  // namespace fathom
