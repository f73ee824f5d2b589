// What can be counted in a text without understanding it: length, repetition, variety of words, loops.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loop_guard.h"

namespace fathom::measure {

constexpr int64_t kCurveCharacters = 1000;  // without spaces: one point of a curve of repetition
constexpr int64_t kCurveWords = 100;        // one point of the curve of distinct words
constexpr size_t kCharacterGram = 8;
constexpr size_t kWordGram = 4;
constexpr size_t kLastCharacters = 20;

/// Grams of one window, and how many of them occurred before, anywhere in the text. A gram belongs to the window
/// its last character lies in.
struct GramCount {
  int64_t grams = 0, repeated = 0;
  /// 0 where there are no grams.
  double share() const { return grams == 0 ? 0 : static_cast<double>(repeated) / static_cast<double>(grams); }
};

/// Characters are code points; a byte that belongs to none counts as one, U+FFFD. White space is that of Unicode.
/// Words are what stands between white space, without punctuation at both ends, so that punctuation alone is no
/// word. Capital letters of ASCII, Latin-1 and Latin Extended-A count as small ones, in words and in grams.
struct TextFigures {
  int64_t characters = 0;
  int64_t characters_without_spaces = 0;
  int64_t invalid_bytes = 0;
  int64_t words = 0, distinct_words = 0;
  GramCount character_grams, word_grams;        // of the whole text
  std::vector<GramCount> character_gram_curve;  // [windows of 1,000 characters without spaces], the last shorter
  std::vector<GramCount> word_gram_curve;       // [the same windows]
  std::vector<int64_t> distinct_word_curve;     // [windows of 100 words], whole ones only
  std::string last_characters;                  // the last 20 that are no white space
};

/// Time and memory grow linearly with the text.
TextFigures figures_of(std::string_view text);

/// What a loop was looked for in: token ids, or characters where the target tells no ids.
enum class LoopBasis : uint8_t { kIds, kCharacters };
const char* loop_basis_name(LoopBasis basis);  // "ids", "characters"

struct LoopFinding {
  LoopBasis basis = LoopBasis::kIds;
  LoopReport report;  // counted in tokens, or in characters with white space
};

/// The engine's own guard with its own limits over `ids`. Without ids the same guard looks at characters: cycles
/// of up to 4,096, at least 4 times and over 256 characters or more, because a token is some one to four of them.
LoopFinding find_loop(const std::vector<int32_t>& ids, std::string_view text);

/// `text` with small Latin letters and one space in place of each run of white space.
std::string folded(std::string_view text);
/// Whether folded(`wanted`) occurs in `folded_text`. Where `wanted` begins or ends with a digit, no digit may
/// stand beside it: 17 is not in 1170.
bool occurs_in(std::string_view folded_text, std::string_view wanted);

/// Code points of a text that may be anything; U+FFFD for each byte that belongs to none.
std::u32string characters_of(std::string_view text);
std::string utf8_of(std::u32string_view characters);
bool is_white_space(char32_t character);

}  // namespace fathom::measure
