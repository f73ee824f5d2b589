#include "sizes.h"

#include <array>
#include <charconv>
#include <cmath>

#include "failure.h"

namespace fathom::cli {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

bool same_letters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t at = 0; at < a.size(); ++at)
    if ((a[at] | 0x20) != (b[at] | 0x20)) return false;
  return true;
}

/// -1 if the text is no number with one of the units.
template <size_t count>
int64_t parse_amount(std::string_view text, const std::array<Unit, count>& units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return -1;
  std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  for (const Unit& unit : units) {
    if (!same_letters(name, unit.name)) continue;
    const double amount = number * unit.factor;
    return amount < 9e18 ? static_cast<int64_t>(amount) : -1;
  }
  return -1;
}

constexpr double kKi = 1024;
constexpr std::array<Unit, 14> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"KB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12},
                                              {"K", kKi},
                                              {"M", kKi* kKi},
                                              {"G", kKi* kKi* kKi},
                                              {"T", kKi* kKi* kKi* kKi},
                                              {"KiB", kKi},
                                              {"MiB", kKi* kKi},
                                              {"GiB", kKi* kKi* kKi},
                                              {"TiB", kKi* kKi* kKi* kKi}}};
constexpr std::array<Unit, 3> kTokenUnits = {{{"", 1}, {"K", kKi}, {"M", kKi* kKi}}};

bool is_separator(char letter) {
  return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r' || letter == ',';
}

}  // namespace

int64_t parse_bytes(std::string_view text) {
  const int64_t bytes = parse_amount(text, kByteUnits);
  if (bytes < 0) fail_usage("expected a size such as 96GB, 80GiB or 512MiB, found \"{}\"", text);
  return bytes;
}

int64_t parse_tokens(std::string_view text) {
  const int64_t tokens = parse_amount(text, kTokenUnits);
  if (tokens < 0) fail_usage("expected a number of tokens such as 4096, 128K or 1M, found \"{}\"", text);
  return tokens;
}

std::vector<int32_t> parse_ids(std::string_view text) {
  while (!text.empty() && is_separator(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
  if (!text.empty() && text.front() == '[') {
    if (text.back() != ']') fail("token ids: expected ] at the end of the array, found \"{}\"", text.back());
    text = text.substr(1, text.size() - 2);
  }
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    if (is_separator(text[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && !is_separator(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0)
      fail("token ids: number {}: expected a number of 0 or more, found \"{}\"", ids.size() + 1,
           word.substr(0, 40));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kNames.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kNames[unit]);
}

std::string format_seconds(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace fathom::cli
