// The tokens of a vocabulary as a trie that is walked in the order in which it lies in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace fathom {

class TokenTrie : public GrammarVocabulary {
 public:
  TokenTrie(std::vector<std::string> tokens, std::vector<int32_t> end_ids);

  int32_t size() const override { return static_cast<int32_t>(tokens_.size()); }
  size_t words() const { return (tokens_.size() + 63) / 64; }
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  std::span<const int32_t> end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const { return (end_bits_[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0; }
  std::span<const uint64_t> end_bits() const { return end_bits_; }

  // Node 0 is the root, without a byte. The nodes below node n are n + 1 to end(n) - 1, children first byte
  // by byte, each followed by what is below it.
  uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()) - 1; }
  uint8_t byte(uint32_t node) const { return nodes_[node].byte; }
  uint32_t end(uint32_t node) const { return nodes_[node].end; }
  /// Those that are spelled by the path to the node.
  std::span<const int32_t> ids(uint32_t node) const {
    return std::span(ids_).subspan(nodes_[node].ids_begin,
                                   nodes_[node + 1].ids_begin - nodes_[node].ids_begin);
  }

 private:
  struct Node {
    uint32_t end = 0;
    uint32_t ids_begin = 0;
    uint8_t byte = 0;
  };
  std::vector<std::string> tokens_;
  std::vector<int32_t> end_ids_;
  std::vector<uint64_t> end_bits_;
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<int32_t> ids_;
};

}  // namespace fathom
