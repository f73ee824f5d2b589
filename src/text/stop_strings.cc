#include "text/stop_strings.h"

#include <algorithm>

namespace fathom {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, "");
}

/// Bytes at the end of `text` that may be the beginning of a stop string.
size_t StopStrings::unsafe_tail(std::string_view text) const {
  size_t longest = 0;
  for (const std::string& stop : strings_)
    for (size_t length = std::min(stop.size() - 1, text.size()); length > longest; --length)
      if (text.ends_with(std::string_view(stop).substr(0, length))) longest = length;
  return longest;
}

std::string StopStrings::take(std::string_view text) {
  if (found_) return "";
  held_ += text;
  size_t best_begin = std::string::npos, best_end = std::string::npos;
  for (const std::string& stop : strings_) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_begin = begin;
      best_end = end;
      matched_ = stop;
    }
  }
  found_ = best_begin != std::string::npos;
  const size_t safe = found_ ? best_begin : held_.size() - unsafe_tail(held_);
  std::string result = held_.substr(0, safe);
  held_ = found_ ? "" : held_.substr(safe);
  return result;
}

std::string StopStrings::finish() {
  std::string rest = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace fathom
