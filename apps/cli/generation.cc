#include "generation.h"

#include <chrono>

#include "failure.h"
#include "interrupt.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// False if it was interrupted.
bool prefill(const GenerationRequest& request, Progress& progress, Generation& result) {
  const int64_t context = fathom_session_context(request.session);
  const auto count = static_cast<int64_t>(request.prompt.size());
  if (count == 0) fail("the prompt is empty");
  if (count > context)
    fail("the prompt has {} tokens and the context holds {}: raise --ctx or shorten the prompt", count,
         context);
  const auto start = Clock::now();
  fathom_session_set_progress(request.session, Progress::report, &progress);
  const fathom_status status =
      fathom_sync(request.session, request.prompt.data(), request.prompt.size(), &result.sync);
  fathom_session_set_progress(request.session, nullptr, nullptr);
  progress.finish();
  result.prefill_seconds = seconds_since(start);
  if (status == FATHOM_CANCELLED) return false;
  require(status);
  return true;
}

EndReason decode(const GenerationRequest& request, const TakeToken& take, Generation& result) {
  const auto start = Clock::now();
  Clock::time_point first = start;
  for (;;) {
    if (interrupted()) return EndReason::kInterrupted;
    if (request.max_tokens >= 0 && result.tokens >= request.max_tokens) return EndReason::kLength;
    int32_t id = 0;
    require(fathom_sample(request.session, &request.sampling, &id));
    if (first == start) {
      first = Clock::now();
      result.first_token_seconds = result.prefill_seconds + seconds_since(start);
    }
    if (fathom_is_stop(request.tokenizer, id)) {
      result.end_id = id;
      return EndReason::kEos;
    }
    const Verdict verdict = take(id);
    ++result.tokens;
    if (verdict == Verdict::kStopString) return EndReason::kStopString;
    if (verdict == Verdict::kOutputClosed) return EndReason::kOutputClosed;
    if (request.max_tokens >= 0 && result.tokens >= request.max_tokens) return EndReason::kLength;
    if (fathom_session_position(request.session) >= fathom_session_context(request.session))
      return EndReason::kContextFull;
    require(fathom_eval(request.session, id));
    ++result.decode_steps;
    result.decode_seconds = seconds_since(first);
  }
}

}  // namespace

const char* end_reason_name(EndReason reason) {
  switch (reason) {
    case EndReason::kEos: return "end of sequence";
    case EndReason::kStopString: return "stop string";
    case EndReason::kLength: return "length";
    case EndReason::kContextFull: return "context full";
    case EndReason::kInterrupted: return "interrupted";
    case EndReason::kOutputClosed: return "output closed";
  }
  return "";
}

double Generation::prefill_speed() const {
  return prefill_seconds > 0 ? static_cast<double>(sync.evaluated_tokens) / prefill_seconds : 0;
}

double Generation::decode_speed() const {
  return decode_seconds > 0 ? static_cast<double>(decode_steps) / decode_seconds : 0;
}

Generation generate(const GenerationRequest& request, Progress& progress, const TakeToken& take) {
  Generation result;
  result.reason = EndReason::kInterrupted;
  if (prefill(request, progress, result)) result.reason = decode(request, take, result);
  return result;
}

void print_statistics(Output& output, const Generation& generation) {
  std::string text = fmt::format("prefill      {:>6} tokens  {:>8.1f} tok/s",
                                 generation.sync.evaluated_tokens, generation.prefill_speed());
  if (generation.sync.reused_tokens > 0)
    text += fmt::format("  ({} more were there already)", generation.sync.reused_tokens);
  text += fmt::format("\ndecode       {:>6} tokens  {:>8.1f} tok/s\n", generation.tokens,
                      generation.decode_speed());
  text += fmt::format("first token  {:>6.2f} s\n", generation.first_token_seconds);
  text += fmt::format("ended        {}\n", end_reason_name(generation.reason));
  output.write_raw(text);
}

}  // namespace fathom::cli
