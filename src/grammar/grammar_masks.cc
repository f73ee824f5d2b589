#include "grammar/grammar_masks.h"

#include <bit>
#include <cstring>

namespace fathom {
namespace {

constexpr size_t kListedIds = 1024;  // more are kept as bits
constexpr int kPreparedBytes = 64;   // a state with fewer continuations is cheap to walk when it comes
constexpr int kPreparedStates = 16;

}  // namespace

IdSet::IdSet(std::span<const uint64_t> bits) {
  size_t count = 0;
  for (const uint64_t word : bits) count += static_cast<size_t>(std::popcount(word));
  if (count > kListedIds) {
    bits_.assign(bits.begin(), bits.end());
    return;
  }
  ids_.reserve(count);
  for (size_t word = 0; word < bits.size(); ++word)
    for (uint64_t left = bits[word]; left != 0; left &= left - 1)
      ids_.push_back(static_cast<int32_t>(word * 64) + std::countr_zero(left));
}

void IdSet::add_to(std::span<uint64_t> bits) const {
  for (size_t word = 0; word < bits_.size(); ++word) bits[word] |= bits_[word];
  for (const int32_t id : ids_) bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
}

void IdSet::restrict(std::span<uint64_t> bits) const {
  if (!bits_.empty()) {
    for (size_t word = 0; word < bits_.size(); ++word) bits[word] &= bits_[word];
    return;
  }
  // Ids ascend: a word is complete when the next id is in another one.
  size_t done = 0;
  uint64_t kept = 0;
  for (const int32_t id : ids_) {
    const size_t word = static_cast<size_t>(id) / 64;
    if (word != done) {
      bits[done] &= kept;
      std::memset(&bits[done + 1], 0, (word - done - 1) * sizeof(uint64_t));
      done = word;
      kept = 0;
    }
    kept |= uint64_t{1} << (id % 64);
  }
  if (bits.empty()) return;
  bits[done] &= kept;
  std::memset(bits.data() + done + 1, 0, (bits.size() - done - 1) * sizeof(uint64_t));
}

StateMasks::StateMasks(const Automaton& automaton, const TokenTrie& trie)
    : automaton_(automaton), trie_(trie), masks_(automaton.states.size()) {}

StateMasks::~StateMasks() {
  for (const auto& mask : masks_) delete mask.load();
}

std::unique_ptr<StateMask> StateMasks::make(uint32_t state) const {
  StateSets sets(automaton_);
  sets.allow_work(kWorkPerToken);
  std::vector<uint64_t> bits(trie_.words());
  auto mask = std::make_unique<StateMask>();
  walk_tokens(trie_, sets, 0, sets.single(state), bits, [&](uint32_t node) { mask->exits.push_back(node); });
  if (sets.exhausted()) return nullptr;
  mask->allowed = IdSet(bits);
  return mask;
}

const StateMask* StateMasks::of(uint32_t state, std::unique_ptr<StateMask>& own) const {
  if (const StateMask* known = masks_[state].load(std::memory_order_acquire)) return known;
  std::unique_ptr<StateMask> mask = make(state);
  if (!mask) return nullptr;
  const size_t bytes = mask->bytes();
  if (bytes_.fetch_add(bytes) + bytes > kSharedMaskBytesMax) {
    bytes_ -= bytes;
    own = std::move(mask);
    return own.get();
  }
  const StateMask* known = nullptr;
  if (masks_[state].compare_exchange_strong(known, mask.get(), std::memory_order_acq_rel))
    return mask.release();
  bytes_ -= bytes;
  return known;  // another thread was faster
}

void StateMasks::prepare() const {
  int prepared = 0;
  std::unique_ptr<StateMask> own;
  for (uint32_t state = 0; state < automaton_.states.size() && prepared < kPreparedStates; ++state) {
    int width = 0;
    for (const ByteEdge& edge : automaton_.bytes(state)) width += edge.last - edge.first + 1;
    if (width < kPreparedBytes) continue;
    of(state, own);
    ++prepared;
  }
}

}  // namespace fathom
