// One entry of the prefix cache as a file, and the hashes that name it; docs/formats/disk_cache.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "engine/disk_cache.h"
#include "engine/saved_state.h"

namespace fathom {

/// Whose states they are: the start of every hash.
DiskCacheKey disk_cache_pack(const SavedStateOwner& owner, int rewind_tokens);

/// Hash of whose state it is and of the first tokens of a prompt, for ever more of them.
class PrefixHasher {
 public:
  explicit PrefixHasher(const DiskCacheKey& pack);
  void take(std::span<const int32_t> tokens) { hash_.update(std::as_bytes(tokens)); }
  /// Of what was taken so far.
  DiskCacheKey key() const;

 private:
  Sha256 hash_;
};

/// What is known of an entry without reading its state.
struct DiskCacheFileInfo {
  DiskCacheKey key{};
  DiskCacheKey base{};  // hash of all tokens but those in `tail`
  DiskCacheKey pack{};
  bool known_version = false;  // false: the fields but key and bytes are unknown
  int64_t tokens = 0;
  int64_t bytes = 0;           // of the file
  bool has_logits = false;
  std::vector<int32_t> tail;   // the last tokens, min(tokens, tail_tokens)
  uint64_t hits = 0;
  int64_t last_used_ms = 0;
};

std::string disk_cache_file_name(const DiskCacheKey& key);
/// False unless `name` is what disk_cache_file_name() gives.
bool parse_disk_cache_file_name(std::string_view name, DiskCacheKey& key);
/// The process that writes, or wrote, a file under this temporary name; -1 if it is none of this cache's.
int64_t disk_cache_temporary_owner(std::string_view name);
/// Whether a file begins as an entry does, as far as it goes. False also when it cannot be read.
bool begins_like_disk_cache_file(const std::string& path);

int64_t disk_cache_file_bytes(const SavedState& saved);
Result<DiskCacheFileInfo> write_disk_cache_file(const std::string& path, const SavedStateOwner& owner,
                                                const DiskCacheKey& pack, int tail_tokens,
                                                const SavedState& saved, int64_t now_ms);

/// Reads the header, and the last tokens if `pack` is its own. kBadPack: an entry that is damaged, truncated or
/// under another's name; kInvalidArgument: no entry; kNotFound; kIo.
Result<DiskCacheFileInfo> examine_disk_cache_file(const std::string& path, const DiskCacheKey& key,
                                                  const DiskCacheKey& pack, int tail_tokens);

/// The state, checked; errors as above.
Result<SavedState> read_disk_cache_file(const std::string& path, const DiskCacheKey& key,
                                        const SavedStateOwner& owner);

/// Overwrites the two numbers that the header's checksum leaves out.
Result<void> write_disk_cache_usage(const std::string& path, const DiskCacheKey& key, uint64_t hits,
                                    int64_t last_used_ms);

}  // namespace fathom
