// Why an answer ended and what it cost, as members of responses; docs/serve.md, "How an answer ended".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/answer.h"
#include "server/json_fields.h"

namespace fathom {

/// What the OpenAI APIs' finish_reason says of an answer that the loop guard cut.
enum class LoopFinishReason : uint8_t { kLength, kStop, kContentFilter };

/// The cause in one word, finer than finish_reason: "stop", "stop_string", "stop_token", "tool_calls",
/// "max_tokens", "context_full", "loop", "time_limit", "cancelled", "shutdown", "error".
std::string_view finish_type(const Answer& answer, const AnswerEnd& end);
/// "stop", "length", "tool_calls", "content_filter", or "error".
std::string_view openai_finish_reason(const Answer& answer, const AnswerEnd& end, LoopFinishReason loop_reason);
/// Whether the model, or a stop that was asked for, ended the answer: nothing was cut.
bool ended_whole(const AnswerEnd& end);

/// {"type": ..., and what belongs to it: stop_string, stop_token_id, period, repeats, first_token, ...}.
Json finish_details(const Answer& answer, const AnswerEnd& end);

/// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details": {"cached_tokens"},
/// "completion_tokens_details": {"reasoning_tokens"}}
Json openai_usage(const GenerationUsage& usage);
/// Times and rates of a request: queue, prefill, decode.
Json timings(const GenerationUsage& usage);
/// Of several answers to one prompt: tokens add up, of times the longest.
GenerationUsage sum_usage(const GenerationUsage& a, const GenerationUsage& b);

}  // namespace fathom
