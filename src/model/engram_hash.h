// Engram row ids: which rows of a layer's table a position reads, from the compressed ids of the last few
// tokens. Constants are derived exactly as the published model derives them (numpy's default_rng per layer,
// successive primes), or taken from a pack that carries them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace fathom {

/// Compressed id of a position that holds no text (image rows, padding). No n-gram reaches through it.
inline constexpr int32_t kEngramDead = -1;

struct EngramHashSpec {
  std::vector<int> layer_ids;         // layers with a table, in order
  int ngram_max = 4;                  // longest n-gram; orders 2 .. ngram_max are hashed
  int heads = 8;                      // tables an order (config: engram_n_heads)
  int64_t rows_floor = 0;             // primes start here (config: engram_vocab_size)
  int32_t compressed_vocab_size = 0;  // config: engram_compressed_vocab_size
};

/// Constants of one layer. Columns are ordered by n-gram order, then head.
struct EngramLayerHash {
  std::vector<int64_t> multipliers;  // [ngram_max] odd; multipliers[k] belongs to the token k places back
  std::vector<int64_t> primes;       // [columns] rows of each column
  std::vector<int64_t> offsets;      // [columns] first row of each column
  int64_t rows = 0;                  // sum of primes = rows of the layer's table

  int columns() const { return static_cast<int>(primes.size()); }
};

/// One entry a layer of `spec.layer_ids`.
Result<std::vector<EngramLayerHash>> derive_engram_hash(const EngramHashSpec& spec);

/// The last ngram_max - 1 compressed ids of one sequence; everything Engram remembers. To roll back or
/// resume, clear() and push() the last tokens again.
class EngramHistory {
 public:
  /// `pad_id` is the compressed id that stands for everything before the start or behind a dead position.
  EngramHistory(int ngram_max, int32_t pad_id);
  void clear();
  void push(int32_t compressed_id);
  /// Ids to hash for a token that comes next: [0] = `compressed_id`, [k] = the id k places back, with the
  /// pad id from the first missing or dead place on. Writes ngram_max ids.
  void gather(int32_t compressed_id, std::span<int32_t> ids_back) const;

 private:
  std::vector<int32_t> recent_;  // newest first, kEngramDead where there is nothing
  int32_t pad_id_;
};

/// Row ids of one position: rows_out [columns]. `ids_back` [ngram_max] as EngramHistory::gather writes it;
/// no id may be kEngramDead (a dead position reads no rows).
/// key_n = xor over k < n of ids_back[k] * multipliers[k];  row = key_n mod prime + offset.
void engram_rows(const EngramLayerHash& hash, std::span<const int32_t> ids_back, std::span<int64_t> rows_out);

}  // namespace fathom
