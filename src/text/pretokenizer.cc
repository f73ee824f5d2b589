#include "text/pretokenizer.h"

#include <array>
#include <cstdint>

#include "text/unicode.h"
#include "text/utf8.h"

namespace fathom {

const std::string_view kSplitNumbers = "\\p{N}{1,3}";
const std::string_view kSplitCjk = "[一-龥\u3040-ゟ゠-ヿ]+";
const std::string_view kSplitWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const std::string_view kSplitGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

namespace {

// Beside CharClass.
constexpr uint8_t kCjkRun = 64;
constexpr uint8_t kNewline = 128;
constexpr uint8_t kWord = kLetter | kMark;
constexpr uint8_t kSign = kPunctuation | kSymbol;

bool in_cjk_run(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF);
}

bool is_ascii_letter(char byte) { return static_cast<uint8_t>((byte | 32) - 'a') < 26; }

std::array<uint8_t, 128> make_ascii_classes() {
  std::array<uint8_t, 128> classes;
  for (char32_t code = 0; code < 128; ++code) classes[code] = char_class(code);
  classes['\r'] |= kNewline;
  classes['\n'] |= kNewline;
  return classes;
}
const std::array<uint8_t, 128> kAsciiClasses = make_ascii_classes();

}  // namespace

struct PieceSplitter::Char {
  uint8_t classes = 0;
  uint8_t length_bytes = 0;  // 0: no character, the text is over

  bool is(uint8_t wanted) const { return (classes & wanted) != 0; }
  // Numbers and CJK runs are cut out first; what is left of and right of such a cut never meet again.
  bool same_segment(const Char& other) const {
    return length_bytes != 0 && ((classes ^ other.classes) & (kNumber | kCjkRun)) == 0;
  }
};

PieceSplitter::Char PieceSplitter::at(size_t position) const {
  if (position >= text_.size()) return {};
  const uint8_t byte = static_cast<uint8_t>(text_[position]);
  if (byte < 0x80) return {kAsciiClasses[byte], 1};
  const Utf8Char c = decode_utf8(text_, position);
  uint8_t classes = char_class(c.code);
  if (in_cjk_run(c.code)) classes |= kCjkRun;
  return {classes, c.length_bytes};
}

template <class Wanted>
size_t PieceSplitter::skip(size_t position, Wanted wanted) const {
  for (Char c = at(position); wanted(c); c = at(position)) position += c.length_bytes;
  return position;
}

std::string_view PieceSplitter::next() {
  const size_t start = position_;
  const Char first = at(start);
  if (first.length_bytes == 0) return {};
  if (rules_ == SplitRules::kGpt2) {
    position_ = end_of_gpt2_match(start, first);
  } else if (first.is(kNumber)) {
    int taken = 0;
    position_ = skip(start, [&](const Char& c) { return c.is(kNumber) && taken++ < 3; });
  } else {
    position_ = end_of_word_match(start, first);
  }
  return text_.substr(start, position_ - start);
}

// Takes every text: a character is white space, or the third class of runs takes it.
size_t PieceSplitter::end_of_gpt2_match(size_t start, const Char& first) const {
  for (const std::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text_.substr(start).starts_with(suffix)) return start + suffix.size();
  const auto run_like = [this](size_t position, const Char& model) {
    constexpr uint8_t kKinds = kLetter | kNumber | kWhiteSpace;
    return skip(position, [kind = model.classes & kKinds](const Char& c) {
      return c.length_bytes != 0 && (c.classes & kKinds) == kind;
    });
  };
  if (!first.is(kWhiteSpace)) return run_like(start, first);
  const size_t second_start = start + first.length_bytes;
  const Char second = at(second_start);
  if (text_[start] == ' ' && second.length_bytes != 0 && !second.is(kWhiteSpace))
    return run_like(second_start, second);
  size_t last_start = start, end = second_start;
  for (Char c = second; c.is(kWhiteSpace); c = at(end)) {
    last_start = end;
    end += c.length_bytes;
  }
  return end < text_.size() && last_start != start ? last_start : end;
}

// kSplitWords at `start`, alternatives in the order of the expression.
size_t PieceSplitter::end_of_word_match(size_t start, const Char& first) const {
  const auto run_of = [&](uint8_t wanted) {
    return [&first, wanted](const Char& c) { return c.is(wanted) && c.same_segment(first); };
  };
  const size_t second_start = start + first.length_bytes;
  if (first.is(kWord)) return skip(second_start, run_of(kWord));

  const Char second = at(second_start);
  const bool joined = second.same_segment(first);
  if (first.is(kSign)) {
    size_t letters_end = second_start;
    if (static_cast<uint8_t>(text_[start]) < 0x80)
      while (letters_end < text_.size() && is_ascii_letter(text_[letters_end])) ++letters_end;
    if (letters_end != second_start) return letters_end;
    return skip(skip(second_start, run_of(kSign)), run_of(kNewline));
  }
  if (!first.is(kNewline) && joined && second.is(kWord)) return skip(second_start, run_of(kWord));
  if (text_[start] == ' ' && joined && second.is(kSign))
    return skip(skip(second_start, run_of(kSign)), run_of(kNewline));
  if (first.is(kWhiteSpace)) return end_of_white_space(start, first);
  return end_of_gap(second_start, first);
}

// \s*[\r\n]+ | \s+(?!\S) | \s+ : up to the last line break of the run if it has one; else the whole run at
// the end of a segment; else all but the last character, which is left for the word behind it.
size_t PieceSplitter::end_of_white_space(size_t position, const Char& first) const {
  const size_t start = position;
  size_t newline_end = start;
  size_t last_start = start;
  Char c = first;
  for (; c.is(kWhiteSpace) && c.same_segment(first); c = at(position)) {
    last_start = position;
    position += c.length_bytes;
    if (c.is(kNewline)) newline_end = position;
  }
  if (newline_end != start) return newline_end;
  return c.same_segment(first) && last_start != start ? last_start : position;
}

// Characters that no alternative takes, up to the first place where one matches.
size_t PieceSplitter::end_of_gap(size_t position, const Char& first) const {
  for (Char c = at(position); c.same_segment(first); c = at(position)) {
    if (c.is(kWord | kSign | kWhiteSpace)) return position;
    const Char behind = at(position + c.length_bytes);
    if (behind.is(kWord) && behind.same_segment(first)) return position;
    position += c.length_bytes;
  }
  return position;
}

}  // namespace fathom
