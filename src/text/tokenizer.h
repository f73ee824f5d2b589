// Byte-level BPE as DeepSeek V3, V4 and V4.1 use it: text in, token ids out, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

/// A vocabulary as GGUF metadata spells it (tokenizer.ggml.tokens, .merges, .token_type, .pre). Views only;
/// they are read during from_gguf() and not kept.
struct GgufVocabulary {
  std::span<const std::string_view> tokens;  // [vocab] byte-to-unicode spelling; added tokens as plain text
  std::span<const std::string_view> merges;  // [merges] "left right", best rank first
  std::span<const int32_t> token_types;      // [vocab] 1 normal, 3 control, 4 user defined, 5 unused
  std::string_view pre;                      // name of the split rules
};

/// Ids of the tokens that have a meaning in prompts; -1 where the vocabulary lacks one.
struct NamedTokens {
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t pad = -1;
  int32_t system = -1;
  int32_t user = -1;
  int32_t assistant = -1;
  int32_t latest_reminder = -1;
  int32_t think_open = -1;
  int32_t think_close = -1;
  int32_t dsml = -1;
  int32_t image = -1;
  int32_t end_of_turn = -1;  // <|EOT|>
  int32_t fim_begin = -1;
  int32_t fim_hole = -1;
  int32_t fim_end = -1;
};

/// Immutable after loading; every const call may run on any number of threads at once.
class Tokenizer {
 public:
  /// Reads a HuggingFace tokenizer.json. Refuses (unsupported) any model, split rule or normaliser other
  /// than those of text/pretokenizer.h, rather than encode text wrongly.
  static Result<Tokenizer> load(const std::string& path);
  /// Same from memory; `origin` names the text in error messages.
  static Result<Tokenizer> from_json(std::string_view json, std::string_view origin);
  static Result<Tokenizer> from_gguf(const GgufVocabulary& vocabulary, std::string_view origin);

  Tokenizer(Tokenizer&& other) noexcept;
  Tokenizer& operator=(Tokenizer&& other) noexcept;
  ~Tokenizer();

  /// Encodes text in which nothing is special: "<think>" typed by a user becomes ordinary tokens. Adds no
  /// BOS. Bytes that are not UTF-8 are kept, so decode(encode(x)) == x for every x.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Same, appended to `ids`.
  void encode_append(std::string_view text, std::vector<int32_t>& ids) const;
  /// Encodes text that may hold added tokens (leftmost, then longest match). Only for text that we or a
  /// trusted template wrote.
  std::vector<int32_t> encode_with_special(std::string_view text) const;

  /// The bytes of the tokens one after the other, added tokens included. Ids outside the vocabulary add
  /// nothing. Bytes of one token may be part of a character: stream through Utf8Holder (text/utf8.h).
  std::string decode(std::span<const int32_t> ids) const;
  /// Bytes of one token; empty for ids outside the vocabulary. Valid as long as the tokenizer.
  std::string_view token_bytes(int32_t id) const;
  /// The id whose bytes are exactly `token`; an added token wins over a regular one.
  std::optional<int32_t> id_of(std::string_view token) const;

  /// Whether the token is only ever written by a template, never produced by encode().
  bool is_added(int32_t id) const;
  /// Whether the vocabulary marks it special. Chat and tool tokens are added but not special.
  bool is_special(int32_t id) const;
  /// Largest id + 1. The model's embedding table may be larger.
  int32_t vocab_size() const;
  const NamedTokens& named() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom
