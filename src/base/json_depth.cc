#include "base/json_depth.h"

namespace fathom {

bool json_is_deeper_than(std::string_view text, int levels) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (in_string) {
      if (letter == '\\') ++at;
      if (letter == '"') in_string = false;
      continue;
    }
    if (letter == '"') in_string = true;
    if (letter == '[' || letter == '{') ++depth;
    if (letter == ']' || letter == '}') --depth;
    if (depth > levels) return true;
  }
  return false;
}

}  // namespace fathom
