#include "base/json_depth.h"

#include <vector>

namespace fathom {
namespace {

/// Calls visit(letter) for what is outside of strings, until it says true; whether it did.
template <class Visit>
bool find_mark(std::string_view text, Visit visit) {
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (in_string) {
      if (letter == '\\') ++at;
      if (letter == '"') in_string = false;
      continue;
    }
    if (letter == '"') in_string = true;
    if (visit(letter)) return true;
  }
  return false;
}

}  // namespace

bool json_is_deeper_than(std::string_view text, int levels) {
  int depth = 0;
  return find_mark(text, [&](char letter) {
    if (letter == '[' || letter == '{') ++depth;
    if (letter == ']' || letter == '}') --depth;
    return depth > levels;
  });
}

bool json_is_wider_than(std::string_view text, size_t members) {
  std::vector<size_t> counts;  // of each object and array that is open
  return find_mark(text, [&](char letter) {
    if (letter == '[' || letter == '{') counts.push_back(0);
    if ((letter == ']' || letter == '}') && !counts.empty()) counts.pop_back();
    return letter == ':' && !counts.empty() && ++counts.back() > members;
  });
}

}  // namespace fathom
