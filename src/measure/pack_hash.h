// What was measured, by its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace fathom::measure {

/// SHA-256 of a pack: of a file its own; of a folder, and of a split GGUF with all its shards, that of the
/// listing that `sha256sum` prints for the files by name ("HASH  NAME\n"), where a folder's are config.json,
/// tokenizer.json, *.safetensors, *.json and *.gguf directly in it. Hexadecimal.
///
/// Hashing hundreds of gigabytes takes minutes: hashes are kept in `cache_path` (JSON; "": nowhere) under the
/// file's path, size and time of change. `progress` gets the bytes read and all bytes, and returns false to
/// give up (kCancelled).
Result<std::string> pack_sha256(const std::string& path, const std::string& cache_path,
                                const std::function<bool(int64_t done_bytes, int64_t total_bytes)>& progress);

/// "$XDG_CACHE_HOME/fathom/pack_hashes.json", or below ~/.cache; "" without a home.
std::string pack_hash_cache_path();

}  // namespace fathom::measure
