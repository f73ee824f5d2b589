#include "grammar/schema_numbers.h"

#include <algorithm>
#include <vector>

namespace fathom {
namespace {

constexpr uint64_t kWholeMax = 999'999'999'999'999'999u;
using Expression = std::optional<std::string>;  // none: nothing matches

std::string any_digits(size_t count) {
  if (count == 0) return "";
  return count == 1 ? "[0-9]" : fmt::format("[0-9]{{{}}}", count);
}
std::string digit_range(char first, char last) {
  return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}
bool all(std::string_view digits, char digit) { return digits.find_first_not_of(digit) == digits.npos; }

Expression choice(const std::vector<std::string>& parts) {
  if (parts.empty()) return std::nullopt;
  if (parts.size() == 1) return parts[0];
  return fmt::format("({})", fmt::join(parts, " | "));
}
void add(std::vector<std::string>& parts, const std::string& before, const Expression& part) {
  if (part) parts.push_back(before.empty() ? *part : part->empty() ? before : before + " " + *part);
}

/// Digits from `low` to `high`, which are equally long.
std::string same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  const size_t rest = low.size() - 1;
  if (all(low, '0') && all(high, '9')) return any_digits(low.size());
  std::vector<std::string> parts;
  if (low[0] == high[0]) {
    add(parts, digit_range(low[0], low[0]), same_length(low.substr(1), high.substr(1)));
    return *choice(parts);
  }
  char first = low[0], last = high[0];
  if (!all(low.substr(1), '0')) {
    add(parts, digit_range(first, first), same_length(low.substr(1), std::string(rest, '9')));
    ++first;
  }
  const bool whole_top = all(high.substr(1), '9');
  if (!whole_top) --last;
  if (first <= last) add(parts, digit_range(first, last), any_digits(rest));
  if (!whole_top)
    add(parts, digit_range(high[0], high[0]), same_length(std::string(rest, '0'), high.substr(1)));
  return *choice(parts);
}

/// Whole numbers from `low` to `high`, without leading zeros.
Expression whole_range(uint64_t low, uint64_t high) {
  std::vector<std::string> parts;
  uint64_t first = 0, last = 9;
  for (int length = 1; length <= kNumberDigitsMax; ++length) {
    const uint64_t a = std::max(low, first), b = std::min(high, last);
    if (a <= b) parts.push_back(same_length(std::to_string(a), std::to_string(b)));
    first = last + 1;
    last = last * 10 + 9;
  }
  return choice(parts);
}

const std::string kAnyTail = fmt::format("[0-9]{{0,{}}}", kNumberDigitsMax);
const std::string kZeroTail = fmt::format("\"0\"{{0,{}}}", kNumberDigitsMax);
const std::string kAnyFraction = fmt::format("(\".\" [0-9]{{1,{}}})?", kNumberDigitsMax);
const std::string kZeroFraction = fmt::format("(\".\" \"0\"{{1,{}}})?", kNumberDigitsMax);
const std::string kPositiveTail = fmt::format("\"0\"{{0,{0}}} [1-9] [0-9]{{0,{0}}}", kNumberDigitsMax - 1);

std::string_view strip_zeros(std::string_view digits) {
  while (!digits.empty() && digits.back() == '0') digits.remove_suffix(1);
  return digits;
}

// Digits that go on so that the fraction is at least (above, if exclusive) or at most (below) 0.`digits`;
// they may be none where that is enough.
std::string at_least(std::string_view digits, bool exclusive) {
  digits = strip_zeros(digits);
  if (digits.empty()) return exclusive ? kPositiveTail : kAnyTail;
  std::vector<std::string> parts;
  if (digits[0] < '9') parts.push_back(digit_range(static_cast<char>(digits[0] + 1), '9') + " " + kAnyTail);
  add(parts, digit_range(digits[0], digits[0]), at_least(digits.substr(1), exclusive));
  return *choice(parts);
}
Expression at_most(std::string_view digits, bool exclusive, bool may_end) {
  digits = strip_zeros(digits);
  if (digits.empty()) return exclusive ? Expression() : kZeroTail;
  std::vector<std::string> parts;
  if (digits[0] > '0') parts.push_back(digit_range('0', static_cast<char>(digits[0] - 1)) + " " + kAnyTail);
  add(parts, digit_range(digits[0], digits[0]), at_most(digits.substr(1), exclusive, true));
  if (may_end) return "(" + *choice(parts) + ")?";
  return choice(parts);
}

/// With the point, or nothing where 0 is in the range.
Expression fraction_at_least(const std::string& digits, bool exclusive) {
  if (digits.empty() && !exclusive) return kAnyFraction;
  return "\".\" " + at_least(digits, exclusive);
}
Expression fraction_at_most(const std::string& digits, bool exclusive) {
  if (digits.empty()) return exclusive ? Expression() : kZeroFraction;
  return "(\".\" " + *at_most(digits, exclusive, false) + ")?";
}

struct FractionRange {
  std::string low, high;  // equally long
  bool low_exclusive = false, high_exclusive = false;
};
Expression between(const FractionRange& range, size_t at) {
  if (at == range.low.size()) return kZeroTail;
  const char low = range.low[at], high = range.high[at];
  const std::string_view low_rest = std::string_view(range.low).substr(at + 1);
  const std::string_view high_rest = std::string_view(range.high).substr(at + 1);
  std::vector<std::string> parts;
  if (low == high) {
    add(parts, digit_range(low, low), between(range, at + 1));
  } else {
    add(parts, digit_range(low, low), at_least(low_rest, range.low_exclusive));
    if (low + 1 < high)
      parts.push_back(digit_range(static_cast<char>(low + 1), static_cast<char>(high - 1)) + " " + kAnyTail);
    add(parts, digit_range(high, high), at_most(high_rest, range.high_exclusive, true));
  }
  if (parts.empty()) return std::nullopt;
  const bool may_end = !range.low_exclusive && all(std::string_view(range.low).substr(at), '0');
  if (at == 0) return may_end ? "(\".\" " + *choice(parts) + ")?" : "\".\" " + *choice(parts);
  return may_end ? "(" + *choice(parts) + ")?" : *choice(parts);
}
Expression fraction_between(FractionRange range) {
  if (range.low == range.high) {
    if (range.low_exclusive || range.high_exclusive) return std::nullopt;
    return range.low.empty() ? kZeroFraction : fmt::format("\".{}\" {}", range.low, kZeroTail);
  }
  const size_t length = std::max(range.low.size(), range.high.size());
  range.low.resize(length, '0');
  range.high.resize(length, '0');
  return between(range, 0);
}

/// Numbers without sign from `low` to `high`.
Expression magnitudes(const NumberBound& low, const NumberBound& high) {
  const uint64_t first = low.value.whole, last = high.value.whole;
  std::vector<std::string> parts;
  if (first > last) return std::nullopt;
  const auto whole = [](uint64_t number) { return fmt::format("\"{}\"", number); };
  if (first == last) {
    const int order = low.value.fraction.compare(high.value.fraction);  // no trailing zeros: as numbers
    if (order > 0) return std::nullopt;
    add(parts, whole(first),
        fraction_between({low.value.fraction, high.value.fraction, low.exclusive, high.exclusive}));
    return choice(parts);
  }
  add(parts, whole(first), fraction_at_least(low.value.fraction, low.exclusive));
  if (first + 1 < last) add(parts, *whole_range(first + 1, last - 1), kAnyFraction);
  add(parts, whole(last), fraction_at_most(high.value.fraction, high.exclusive));
  return choice(parts);
}

Decimal largest() { return {false, kWholeMax, std::string(kNumberDigitsMax, '9')}; }
Decimal opposite(Decimal value) {
  value.negative = !value.negative && !value.is_zero();
  return value;
}

struct Closed {
  NumberBound low, high;
};
Closed close(const NumberRange& range) {
  return {range.low.value_or(NumberBound{opposite(largest())}), range.high.value_or(NumberBound{largest()})};
}

}  // namespace

Result<Decimal> parse_decimal(std::string_view text) {
  const std::string_view all_text = text;
  Decimal value;
  value.negative = text.starts_with('-');
  if (value.negative) text.remove_prefix(1);
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    std::string digits(text.substr(e + 1));
    if (digits.starts_with('+')) digits.erase(0, 1);
    exponent = digits.size() > 5 ? 99'999 : std::stol(digits);
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  if (point < text.size()) digits += text.substr(point + 1);
  int64_t whole_digits = static_cast<int64_t>(point) + exponent;
  const Error too_long = Error::invalid("expected at most {} digits before and behind the point, found {}",
                                        kNumberDigitsMax, all_text);
  if (std::abs(whole_digits) > 1000) return too_long;
  if (whole_digits < 0) digits.insert(0, static_cast<size_t>(-whole_digits), '0'), whole_digits = 0;
  if (digits.size() < static_cast<size_t>(whole_digits))
    digits.resize(static_cast<size_t>(whole_digits), '0');
  const std::string_view view = digits;
  std::string_view whole = view.substr(0, static_cast<size_t>(whole_digits));
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size()));
  value.fraction = strip_zeros(view.substr(static_cast<size_t>(whole_digits)));
  if (whole.size() > kNumberDigitsMax || value.fraction.size() > kNumberDigitsMax) return too_long;
  for (const char digit : whole) value.whole = value.whole * 10 + static_cast<uint64_t>(digit - '0');
  value.negative &= !value.is_zero();
  return value;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = a.whole != b.whole ? (a.whole < b.whole ? -1 : 1) : a.fraction.compare(b.fraction);
  order = order < 0 ? -1 : order > 0 ? 1 : 0;
  return a.negative ? -order : order;
}

std::optional<std::string> gbnf_integer(const NumberRange& range) {
  const Closed closed = close(range);
  // To whole numbers inside of the range; 10^18 is far below what int64_t holds.
  const auto inward = [](const NumberBound& bound, int64_t in) {
    const auto whole = static_cast<int64_t>(bound.value.whole) * (bound.value.negative ? -1 : 1);
    if (bound.value.fraction.empty()) return bound.exclusive ? whole + in : whole;
    return bound.value.negative == (in < 0) ? whole + in : whole;
  };
  const int64_t low = inward(closed.low, 1), high = inward(closed.high, -1);
  std::vector<std::string> parts;
  if (low > high) return std::nullopt;
  const auto magnitude = [](int64_t value) { return static_cast<uint64_t>(std::abs(value)); };
  if (low < 0) add(parts, "\"-\"", whole_range(high < 0 ? magnitude(high) : 1, magnitude(low)));
  if (high >= 0) add(parts, "", whole_range(low < 0 ? 0 : magnitude(low), magnitude(high)));
  return choice(parts);
}

std::optional<std::string> gbnf_number(const NumberRange& range) {
  const Closed closed = close(range);
  if (compare(closed.low.value, closed.high.value) > 0) return std::nullopt;
  std::vector<std::string> parts;
  const Decimal zero;
  if (closed.low.value.negative) {
    const bool below_zero = compare(closed.high.value, zero) < 0;
    const NumberBound near = below_zero ? NumberBound{opposite(closed.high.value), closed.high.exclusive}
                                        : NumberBound{zero, true};
    const Expression part = magnitudes(near, {opposite(closed.low.value), closed.low.exclusive});
    if (part) parts.push_back("\"-\" " + *part);
  }
  if (!closed.high.value.negative) {
    const NumberBound near = closed.low.value.negative ? NumberBound{zero, false} : closed.low;
    add(parts, "", magnitudes(near, closed.high));
  }
  return choice(parts);
}

}  // namespace fathom
