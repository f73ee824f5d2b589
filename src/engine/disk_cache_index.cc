#include "engine/disk_cache_index.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

namespace fathom {
namespace {

// After this long without a use an entry is worth half of what it was.
constexpr double kHalfLifeMs = 12.0 * 3600 * 1000;

int64_t base_tokens(const DiskCacheFileInfo& file) {
  return file.tokens - static_cast<int64_t>(file.tail.size());
}

// Logarithm of the tokens that a byte spares, times how often and how lately it did. A logarithm, because what
// was left alone for months would else be rounded to nothing, and all of it alike.
double worth(const DiskCacheFileInfo& file, int64_t now_ms) {
  const double age_ms = static_cast<double>(std::max<int64_t>(0, now_ms - file.last_used_ms));
  return std::log2(1.0 + static_cast<double>(file.hits)) +
         std::log2(static_cast<double>(std::max<int64_t>(1, file.tokens)) /
                   static_cast<double>(std::max<int64_t>(1, file.bytes))) -
         age_ms / kHalfLifeMs;
}

// A conversation has gone on from it, and nobody else has come back to it.
bool is_superseded(const DiskCacheIndex::Entry& entry) {
  return entry.extension && !entry.forks && entry.file.hits <= 1;
}

}  // namespace

size_t DiskCacheIndex::KeyHash::operator()(const DiskCacheKey& key) const {
  size_t hash;
  std::memcpy(&hash, key.data(), sizeof hash);
  return hash;
}

std::vector<int64_t> DiskCacheIndex::lengths() const {
  std::vector<int64_t> lengths;
  lengths.reserve(base_lengths_.size());
  for (const auto& [length, count] : base_lengths_) lengths.push_back(length);
  return lengths;
}

std::vector<DiskCacheMatch> DiskCacheIndex::matches(std::span<const int32_t> prompt,
                                                    std::span<const int64_t> lengths,
                                                    std::span<const DiskCacheKey> keys,
                                                    int rewind_tokens) const {
  std::vector<DiskCacheMatch> found;
  const auto wanted = static_cast<int64_t>(prompt.size());
  for (size_t which = 0; which < keys.size(); ++which) {
    const auto [begin, end] = by_base_.equal_range(keys[which]);
    for (auto at = begin; at != end; ++at) {
      const DiskCacheFileInfo& file = entries_.at(at->second).file;
      const std::span<const int32_t> rest = prompt.subspan(static_cast<size_t>(lengths[which]));
      const auto tail_end = file.tail.begin() + static_cast<ptrdiff_t>(std::min(rest.size(), file.tail.size()));
      const auto agree = std::mismatch(file.tail.begin(), tail_end, rest.begin()).first - file.tail.begin();
      DiskCacheMatch match{.key = file.key,
                           .entry_tokens = file.tokens,
                           .common_tokens = lengths[which] + agree,
                           .bytes = file.bytes};
      const bool is_whole = match.common_tokens == wanted && file.tokens == wanted && file.has_logits;
      match.reused_tokens = is_whole ? wanted : std::min(match.common_tokens, wanted - 1);
      if (match.reused_tokens > 0 && file.tokens - match.reused_tokens <= rewind_tokens) found.push_back(match);
    }
  }
  return found;
}

void DiskCacheIndex::insert(DiskCacheFileInfo file, bool usable) {
  remove(file.key);
  bytes_ += file.bytes;
  if (usable) {
    by_base_.emplace(file.base, file.key);
    ++base_lengths_[base_tokens(file)];
  }
  const DiskCacheKey key = file.key;
  entries_.emplace(key, Entry{.file = std::move(file), .usable = usable, .last_use = ++uses_, .extension = {}});
}

void DiskCacheIndex::unlist(const Entry& entry) {
  if (!entry.usable) return;
  const auto [begin, end] = by_base_.equal_range(entry.file.base);
  for (auto at = begin; at != end; ++at) {
    if (at->second != entry.file.key) continue;
    by_base_.erase(at);
    break;
  }
  const auto length = base_lengths_.find(base_tokens(entry.file));
  if (--length->second == 0) base_lengths_.erase(length);
}

void DiskCacheIndex::remove(const DiskCacheKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  unlist(found->second);
  bytes_ -= found->second.file.bytes;
  const std::optional<DiskCacheKey> beyond = found->second.extension;
  entries_.erase(found);
  // What went on from the one removed goes on from those before it as well.
  for (auto& [other, entry] : entries_)
    if (entry.extension == key) entry.extension = beyond;
}

const DiskCacheIndex::Entry* DiskCacheIndex::get(const DiskCacheKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void DiskCacheIndex::count_use(const DiskCacheKey& key, int64_t now_ms) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  ++found->second.file.hits;
  found->second.file.last_used_ms = now_ms;
  found->second.last_use = ++uses_;
}

void DiskCacheIndex::mark_unusable(const DiskCacheKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  unlist(found->second);
  found->second.usable = false;
}

void DiskCacheIndex::note_extension(const DiskCacheKey& longer, std::span<const DiskCacheKey> prefixes) {
  for (const DiskCacheKey& prefix : prefixes) {
    const auto found = entries_.find(prefix);
    if (found == entries_.end() || prefix == longer) continue;
    Entry& entry = found->second;
    const bool same_line = !entry.extension || *entry.extension == longer ||
                           std::find(prefixes.begin(), prefixes.end(), *entry.extension) != prefixes.end();
    if (!same_line) entry.forks = true;
    entry.extension = longer;
  }
}

std::optional<std::vector<DiskCacheKey>> DiskCacheIndex::victims(int64_t bytes, int64_t bytes_max,
                                                                 const Guard& guard, int64_t now_ms) const {
  std::vector<DiskCacheKey> chosen;
  int64_t needed = bytes_ + bytes - bytes_max;
  if (needed <= 0) return chosen;
  using Rank = std::tuple<int, double, uint64_t>;  // who goes first, what it is worth, when it was used
  std::vector<std::pair<Rank, const Entry*>> order;
  for (const auto& [key, entry] : entries_) {
    if (guard.never.contains(key)) continue;
    const int turn = !entry.file.known_version ? 0 : guard.last.contains(key) ? 3 : is_superseded(entry) ? 1 : 2;
    order.push_back({{turn, worth(entry.file, now_ms), entry.last_use}, &entry});
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [rank, entry] : order) {
    if (needed <= 0) break;
    needed -= entry->file.bytes;
    chosen.push_back(entry->file.key);
  }
  if (needed > 0) return std::nullopt;
  return chosen;
}

DiskCacheIndex::Sum DiskCacheIndex::of_other_versions() const {
  Sum sum;
  for (const auto& [key, entry] : entries_) {
    if (entry.file.known_version) continue;
    ++sum.entries;
    sum.bytes += entry.file.bytes;
  }
  return sum;
}

std::vector<DiskCacheKey> DiskCacheIndex::keys() const {
  std::vector<DiskCacheKey> keys;
  keys.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  return keys;
}

const DiskCacheMatch* best_match(std::span<const DiskCacheMatch> matches) {
  const auto rank = [](const DiskCacheMatch& match) {
    return std::tuple(match.reused_tokens, match.common_tokens - match.entry_tokens, -match.bytes);
  };
  const auto best = std::max_element(matches.begin(), matches.end(), [&](const auto& a, const auto& b) {
    return rank(a) < rank(b);
  });
  return best == matches.end() ? nullptr : &*best;
}

}  // namespace fathom
