#include "engine/generator.h"

namespace fathom {
namespace {

double per_second(int64_t tokens, int64_t time_us) {
  return time_us > 0 ? static_cast<double>(tokens) * 1e6 / static_cast<double>(time_us) : 0;
}

}  // namespace

std::string_view finish_cause_name(FinishCause cause) {
  switch (cause) {
    case FinishCause::kStopId: return "stop_id";
    case FinishCause::kSink: return "sink";
    case FinishCause::kMaxTokens: return "max_tokens";
    case FinishCause::kContextFull: return "context_full";
    case FinishCause::kLoop: return "loop";
    case FinishCause::kDeadline: return "deadline";
    case FinishCause::kCancelled: return "cancelled";
    case FinishCause::kShutdown: return "shutdown";
    case FinishCause::kError: return "error";
  }
  return "error";
}

double GenerationUsage::prefill_tokens_per_second() const {
  return per_second(prompt_tokens - cached_tokens, prefill_us);
}

double GenerationUsage::decode_tokens_per_second() const { return per_second(generated_tokens, decode_us); }

}  // namespace fathom
