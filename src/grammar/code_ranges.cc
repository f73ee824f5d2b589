#include "grammar/code_ranges.h"

#include <algorithm>

#include "text/utf8.h"

namespace fathom {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

int encode(char32_t code, uint8_t (&bytes)[4]) {
  std::string text;
  append_utf8(code, text);
  std::copy(text.begin(), text.end(), bytes);
  return static_cast<int>(text.size());
}

// Splits until all codes of the range have the same length and each byte runs through a range of its own,
// whatever the others are.
void split(char32_t first, char32_t last, std::vector<ByteSequence>& out) {
  for (const char32_t end : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (first <= end && last > end) {
      split(first, end, out);
      split(end + 1, last, out);
      return;
    }
  }
  for (int tail = 1; tail < 4; ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if (last <= 0x7F || (first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      split(first, first | mask, out);
      split((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      split(first, (last & ~mask) - 1, out);
      split(last & ~mask, last, out);
      return;
    }
  }
  uint8_t low[4], high[4];
  ByteSequence sequence;
  sequence.length = encode(first, low);
  encode(last, high);
  for (int k = 0; k < sequence.length; ++k) sequence.bytes[static_cast<size_t>(k)] = {low[k], high[k]};
  out.push_back(sequence);
}

}  // namespace

CodeRanges normalize_ranges(CodeRanges ranges) {
  CodeRanges cut;
  for (const CodeRange& range : ranges) {
    if (range.first < kFirstSurrogate)
      cut.push_back({range.first, std::min<char32_t>(range.last, kFirstSurrogate - 1)});
    if (range.last > kLastSurrogate)
      cut.push_back({std::max<char32_t>(range.first, kLastSurrogate + 1), std::min(range.last, kLastCode)});
  }
  std::sort(cut.begin(), cut.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  CodeRanges normal;
  for (const CodeRange& range : cut) {
    if (range.first > range.last) continue;
    if (!normal.empty() && range.first <= normal.back().last + 1)
      normal.back().last = std::max(normal.back().last, range.last);
    else
      normal.push_back(range);
  }
  return normal;
}

CodeRanges invert_ranges(const CodeRanges& ranges) {
  CodeRanges inverse;
  char32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) inverse.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) inverse.push_back({next, kLastCode});
  return normalize_ranges(std::move(inverse));
}

CodeRanges intersect_ranges(const CodeRanges& a, const CodeRanges& b) {
  CodeRanges both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const char32_t first = std::max(a[i].first, b[j].first);
    const char32_t last = std::min(a[i].last, b[j].last);
    if (first <= last) both.push_back({first, last});
    if (a[i].last < b[j].last)
      ++i;
    else
      ++j;
  }
  return both;
}

std::vector<ByteSequence> utf8_sequences(const CodeRanges& ranges) {
  std::vector<ByteSequence> sequences;
  for (const CodeRange& range : ranges) split(range.first, range.last, sequences);
  return sequences;
}

char32_t take_code(std::string_view text, size_t& position) {
  if (position >= text.size()) return kLastCode + 1;
  const Utf8Char found = decode_utf8(text, position);
  if (found.status != Utf8Status::kValid) return kLastCode + 1;
  position += found.length_bytes;
  return found.code;
}

}  // namespace fathom
