// Requests of the responses API, converted to the shape of the chat API; docs/serve_responses.md.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation_fields.h"
#include "server/json_fields.h"

namespace fathom {

struct ResponsesRequest {
  Json chat;                           // for prepare_chat()
  Json messages;                       // the conversation so far without instructions, to be stored
  GenerationFields fields;
  std::vector<std::string> ignored;    // what was understood and left out
  std::set<std::string> custom_tools;  // qualified names of tools that take free text
  bool store = true;
  bool wants_encrypted_reasoning = false;
  Json echo;                           // members of the request that a response object repeats
};

/// What earlier responses hold.
struct ResponsesHistory {
  Json messages = Json::array();  // of the response that is continued
  /// An output item by its id, for items that only refer to one; null if unknown.
  std::function<Json(std::string_view item_id)> find_item;
};

/// kInvalidArgument and kUnsupported name members as the client wrote them.
Result<ResponsesRequest> read_responses_request(const Json& request, ResponsesHistory history,
                                                const GenerationDefaults& defaults, int32_t vocab_size);
/// An error about the converted request, in the client's words.
Error in_responses_words(Error error);

/// The argument that stands for the free text of a custom tool's call.
constexpr const char* kCustomToolInput = "input";
/// Reasoning as "encrypted_content": not secret, only opaque. Undone: nothing if it is not ours.
std::string wrap_reasoning(std::string_view text);
std::optional<std::string> unwrap_reasoning(std::string_view wrapped);

}  // namespace fathom
