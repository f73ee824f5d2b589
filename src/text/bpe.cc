#include "text/bpe.h"

#include <bit>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace fathom {
namespace {

constexpr uint64_t kEmpty = ~uint64_t{0};
constexpr uint32_t kNoRank = ~uint32_t{0};
// Up to here a scan of all ranks a merge beats a heap: nearly every piece of real text is shorter.
constexpr size_t kShortBytes = 48;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 20 | static_cast<uint64_t>(right);
}

size_t slot_of(uint64_t pair, size_t mask) { return (pair * 0x9E3779B97F4A7C15u >> 20) & mask; }

}  // namespace

MergeTable::MergeTable(const std::array<int32_t, 256>& byte_ids, size_t merge_count)
    : byte_ids_(byte_ids), slots_(std::bit_ceil(2 * merge_count + 2), Merge{kEmpty, kNoRank, -1}) {}

void MergeTable::add(int32_t left, int32_t right, int32_t merged) {
  FATHOM_CHECK(count_ < slots_.size() / 2, "more merges than announced");
  const uint64_t pair = pair_key(left, right);
  const size_t mask = slots_.size() - 1;
  size_t slot = slot_of(pair, mask);
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  if (slots_[slot].pair == kEmpty) slots_[slot] = {pair, count_, merged};
  ++count_;
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(pair, mask);; slot = (slot + 1) & mask) {
    if (slots_[slot].pair == pair) return &slots_[slot];
    if (slots_[slot].pair == kEmpty) return nullptr;
  }
}

void MergeTable::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() <= kShortBytes) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, ids);
  }
}

void MergeTable::encode_short(std::string_view piece, std::vector<int32_t>& ids) const {
  int32_t symbols[kShortBytes];
  uint32_t ranks[kShortBytes];    // of the pair (k, k + 1)
  int32_t merged_ids[kShortBytes];
  size_t count = piece.size();
  for (size_t k = 0; k < count; ++k) symbols[k] = byte_ids_[static_cast<uint8_t>(piece[k])];
  const auto look_up = [&](size_t k) {
    const Merge* merge = k + 1 < count ? find(symbols[k], symbols[k + 1]) : nullptr;
    ranks[k] = merge ? merge->rank : kNoRank;
    merged_ids[k] = merge ? merge->merged : -1;
  };
  for (size_t k = 0; k < count; ++k) look_up(k);

  while (true) {
    size_t best = 0;
    for (size_t k = 1; k + 1 < count; ++k)
      if (ranks[k] < ranks[best]) best = k;
    if (count < 2 || ranks[best] == kNoRank) break;
    symbols[best] = merged_ids[best];
    for (size_t k = best + 1; k + 1 < count; ++k) {
      symbols[k] = symbols[k + 1];
      ranks[k] = ranks[k + 1];
      merged_ids[k] = merged_ids[k + 1];
    }
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.insert(ids.end(), symbols, symbols + count);
}

void MergeTable::encode_long(std::string_view piece, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;  // -1 once merged into its left neighbour
    uint32_t previous, next;
  };
  struct Candidate {
    uint32_t rank, place;
    int32_t left, right, merged;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, place) > std::tie(other.rank, other.place);
    }
  };
  const uint32_t count = static_cast<uint32_t>(piece.size());
  std::vector<Symbol> symbols(count);
  for (uint32_t k = 0; k < count; ++k)
    symbols[k] = {byte_ids_[static_cast<uint8_t>(piece[k])], k - 1, k + 1};

  std::vector<Candidate> candidates;
  candidates.reserve(count);
  const auto candidate_at = [&](uint32_t place, auto&& use) {
    if (place >= count || symbols[place].next >= count) return;
    const int32_t left = symbols[place].id, right = symbols[symbols[place].next].id;
    if (const Merge* merge = find(left, right))
      use(Candidate{merge->rank, place, left, right, merge->merged});
  };
  for (uint32_t k = 0; k < count; ++k)
    candidate_at(k, [&](const Candidate& found) { candidates.push_back(found); });
  std::priority_queue queue(std::greater<Candidate>(), std::move(candidates));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.place];
    if (left.id != best.left || left.next >= count || symbols[left.next].id != best.right) continue;
    Symbol& right = symbols[left.next];
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next < count) symbols[left.next].previous = best.place;
    const auto push = [&](const Candidate& found) { queue.push(found); };
    candidate_at(best.place, push);
    candidate_at(left.previous, push);
  }
  for (uint32_t place = 0; place < count; place = symbols[place].next) ids.push_back(symbols[place].id);
}

}  // namespace fathom
