#include "measure/text_figures.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace fathom::measure {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/// Bytes of the character at the start of `text`, which is not empty; 0: there is none (Unicode 15, table 3-7).
size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xC2 && lead <= 0xDF   ? 2
                       : (lead & 0xF0) == 0xE0        ? 3
                       : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                      : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t index = 1; index < bytes; ++index)
    if (!continues(at(index))) return 0;
  const unsigned char second = at(1);
  const bool is_overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool is_outside = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return is_overlong || is_outside ? 0 : bytes;
}

char32_t decoded(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  char32_t value = lead & (0x7Fu >> character.size());
  for (const char byte : character.substr(1)) value = value << 6 | (static_cast<unsigned char>(byte) & 0x3Fu);
  return value;
}

char32_t small_letter(char32_t c) {
  if ((c >= U'A' && c <= U'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7)) return c + 32;
  if (c < 0x100 || c > 0x17F) return c;
  if (c == 0x130) return U'i';
  if (c == 0x178) return 0xFF;
  // Capital and small letters take turns; in two stretches the capitals are the odd ones.
  const bool is_odd_capital = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
  const bool has_pairs = is_odd_capital || c <= 0x137 || (c >= 0x14A && c <= 0x177);
  return has_pairs && (c % 2 == 1) == is_odd_capital ? c + 1 : c;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    const bool is_letter = (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
    return c > 0x20 && !is_letter && !(c >= U'0' && c <= U'9');
  }
  return c == 0xA1 || c == 0xA7 || c == 0xAB || c == 0xB6 || c == 0xB7 || c == 0xBB || c == 0xBF ||
         (c >= 0x2010 && c <= 0x2027) || (c >= 0x2030 && c <= 0x205E) || (c >= 0x3001 && c <= 0x3003) ||
         (c >= 0x3008 && c <= 0x3011) || (c >= 0x3014 && c <= 0x301F) || (c >= 0xFF01 && c <= 0xFF0F) ||
         (c >= 0xFF1A && c <= 0xFF20) || (c >= 0xFF3B && c <= 0xFF40) || (c >= 0xFF5B && c <= 0xFF65);
}

/// Grams of `units`, window by window; `window_of[i]` is where unit i lies.
void count_grams(std::u32string_view units, const std::vector<size_t>& window_of, size_t length, GramCount& all,
                 std::vector<GramCount>& curve) {
  std::unordered_set<std::u32string_view> seen;
  for (size_t end = length; end <= units.size(); ++end) {
    const bool is_repeated = !seen.insert(units.substr(end - length, length)).second;
    GramCount& window = curve[window_of[end - 1]];
    for (GramCount* count : {&window, &all}) {
      ++count->grams;
      count->repeated += is_repeated ? 1 : 0;
    }
  }
}

/// Words as numbers, each distinct word a number of its own, and the window in which each ends.
struct Words {
  std::u32string numbers;
  std::vector<size_t> windows;
  size_t distinct = 0;
};

class WordCounter {
 public:
  void end_word(std::u32string_view word, size_t window) {
    while (!word.empty() && is_punctuation(word.front())) word.remove_prefix(1);
    while (!word.empty() && is_punctuation(word.back())) word.remove_suffix(1);
    if (word.empty()) return;
    const auto number = static_cast<char32_t>(numbers_.size());
    words_.numbers += numbers_.try_emplace(word, number).first->second;
    words_.windows.push_back(window);
  }
  Words finish() {
    words_.distinct = numbers_.size();
    return std::move(words_);
  }

 private:
  std::unordered_map<std::u32string_view, char32_t> numbers_;
  Words words_;
};

std::vector<int64_t> distinct_curve(std::u32string_view words) {
  std::vector<int64_t> curve;
  for (; words.size() >= kCurveWords; words.remove_prefix(kCurveWords)) {
    std::u32string window(words.substr(0, kCurveWords));
    std::sort(window.begin(), window.end());
    curve.push_back(std::unique(window.begin(), window.end()) - window.begin());
  }
  return curve;
}

}  // namespace

bool is_white_space(char32_t c) {
  return c == 0x20 || (c >= 0x09 && c <= 0x0D) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    characters += bytes == 0 ? kReplacement : decoded(text.substr(0, bytes));
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return characters;
}

std::string utf8_of(std::u32string_view characters) {
  std::string text;
  for (const char32_t c : characters) {
    const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += static_cast<char>(0xC0 | c >> 6);
      tail(0);
    } else if (c < 0x10000) {
      text += static_cast<char>(0xE0 | c >> 12);
      tail(6), tail(0);
    } else {
      text += static_cast<char>(0xF0 | c >> 18);
      tail(12), tail(6), tail(0);
    }
  }
  return text;
}

TextFigures figures_of(std::string_view text) {
  TextFigures figures;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t bytes = character_bytes(rest);
    figures.invalid_bytes += bytes == 0 ? 1 : 0;
    rest.remove_prefix(std::max<size_t>(bytes, 1));
  }
  const std::u32string characters = characters_of(text);
  std::u32string solid;    // without white space, as it stands
  std::u32string letters;  // the same, Latin letters small; words are views of it
  for (const char32_t c : characters)
    if (!is_white_space(c)) solid += c;
  letters.resize(solid.size());
  std::transform(solid.begin(), solid.end(), letters.begin(), small_letter);

  std::vector<size_t> windows(letters.size());
  for (size_t at = 0; at < windows.size(); ++at) windows[at] = at / kCurveCharacters;
  WordCounter counter;
  size_t begin = 0, at = 0;  // of the word that goes on, in `letters`
  const auto end_word = [&] {
    if (at > begin) counter.end_word(std::u32string_view(letters).substr(begin, at - begin), windows[at - 1]);
    begin = at;
  };
  for (const char32_t c : characters) {
    if (is_white_space(c))
      end_word();
    else
      ++at;
  }
  end_word();
  const Words words = counter.finish();

  figures.characters = static_cast<int64_t>(characters.size());
  figures.characters_without_spaces = static_cast<int64_t>(solid.size());
  figures.words = static_cast<int64_t>(words.numbers.size());
  figures.distinct_words = static_cast<int64_t>(words.distinct);
  figures.character_gram_curve.resize(windows.empty() ? 0 : windows.back() + 1);
  figures.word_gram_curve.resize(figures.character_gram_curve.size());
  count_grams(letters, windows, kCharacterGram, figures.character_grams, figures.character_gram_curve);
  count_grams(words.numbers, words.windows, kWordGram, figures.word_grams, figures.word_gram_curve);
  figures.distinct_word_curve = distinct_curve(words.numbers);
  figures.last_characters =
      utf8_of(std::u32string_view(solid).substr(solid.size() - std::min(solid.size(), kLastCharacters)));
  return figures;
}

const char* loop_basis_name(LoopBasis basis) { return basis == LoopBasis::kIds ? "ids" : "characters"; }

LoopFinding find_loop(const std::vector<int32_t>& ids, std::string_view text) {
  LoopFinding finding;
  LoopGuardOptions options{.mode = LoopGuardMode::kObserve};
  if (!ids.empty()) {
    LoopGuard guard(options);
    for (const int32_t id : ids) guard.take(id);
    finding.report = guard.report();
    return finding;
  }
  finding.basis = LoopBasis::kCharacters;
  options.period_tokens_max *= 4;
  options.repeated_tokens_min *= 4;
  LoopGuard guard(options);
  for (const char32_t c : characters_of(text)) guard.take(static_cast<int32_t>(c));
  finding.report = guard.report();
  return finding;
}

std::string folded(std::string_view text) {
  std::u32string result;
  for (const char32_t c : characters_of(text)) {
    if (!is_white_space(c))
      result += small_letter(c);
    else if (result.empty() || result.back() != U' ')
      result += U' ';
  }
  return utf8_of(result);
}

bool occurs_in(std::string_view folded_text, std::string_view wanted) {
  const std::string string = folded(wanted);
  if (string.empty()) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = folded_text.find(string); at != std::string_view::npos; at = folded_text.find(string, at + 1)) {
    const size_t end = at + string.size();
    const bool goes_on_before = is_digit(string.front()) && at > 0 && is_digit(folded_text[at - 1]);
    const bool goes_on_after = is_digit(string.back()) && end < folded_text.size() && is_digit(folded_text[end]);
    if (!goes_on_before && !goes_on_after) return true;
  }
  return false;
}

}  // namespace fathom::measure
