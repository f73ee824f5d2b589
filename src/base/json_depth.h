// How deep a JSON text nests, before it is parsed.
#pragma once

#include <string_view>

namespace fathom {

/// More than any file of a pack needs. Values much deeper would overflow the stack of whoever copies or
/// prints them.
constexpr int kPackJsonDepthMax = 64;

/// Whether arrays and objects of a JSON text nest deeper than `levels`. Says something for texts that are no
/// JSON, too; the parser refuses those.
bool json_is_deeper_than(std::string_view text, int levels);

}  // namespace fathom
