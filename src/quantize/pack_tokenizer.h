// A pack's vocabulary between its two homes: tokenizer.json and the keys of a GGUF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/pack.h"

namespace fathom {

/// As tokenizer.ggml.* spells it. Types: 1 normal, 3 control, 4 user defined, 5 unused.
struct VocabularyData {
  std::vector<std::string> tokens;  // [vocab] byte-to-unicode spelling; added tokens in plain text
  std::vector<int32_t> types;       // [vocab]
  std::vector<std::string> merges;  // "left right", best rank first
};

/// Reads either home; ids that it lacks below `vocab_size` become unused tokens. The vocabulary is one that
/// Tokenizer accepts (that is checked). kBadPack if it has more ids than `vocab_size`.
Result<VocabularyData> read_vocabulary(const TokenizerSource& source, int vocab_size);
Result<VocabularyData> vocabulary_from_json(std::string_view json, const std::string& origin, int vocab_size);

/// A tokenizer.json with the split rules of the release.
std::string vocabulary_to_json(const VocabularyData& vocabulary);

/// The Engram token map of the vocabulary, [vocab].
Result<std::vector<int32_t>> engram_token_map(const VocabularyData& vocabulary, const std::string& origin);

}  // namespace fathom
