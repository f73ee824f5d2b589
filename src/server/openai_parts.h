// Pieces of OpenAI-style responses that chat and completions share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/json_fields.h"

namespace fathom {

/// {"token", "logprob", "bytes", "top_logprobs": [...]} of a chat answer; `top` gives the best first.
Json chat_logprob(const AnswerToken& token, const Tokenizer& tokenizer);
/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of completions; `first_offset`: of the first token.
Json completion_logprobs(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer, bool with_top,
                         int64_t first_offset);
/// The answer as an assistant message: content, reasoning_content, tool_calls (whole ones). `call_ids` gives each
/// call's id by its ParsedCall::index.
Json assistant_message(const Answer& answer, const std::vector<std::string>& call_ids);

}  // namespace fathom
