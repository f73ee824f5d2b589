// Reads a conversation from JSON in the shape of the OpenAI chat API, with DeepSeek's additions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/chat_message.h"

namespace fathom {

/// Reads {"messages": [...], "tools": [...], "response_format": ..., "thinking": ..., "reasoning_effort":
/// ...}. Other top-level members (model, temperature, ...) belong to others and are skipped.
/// Errors are kInvalidArgument and name the member, what was expected and what was found, as in
/// `messages[2].content[0].type: expected "text", ..., found "audio"`.
/// The accepted members are listed in docs/formats/chat.md.
Result<Conversation> parse_conversation(std::string_view json);

/// A number from 1 to 100 in digits, or minimal, low, medium, high, xhigh, max, ultra.
Result<int> parse_effort(std::string_view word);

}  // namespace fathom
