// Unicode 15.0 properties that the split rules and the Engram token map need.
#pragma once

#include <cstdint>
#include <string>

#include "text/unicode_tables.h"

namespace fathom {

/// Union of CharClass bits; 0 for controls, format, private use and unassigned characters. U+10FFFF at most.
inline uint8_t char_class(char32_t code) {
  using namespace unicode_tables;
  return kClassBlocks[kClassIndex[code >> kClassBlockBits] << kClassBlockBits |
                      (code & ((1u << kClassBlockBits) - 1))];
}

/// Simple lower case, one character to one. (The only character with a longer unconditional lower case,
/// U+0130, does not survive decomposition, so whole-string rules are never needed here.)
char32_t to_lower(char32_t code);

/// Normalisation forms of UAX #15.
std::u32string normalize_nfd(const std::u32string& text);
std::u32string normalize_nfkc(const std::u32string& text);

}  // namespace fathom
