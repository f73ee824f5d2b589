// What the prefix cache on disk knows of its entries: finding, and choosing what makes room. Touches no file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/disk_cache.h"
#include "engine/disk_cache_file.h"

namespace fathom {

/// Not safe to use from several threads at once.
class DiskCacheIndex {
 public:
  struct Entry {
    DiskCacheFileInfo file;
    bool usable = false;              // this model's, fits the context, and could be read so far
    uint64_t last_use = 0;            // counts uses; orders those of one millisecond
    std::optional<DiskCacheKey> extension;  // the newest entry seen that goes on from this one
    bool forks = false;               // entries that go on from it have parted ways
  };
  /// Prompt lengths at which hashes are wanted, ascending.
  std::vector<int64_t> lengths() const;
  /// keys[i]: hash of the first lengths[i] tokens of `prompt`, for those lengths that it has.
  std::vector<DiskCacheMatch> matches(std::span<const int32_t> prompt, std::span<const int64_t> lengths,
                                      std::span<const DiskCacheKey> keys, int rewind_tokens) const;

  /// In the place of the one of the same key.
  void insert(DiskCacheFileInfo file, bool usable);
  void remove(const DiskCacheKey& key);
  const Entry* get(const DiskCacheKey& key) const;
  void count_use(const DiskCacheKey& key, int64_t now_ms);
  void mark_unusable(const DiskCacheKey& key);
  /// `longer` is new; `prefixes` are the entries that it goes on from.
  void note_extension(const DiskCacheKey& longer, std::span<const DiskCacheKey> prefixes);

  struct Guard {
    std::set<DiskCacheKey> never;  // not to be evicted
    std::set<DiskCacheKey> last;   // only when nothing else is left
  };
  /// Entries to evict until `bytes` are free below `bytes_max`; null when even all that may go are too few.
  std::optional<std::vector<DiskCacheKey>> victims(int64_t bytes, int64_t bytes_max, const Guard& guard,
                                                   int64_t now_ms) const;

  struct Sum {
    int64_t entries = 0, bytes = 0;
  };
  /// Of entries in other versions of the format: no model can use them here, so they make room first.
  Sum of_other_versions() const;

  std::vector<DiskCacheKey> keys() const;
  int64_t bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

 private:
  struct KeyHash {
    // The key is a SHA-256 already: any piece of it will do.
    size_t operator()(const DiskCacheKey& key) const;
  };
  void unlist(const Entry& entry);

  std::unordered_map<DiskCacheKey, Entry, KeyHash> entries_;
  std::unordered_multimap<DiskCacheKey, DiskCacheKey, KeyHash> by_base_;  // of usable entries
  std::map<int64_t, int64_t> base_lengths_;                               // length -> usable entries of it
  int64_t bytes_ = 0;
  uint64_t uses_ = 0;
};

/// The one that spares most; among equals the one that goes back least, then the smallest. Null if there is none.
const DiskCacheMatch* best_match(std::span<const DiskCacheMatch> matches);

}  // namespace fathom
