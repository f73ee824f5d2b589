#include "text/engram_map.h"

#include <unordered_map>

#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace fathom {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_collapsed_space(char32_t code) { return code == ' ' || code == '\t' || code == '\r' || code == '\n'; }

std::u32string decode_all(std::string_view text) {
  std::u32string codes;
  for (size_t position = 0; position < text.size();) {
    const Utf8Char c = decode_utf8(text, position);
    codes += c.code;
    position += c.length_bytes;
  }
  return codes;
}

// What tells the tokens apart. Text that is not whole characters says nothing about words, so such tokens
// keep their raw spelling.
std::string key_of(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (!is_valid_utf8(bytes) || bytes.find(kReplacement) != std::string_view::npos)
    return tokenizer.is_added(id) ? std::string(bytes) : spell_bytes(bytes);
  std::string normalized = normalize_for_engram(bytes);
  return normalized.empty() ? std::string(bytes) : normalized;
}

}  // namespace

std::string normalize_for_engram(std::string_view text) {
  std::u32string codes;
  for (const char32_t code : normalize_nfd(normalize_nfkc(decode_all(text)))) {
    if (char_class(code) & kMark) continue;
    if (!is_collapsed_space(code)) {
      codes += to_lower(code);
    } else if (codes.empty() || codes.back() != ' ') {
      codes += ' ';
    }
  }
  if (codes == U" ") return " ";
  size_t first = 0, end = codes.size();
  while (first < end && char_class(codes[first]) & kWhiteSpace) ++first;
  while (end > first && char_class(codes[end - 1]) & kWhiteSpace) --end;
  std::string out;
  for (size_t place = first; place < end; ++place) {
    // U+E000 stands for a lone space while the published rule strips, and is turned back everywhere.
    append_utf8(codes[place] == 0xE000 ? U' ' : codes[place], out);
  }
  return out;
}

EngramTokenMap build_engram_token_map(const Tokenizer& tokenizer, int32_t vocab_size) {
  EngramTokenMap map;
  map.ids.reserve(vocab_size);
  std::unordered_map<std::string, int32_t> seen;
  seen.reserve(vocab_size);
  for (int32_t id = 0; id < vocab_size; ++id) {
    const auto [entry, is_new] = seen.try_emplace(key_of(tokenizer, id), map.compressed_vocab_size);
    if (is_new) ++map.compressed_vocab_size;
    map.ids.push_back(entry->second);
  }
  return map;
}

}  // namespace fathom
