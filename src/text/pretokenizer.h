// Split rules: text into the pieces that BPE may not cross.
#pragma once

#include <cstddef>
#include <string_view>

namespace fathom {

enum class SplitRules {
  kDeepseek,  // V3, V4 and V4.1: the three expressions below
  kGpt2,      // the expression built into ByteLevel, which small test models use
};

/// The regular expressions of kDeepseek, in order. Each splits the pieces of the one before into matches and
/// gaps, so look-ahead never sees past a piece ("isolated" in tokenizer.json).
extern const std::string_view kSplitNumbers;
extern const std::string_view kSplitCjk;
extern const std::string_view kSplitWords;
/// The regular expression of kGpt2.
extern const std::string_view kSplitGpt2;

/// Walks over the pieces of a text in order; together they are the text. Linear in the text's length.
/// A stretch that is not UTF-8 counts as one symbol character, as the U+FFFD written in its place would.
class PieceSplitter {
 public:
  explicit PieceSplitter(std::string_view text, SplitRules rules = SplitRules::kDeepseek)
      : text_(text), rules_(rules) {}
  /// The next piece, empty at the end. A view into the text.
  std::string_view next();

 private:
  struct Char;
  Char at(size_t position) const;
  size_t end_of_gpt2_match(size_t start, const Char& first) const;
  size_t end_of_word_match(size_t start, const Char& first) const;
  size_t end_of_gap(size_t position, const Char& first) const;
  size_t end_of_white_space(size_t position, const Char& first) const;
  template <class Wanted>
  size_t skip(size_t position, Wanted wanted) const;

  std::string_view text_;
  SplitRules rules_;
  size_t position_ = 0;
};

}  // namespace fathom
