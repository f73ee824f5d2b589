// A vocabulary as files spell it, before it becomes a Tokenizer. Internal to the text room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/pretokenizer.h"

namespace fathom {

/// Tokens and merges as written in a file. Strings lie back to back in `text`: tokenizer.json holds a quarter
/// of a million of them, too many for one allocation each.
struct RawVocabulary {
  struct Text {
    uint32_t offset = 0;
    uint32_t length = 0;
  };
  struct Token {
    Text spelling;  // byte-to-unicode form
    int32_t id = 0;
  };
  struct Merge {
    Text left, right;
  };
  struct Added {
    std::string content;
    int32_t id = 0;
    bool special = false;
  };

  std::string text;
  std::vector<Token> tokens;
  std::vector<Merge> merges;  // best rank first
  std::vector<Added> added;
  SplitRules rules = SplitRules::kDeepseek;

  Text store(std::string_view string);
  std::string_view view(Text string) const { return {text.data() + string.offset, string.length}; }
};

/// Parses tokenizer.json and refuses everything that Tokenizer does not implement.
Result<RawVocabulary> parse_tokenizer_json(std::string_view json, std::string_view origin);

/// Splits "left right"; nothing unless there is exactly one space.
std::optional<RawVocabulary::Merge> store_merge(std::string_view pair, RawVocabulary& vocabulary);

/// Byte-to-unicode spelling: printable Latin-1 bytes stand for themselves, the other 68 bytes for U+0100 on,
/// in order.
char32_t byte_to_unicode(uint8_t byte);
std::string spell_bytes(std::string_view bytes);
/// Inverse of spell_bytes, appended to `out`; false (and nothing appended) if a character is no byte's.
bool append_spelled(std::string_view spelling, std::string& out);

}  // namespace fathom
