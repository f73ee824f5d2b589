#include "text/unicode.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace fathom {
namespace {

using namespace unicode_tables;

// Hangul syllables are composed by arithmetic (Unicode standard, 3.12), not by table.
constexpr char32_t kHangulFirst = 0xAC00, kLeadFirst = 0x1100, kVowelFirst = 0x1161, kTailBefore = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kHanguls = kLeads * kVowels * kTails;

uint8_t combining_class(char32_t code) {
  const std::span ranges(kCombiningRanges, kCombiningRangeCount);
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t c, const CombiningRange& r) { return c < r.first; });
  return after != ranges.begin() && code <= after[-1].last ? after[-1].combining_class : 0;
}

const Decomposition* find_decomposition(const Decomposition* table, size_t count, char32_t code) {
  const Decomposition* found = std::lower_bound(
      table, table + count, code, [](const Decomposition& d, char32_t c) { return d.code < c; });
  return found != table + count && found->code == code ? found : nullptr;
}

void append_decomposed(char32_t code, bool compatibility, std::u32string& out) {
  if (code < 0x80) {
    out += code;
    return;
  }
  if (code - kHangulFirst < kHanguls) {
    const char32_t syllable = code - kHangulFirst;
    out += kLeadFirst + syllable / (kVowels * kTails);
    out += kVowelFirst + syllable / kTails % kVowels;
    if (syllable % kTails != 0) out += kTailBefore + syllable % kTails;
    return;
  }
  const Decomposition* found = nullptr;
  if (compatibility)
    found = find_decomposition(kCompatibilityDecompositions, kCompatibilityDecompositionCount, code);
  if (found == nullptr)
    found = find_decomposition(kCanonicalDecompositions, kCanonicalDecompositionCount, code);
  if (found == nullptr) {
    out += code;
    return;
  }
  for (size_t k = 0; k < found->length; ++k) out += kDecompositionPool[found->offset + k];
}

std::u32string decomposed(const std::u32string& text, bool compatibility) {
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t code : text) append_decomposed(code, compatibility, out);
  // Canonical order: each run of characters with a combining class is sorted by it, equal ones in order.
  std::vector<std::pair<uint64_t, char32_t>> marks;
  for (size_t start = 0; start < out.size();) {
    if (combining_class(out[start]) == 0) {
      ++start;
      continue;
    }
    size_t end = start + 1;
    while (end < out.size() && combining_class(out[end]) != 0) ++end;
    marks.clear();
    for (size_t place = start; place < end; ++place)
      marks.emplace_back(static_cast<uint64_t>(combining_class(out[place])) << 56 | place, out[place]);
    std::sort(marks.begin(), marks.end());
    for (const auto& [order, mark] : marks) out[start++] = mark;
  }
  return out;
}

char32_t composed_pair(char32_t first, char32_t second) {
  if (first - kLeadFirst < kLeads && second - kVowelFirst < kVowels)
    return kHangulFirst + ((first - kLeadFirst) * kVowels + (second - kVowelFirst)) * kTails;
  if (first - kHangulFirst < kHanguls && (first - kHangulFirst) % kTails == 0 &&
      second - kTailBefore - 1 < kTails - 1)
    return first + (second - kTailBefore);
  const std::span pairs(kCompositions, kCompositionCount);
  const auto found =
      std::lower_bound(pairs.begin(), pairs.end(), std::pair(first, second),
                       [](const Composition& c, const std::pair<char32_t, char32_t>& wanted) {
                         return std::pair<char32_t, char32_t>(c.first, c.second) < wanted;
                       });
  const bool equal = found != pairs.end() && found->first == first && found->second == second;
  return equal ? found->composed : 0;
}

// Composes decomposed, ordered text in place.
void compose(std::u32string& text) {
  size_t kept = 0;
  size_t starter = std::u32string::npos;  // place of the last character of class 0
  uint8_t last_class = 0;
  for (const char32_t code : text) {
    const uint8_t combining = combining_class(code);
    if (starter != std::u32string::npos) {
      const bool adjacent = kept == starter + 1;
      if (adjacent || (last_class < combining && last_class != 0)) {
        if (const char32_t composed = composed_pair(text[starter], code)) {
          text[starter] = composed;
          continue;
        }
      }
    }
    if (combining == 0) starter = kept;
    last_class = combining;
    text[kept++] = code;
  }
  text.resize(kept);
}

bool is_ascii(const std::u32string& text) {
  return std::all_of(text.begin(), text.end(), [](char32_t code) { return code < 0x80; });
}

}  // namespace

char32_t to_lower(char32_t code) {
  if (code < 0x80) return code - U'A' < 26 ? code + 32 : code;
  const std::span cases(kLowerCases, kLowerCaseCount);
  const auto found = std::lower_bound(cases.begin(), cases.end(), code,
                                      [](const LowerCase& pair, char32_t c) { return pair.upper < c; });
  return found != cases.end() && found->upper == code ? found->lower : code;
}

std::u32string normalize_nfd(const std::u32string& text) {
  return is_ascii(text) ? text : decomposed(text, /*compatibility=*/false);
}

std::u32string normalize_nfkc(const std::u32string& text) {
  if (is_ascii(text)) return text;
  std::u32string out = decomposed(text, /*compatibility=*/true);
  compose(out);
  return out;
}

}  // namespace fathom
