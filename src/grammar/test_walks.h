// Walks through grammars for tests: a vocabulary with all bytes, and texts that a grammar takes or leads to.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace fathom {

constexpr int32_t kTestEnd = 256;
constexpr const char* kTestTokens[] = {
    "{\"",      "\":",       "\": ", "\",\"", "\",",      "\"}",     "[{\"", "}]",       "},{",
    "true",     "false,",    "null", "\n  ",  "\n    \"", ": [",     "], ",  "\xE6\x97", "\xA5\"",
    "\xF0\x9F", "\x99\x82x", "\\u",  "\\\"",  "\\ud83d",  "\\ude00", "d83d", "0.",       "00",
    "-1",       "12",        "e+",   "name",  "a\":",     "id",      " \"",  "123"};

/// Ids 0 to 255 are the bytes, kTestEnd ends, the rest are tokens as vocabularies have them.
inline std::shared_ptr<const GrammarVocabulary> test_vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
    tokens.push_back("");
    for (const char* token : kTestTokens) tokens.push_back(token);
    return GrammarVocabulary::make(std::move(tokens), {kTestEnd});
  }();
  return made;
}

inline std::vector<int32_t> allowed_ids(TokenMask& mask) {
  const auto size = static_cast<size_t>(test_vocabulary()->size());
  std::vector<uint64_t> bits((size + 63) / 64, ~uint64_t{0});
  mask.restrict(bits);
  std::vector<int32_t> ids;
  for (size_t id = 0; id < size; ++id)
    if ((bits[id / 64] >> (id % 64) & 1) != 0) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

inline bool allows(TokenMask& mask, int32_t id) {
  const std::vector<int32_t> ids = allowed_ids(mask);
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Whether the grammar takes the whole text, byte by byte.
inline bool takes(const Grammar& grammar, std::string_view text) {
  const std::unique_ptr<TokenMask> mask = grammar.new_mask();
  for (const char letter : text) {
    const int32_t id = static_cast<uint8_t>(letter);
    if (!allows(*mask, id)) return false;
    mask->accept(id);
  }
  return allows(*mask, kTestEnd);
}

/// A text of random tokens that the grammar allows. After `steps` tokens it heads for the end.
inline std::string random_text(const Grammar& grammar, std::mt19937& random, int steps) {
  const std::vector<std::string> closers = {"]", "}", "\""};  // the last that is allowed
  const std::unique_ptr<TokenMask> mask = grammar.new_mask();
  std::string text;
  for (int step = 0; step < 20 * steps; ++step) {
    const std::vector<int32_t> ids = allowed_ids(*mask);
    if (ids.empty()) return text + "<nothing is allowed>";
    int32_t id = ids[random() % ids.size()];
    const bool can_end = std::find(ids.begin(), ids.end(), kTestEnd) != ids.end();
    if (can_end && (step >= steps || random() % 4 == 0)) return text;
    if (id == kTestEnd) id = ids.front();
    // Otherwise most walks would be one long string.
    for (const std::string& closer : closers) {
      const int32_t close = static_cast<uint8_t>(closer[0]);
      if (random() % (step >= steps ? 2 : 8) == 0 && std::find(ids.begin(), ids.end(), close) != ids.end())
        id = close;
    }
    if (id == kTestEnd) return text;
    mask->accept(id);
    text += id < 256 ? std::string(1, static_cast<char>(id)) : kTestTokens[id - kTestEnd - 1];
  }
  return text + "<no end>";
}

}  // namespace fathom
