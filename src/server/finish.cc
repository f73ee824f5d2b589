#include "server/finish.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fathom {
namespace {

double milliseconds(int64_t us) { return static_cast<double>(us) / 1000; }

// Two digits are more than the clock is worth.
double rounded(double rate) { return static_cast<double>(static_cast<int64_t>(rate * 100 + 0.5)) / 100; }

}  // namespace

std::string_view finish_type(const Answer& answer, const AnswerEnd& end) {
  switch (end.cause) {
    case FinishCause::kStopId:
    case FinishCause::kSink:
      if (!end.stop_string.empty()) return "stop_string";
      if (answer.has_whole_call()) return "tool_calls";
      if (end.cause == FinishCause::kStopId && answer.settings().is_chat && answer.turn().end == TurnEnd::kCut)
        return "stop_token";
      return "stop";
    case FinishCause::kMaxTokens: return "max_tokens";
    case FinishCause::kContextFull: return "context_full";
    case FinishCause::kLoop: return "loop";
    case FinishCause::kDeadline: return "time_limit";
    case FinishCause::kCancelled: return "cancelled";
    case FinishCause::kShutdown: return "shutdown";
    case FinishCause::kError: return "error";
  }
  return "error";
}

bool ended_whole(const AnswerEnd& end) {
  return end.cause == FinishCause::kStopId || end.cause == FinishCause::kSink;
}

std::string_view openai_finish_reason(const Answer& answer, const AnswerEnd& end, LoopFinishReason loop_reason) {
  switch (end.cause) {
    case FinishCause::kStopId:
    case FinishCause::kSink: return end.stop_string.empty() && answer.has_whole_call() ? "tool_calls" : "stop";
    case FinishCause::kLoop:
      if (loop_reason == LoopFinishReason::kStop) return "stop";
      return loop_reason == LoopFinishReason::kLength ? "length" : "content_filter";
    case FinishCause::kCancelled:
    case FinishCause::kMaxTokens:
    case FinishCause::kContextFull:
    case FinishCause::kDeadline:
    case FinishCause::kShutdown: return "length";
    case FinishCause::kError: return "error";
  }
  return "error";
}

Json finish_details(const Answer& answer, const AnswerEnd& end) {
  Json details{{"type", finish_type(answer, end)}};
  if (!end.stop_string.empty()) details["stop_string"] = end.stop_string;
  if (details["type"] == "stop_token") details["stop_token_id"] = end.stop_id;
  if (end.loop.found) {
    // Also without a cut: the guard may only have observed.
    const Json loop{{"period", end.loop.period_tokens},
                    {"repeats", end.loop.repeats},
                    {"first_token", end.loop.first_token}};
    if (end.cause == FinishCause::kLoop)
      details.update(loop);
    else
      details["loop_observed"] = loop;
  }
  if (end.cause == FinishCause::kError) details["message"] = end.error.message;
  if (!answer.settings().is_chat) return details;
  const ParsedTurn& turn = answer.turn();
  if (turn.reasoning_unclosed) details["reasoning_unclosed"] = true;
  if (!turn.calls.empty() && !turn.calls.back().complete) details["incomplete_call"] = turn.calls.back().name;
  if (!turn.diagnostics.empty()) details["diagnostics"] = turn.diagnostics;
  return details;
}

Json openai_usage(const GenerationUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.generated_tokens},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json timings(const GenerationUsage& usage) {
  return {{"queue_ms", milliseconds(usage.queue_us)},
          {"prefill_ms", milliseconds(usage.prefill_us)},
          {"prefill_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"prefill_tokens_per_second", rounded(usage.prefill_tokens_per_second())},
          {"decode_ms", milliseconds(usage.decode_us)},
          {"decode_tokens", usage.generated_tokens},
          {"decode_tokens_per_second", rounded(usage.decode_tokens_per_second())}};
}

GenerationUsage sum_usage(const GenerationUsage& a, const GenerationUsage& b) {
  GenerationUsage sum = a;
  // The prompt is one, however many answers it gets; the answer that reused least of it says what it cost.
  sum.cached_tokens = std::min(a.cached_tokens, b.cached_tokens);
  sum.generated_tokens += b.generated_tokens;
  sum.reasoning_tokens += b.reasoning_tokens;
  sum.queue_us = std::max(a.queue_us, b.queue_us);
  sum.prefill_us = std::max(a.prefill_us, b.prefill_us);
  sum.decode_us = std::max(a.decode_us, b.decode_us);
  return sum;
}

}  // namespace fathom
