// The merge step of byte-level BPE: the bytes of one piece into token ids.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fathom {

/// Ids below this; keeps a pair of ids in 40 bits.
inline constexpr int32_t kTokenIdLimit = 1 << 20;

/// Which pairs of neighbouring tokens become one, and in which order. Const calls are thread-safe.
class MergeTable {
 public:
  /// `byte_ids`: the token of each single byte. `merge_count`: how many add() calls will follow.
  MergeTable(const std::array<int32_t, 256>& byte_ids, size_t merge_count);
  /// Adds the next best merge. A pair that is already there keeps its better rank.
  void add(int32_t left, int32_t right, int32_t merged);

  /// Appends the ids of `piece`: merges the pair of best rank, leftmost first, until none is left.
  /// Time n log n in the length of the piece.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

 private:
  struct Merge {
    uint64_t pair;
    uint32_t rank;
    int32_t merged;
  };
  const Merge* find(int32_t left, int32_t right) const;
  void encode_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view piece, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Merge> slots_;  // open addressing, a power of two
  uint32_t count_ = 0;
};

}  // namespace fathom
