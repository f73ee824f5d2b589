// JSON values as the prompt wants them written: the way Python's json.dumps(ensure_ascii=False) does.
// For source files of this room; the only header here that knows the JSON library.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

/// Deepest nesting that is accepted; Python's own limit is near 1000.
constexpr int kJsonDepthMax = 512;

/// Parses one JSON text, keeping key order. Integers beyond 64 bits are kept digit by digit (as a binary
/// value holding the digits, which JSON text itself never produces). Objects have at most kJsonMembersMax members
/// (base/json_depth.h). `what` names the text in errors.
Result<nlohmann::ordered_json> parse_json_value(std::string_view text, std::string_view what);

/// ", " and ": " as separators, non-ASCII characters as they are, floats in their shortest form ("1.0",
/// "1e+16", "1e-05").
std::string write_python_json(const nlohmann::ordered_json& value);

/// Appends `text` escaped as the inside of a JSON string. `text` may be any piece that ends between
/// characters: pieces escaped one by one equal the whole escaped at once.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace fathom
