// The tools of the responses API as tools of the chat API.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/json_fields.h"

namespace fathom {

struct ResponsesTools {
  Json chat = Json::array();         // "tools" for prepare_chat()
  Json choice;                       // "tool_choice" likewise; null: not given
  std::set<std::string> custom;      // qualified names of those that take free text
  std::vector<std::string> ignored;  // kinds that only another server could run
};

/// Reads "tools" and "tool_choice".
Result<ResponsesTools> read_responses_tools(const Fields& request);

}  // namespace fathom
