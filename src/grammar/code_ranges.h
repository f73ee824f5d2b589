// Sets of Unicode code points, and their spelling in UTF-8 as ranges of bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom {

struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;  // included
  bool operator==(const CodeRange&) const = default;
};
using CodeRanges = std::vector<CodeRange>;

constexpr char32_t kLastCode = 0x10FFFF;

/// Sorted, disjoint, without neighbours that touch, and without surrogates: UTF-8 has none.
CodeRanges normalize_ranges(CodeRanges ranges);
/// What is not in `ranges`, which are normal.
CodeRanges invert_ranges(const CodeRanges& ranges);
/// What is in both; both are normal.
CodeRanges intersect_ranges(const CodeRanges& a, const CodeRanges& b);

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;
  auto operator<=>(const ByteRange&) const = default;
};
/// One byte from each of the first `length` ranges, in order.
struct ByteSequence {
  std::array<ByteRange, 4> bytes = {};
  int length = 0;
};
/// Sequences that together spell exactly the code points of normal `ranges`; no text has two spellings.
std::vector<ByteSequence> utf8_sequences(const CodeRanges& ranges);

/// The code point at `position`, which moves behind it; kLastCode + 1, and no move, where there is no valid
/// UTF-8.
char32_t take_code(std::string_view text, size_t& position);

}  // namespace fathom
