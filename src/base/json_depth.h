// How deep a JSON text nests and how wide its objects are, before it is parsed.
#pragma once

#include <cstddef>
#include <string_view>

namespace fathom {

/// More than any file of a pack needs. Values much deeper would overflow the stack of whoever copies or
/// prints them.
constexpr int kPackJsonDepthMax = 64;

/// Whether arrays and objects of a JSON text nest deeper than `levels`. Says something for texts that are no
/// JSON, too; the parser refuses those.
bool json_is_deeper_than(std::string_view text, int levels);

/// The JSON library keeps the members of an object in their order and compares a new one with all before it: an
/// object of a million, 10 MB of text, would keep a thread busy for many minutes.
constexpr size_t kJsonMembersMax = 4096;

/// Whether an object of a JSON text has more than `members` members. For texts whose depth was checked: it holds
/// a number for each level.
bool json_is_wider_than(std::string_view text, size_t members);

}  // namespace fathom
