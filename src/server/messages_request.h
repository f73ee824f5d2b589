// Requests of the messages API, converted to the shape of the chat API; docs/serve_messages.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/generation_fields.h"
#include "server/json_fields.h"

namespace fathom {

struct MessagesRequest {
  Json chat;                         // for prepare_chat()
  GenerationFields fields;
  std::vector<std::string> ignored;  // what was understood and left out
  bool shows_thinking = true;        // false: thinking blocks stay empty
};

struct MessagesReading {
  const GenerationDefaults& defaults;
  int32_t vocab_size = 0;
  bool drops_billing_header = true;
  bool needs_max_tokens = true;  // counting tokens does not
};

/// kInvalidArgument and kUnsupported name members as the client wrote them.
Result<MessagesRequest> read_messages_request(const Json& request, const MessagesReading& reading);
/// An error about the converted request, in the client's words.
Error in_messages_words(Error error);

/// The text without lines that begin with "x-anthropic-billing-header:", whose values differ in every request.
std::string without_billing_lines(std::string_view text);

}  // namespace fathom
