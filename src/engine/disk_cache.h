// Saved states of prompts' beginnings, in a folder: they outlive the process. docs/formats/disk_cache.md.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/saved_state.h"

namespace fathom {

using DiskCacheKey = std::array<uint8_t, 32>;  // SHA-256 of whose state it is and of all its tokens

struct DiskCacheOptions {
  std::string folder;                            // made if it is missing
  int64_t bytes_max = int64_t{32} << 30;         // of the folder's entries together; older ones make room
  int64_t queue_bytes_max = int64_t{512} << 20;  // of states that wait for the disk; one always may
  SavedStateOwner owner;
  /// ModelOptions::rewind_tokens: states of another value cannot be restored. Entries that go past the prompt
  /// by at most this many tokens (and kDiskCacheTailTokens) are found too.
  int rewind_tokens = 32;
  std::function<int64_t()> now_ms;               // since 1970; null: the system's clock
};
inline constexpr int kDiskCacheTailTokens = 128;

/// An entry that serves a prompt.
struct DiskCacheMatch {
  DiskCacheKey key{};
  int64_t entry_tokens = 0;   // that the state holds
  int64_t common_tokens = 0;  // of them the prompt begins with; below entry_tokens the state must go back
  /// Of the prompt that need not be evaluated: common_tokens, but less than the whole prompt unless the entry
  /// is exactly the prompt and has logits. 0: nothing fits.
  int64_t reused_tokens = 0;
  int64_t bytes = 0;          // of the file
};

/// Counters only grow.
struct DiskCacheStatistics {
  int64_t entries = 0, bytes = 0, bytes_max = 0;  // now; other models' entries count too
  int64_t queued_entries = 0, queued_bytes = 0;   // now; with the one being written
  int64_t hits = 0;             // load() gave a state
  int64_t writes = 0;           // files that are complete
  int64_t dropped = 0;          // damaged, truncated or foreign entries
  int64_t evictions = 0;
  int64_t refused = 0;          // by put(): the queue was full; or there was no room that may be taken
  int64_t write_failures = 0;   // disk full, read-only folder
};

enum class DiskCachePut : uint8_t {
  kQueued,
  kPresent,    // the same waits already; what is on disk already is found out later and not written again
  kQueueFull,  // counted in `refused`
  kTooLarge,   // for bytes_max; counted in `refused`
};

/// All calls may come from any thread. put() and find() never touch the disk; load() and drop() do.
///
/// Several processes may use one folder: each sees the others' entries before it writes its next own, and an
/// entry that another has evicted is a miss. Each keeps the folder below its own bytes_max as far as it sees it.
class DiskCache {
 public:
  /// Reads the headers of what is in the folder. Damaged entries are deleted and logged; files that are not of
  /// this cache, by name or by how they begin, are never touched. kIo when the folder cannot be made or read;
  /// one that cannot be written is logged and serves what it holds.
  static Result<std::unique_ptr<DiskCache>> open(const DiskCacheOptions& options);
  /// Finishes the write at hand; what still waits is lost (see flush()).
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  /// The entry that spares the most of `prompt`. One SHA-256 over the prompt, whatever the number of entries.
  std::optional<DiskCacheMatch> find(std::span<const int32_t> prompt) const;

  /// Reads and checks an entry; its first match.common_tokens tokens are those of `prompt`. Counts as a use.
  /// An entry that is not what its name says is deleted and logged, and not found again: kBadPack. kNotFound
  /// when it is gone, kIo when the disk does not read it (it stays, but is not found again in this run).
  Result<SavedState> load(const DiskCacheMatch& match, std::span<const int32_t> prompt);

  /// Deletes an entry that loaded and then could not be used; `reason` goes to the log.
  void drop(const DiskCacheKey& key, std::string_view reason);

  /// Whether put() would find room in the queue now for so many bytes of state: making them costs time.
  bool has_room(int64_t state_bytes) const;
  /// Memory of a state that was written, for the next one (SequenceState::serialise()); maybe empty.
  std::vector<std::byte> spare_memory();
  /// Hands over a state to be written behind the caller's back. Never waits.
  DiskCachePut put(SavedState&& saved);

  /// A use that the RAM cache served: the entry of exactly these tokens, if there is one, has been worth keeping.
  /// Hashes the tokens, as find() does, and touches no file.
  void note_use(std::span<const int32_t> tokens);

  /// While the handle lives, the entry that find(prompt) gives is never evicted, and others that `prompt` begins
  /// with only when nothing else is left. For prompts that wait and those that come in; let go after load().
  class Protection;
  std::unique_ptr<Protection> protect(std::vector<int32_t> prompt);

  /// Waits until everything queued before is on disk or has failed, at most `wait_ms`; false: time was over.
  bool flush(int64_t wait_ms);

  DiskCacheStatistics statistics() const;

 private:
  struct Impl;
  explicit DiskCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The cache must live longer.
class DiskCache::Protection {
 public:
  ~Protection();
  Protection(const Protection&) = delete;
  Protection& operator=(const Protection&) = delete;

 private:
  friend class DiskCache;
  Protection(Impl& impl, uint64_t id) : impl_(impl), id_(id) {}
  Impl& impl_;
  uint64_t id_;
};

}  // namespace fathom
