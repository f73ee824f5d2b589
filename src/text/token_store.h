// The tokens of a vocabulary: bytes by id, id by bytes, and added tokens inside a text. Internal to the
// text room.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace fathom {

/// GGUF metadata as a RawVocabulary.
Result<RawVocabulary> read_gguf_vocabulary(const GgufVocabulary& vocabulary, std::string_view origin);

/// Immutable after build().
class TokenStore {
 public:
  static Result<TokenStore> build(const RawVocabulary& raw, std::string_view origin);

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  std::string_view bytes(int32_t id) const;
  bool is_added(int32_t id) const { return has_flag(id, kAdded); }
  bool is_special(int32_t id) const { return has_flag(id, kSpecial); }

  std::optional<int32_t> find_regular(std::string_view bytes) const;
  std::optional<int32_t> find_added(std::string_view content) const;

  struct Match {
    int32_t id = -1;
    size_t length_bytes = 0;  // 0: no added token starts here
  };
  /// The longest added token at the start of `text`.
  Match match_added(std::string_view text) const;

 private:
  enum Flag : uint8_t { kDefined = 1, kAdded = 2, kSpecial = 4 };
  struct Token {
    uint32_t offset = 0;
    uint32_t length = 0;
    uint8_t flags = 0;
  };
  TokenStore() = default;
  bool has_flag(int32_t id, Flag flag) const { return id >= 0 && id < size() && tokens_[id].flags & flag; }
  void define(int32_t id, std::string_view bytes);
  void index_regular(int32_t id);
  Result<void> add_regular(const RawVocabulary& raw, std::string_view origin);
  Result<void> add_added(const RawVocabulary& raw, std::string_view origin);

  std::string text_;
  std::vector<Token> tokens_;                 // by id
  std::vector<int32_t> slots_;                // open addressing over regular tokens, -1 empty
  std::vector<int32_t> added_;                // ids, ascending by content
  std::array<bool, 256> starts_added_{};      // first bytes of added tokens
};

}  // namespace fathom
