#include "grammar/vocabulary.h"

#include <algorithm>
#include <numeric>

namespace fathom {

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::make(std::vector<std::string> tokens,
                                                                 std::vector<int32_t> end_ids) {
  return std::make_shared<TokenTrie>(std::move(tokens), std::move(end_ids));
}

TokenTrie::TokenTrie(std::vector<std::string> tokens, std::vector<int32_t> end_ids)
    : tokens_(std::move(tokens)), end_ids_(std::move(end_ids)), end_bits_(words()) {
  for (const int32_t id : end_ids_) {
    FATHOM_CHECK(id >= 0 && id < size(), "end id {} of a vocabulary of {}", id, size());
    end_bits_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  // What ends an answer is no text, whatever its bytes.
  for (int32_t id = 0; id < size(); ++id)
    if (!token(id).empty() && !is_end(id)) ids_.push_back(id);
  std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
    const int order = token(a).compare(token(b));  // as unsigned bytes
    return order != 0 ? order < 0 : a < b;
  });

  nodes_.push_back({});
  std::vector<uint32_t> path = {0};  // nodes of the token before
  std::string_view before;
  for (uint32_t k = 0; k < ids_.size(); ++k) {
    const std::string_view text = token(ids_[k]);
    size_t same = 0;
    while (same < before.size() && same < text.size() && before[same] == text[same]) ++same;
    for (size_t depth = same + 1; depth < path.size(); ++depth)
      nodes_[path[depth]].end = static_cast<uint32_t>(nodes_.size());
    path.resize(same + 1);
    for (size_t depth = same; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.end = 0, .ids_begin = k, .byte = static_cast<uint8_t>(text[depth])});
    }
    before = text;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({.end = 0, .ids_begin = static_cast<uint32_t>(ids_.size()), .byte = 0});
}

}  // namespace fathom
