// Ranges of numbers as GBNF over their digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

constexpr int kNumberDigitsMax = 18;  // before the point, and behind it

/// A finite decimal number, exact.
struct Decimal {
  bool negative = false;  // never of zero
  uint64_t whole = 0;     // below 10^18
  std::string fraction;   // digits behind the point, at most 18, not ending in 0
  bool is_zero() const { return whole == 0 && fraction.empty(); }
};
/// `text` as JSON spells numbers. kInvalidArgument: too many digits.
Result<Decimal> parse_decimal(std::string_view text);
/// -1, 0 or 1.
int compare(const Decimal& a, const Decimal& b);

struct NumberBound {
  Decimal value;
  bool exclusive = false;
};
struct NumberRange {
  std::optional<NumberBound> low, high;  // none: as far as kNumberDigitsMax digits go
};

/// Integers of the range, without exponent and point. None: the range has no integer.
std::optional<std::string> gbnf_integer(const NumberRange& range);
/// Numbers of the range, without exponent. None: the range is empty.
std::optional<std::string> gbnf_number(const NumberRange& range);

}  // namespace fathom
