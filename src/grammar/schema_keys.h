// Names of members that are none of a few.
#pragma once

#include <string>
#include <vector>

#include "grammar/json_rules.h"

namespace fathom {

/// The rule for any key, with its quotes, that is none of `names` (UTF-8). Spelled without \u, so that no
/// name can hide behind another spelling.
std::string other_keys(const std::vector<std::string>& names, JsonRules& rules);

}  // namespace fathom
