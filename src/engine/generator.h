// What a server asks of an engine: answers to many requests at once, as token ids.
//
// Two implementations: Scheduler runs a model; the server's tests use one that plays a script.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/loop_guard.h"
#include "engine/sampler.h"
#include "engine/token_mask.h"

namespace fathom {

using GenerationClock = std::chrono::steady_clock;

struct GeneratedToken {
  int32_t id = 0;
  int64_t index = 0;           // in the answer, from 0
  bool is_stop = false;        // one of the request's stop_ids: the answer ends with it
  double logprob = 0;          // of the model's own distribution, whatever the sampling; only if asked for
  std::span<const TokenLogprob> top;  // best first; valid during the call
};

enum class FinishCause : uint8_t {
  kStopId,       // the last token is one of stop_ids
  kSink,         // on_token() said so: a stop string, the end of a turn
  kMaxTokens,    // the request's own limit
  kContextFull,  // the context, not the request, was the limit
  kLoop,         // the loop guard ended it
  kDeadline,     // the request's time was over
  kCancelled,    // cancel()
  kShutdown,     // the engine is being closed
  kError,        // GenerationFinish::error
};
/// "stop_id", "max_tokens", ...
std::string_view finish_cause_name(FinishCause cause);

struct GenerationUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;     // of the prompt, not evaluated again
  int64_t generated_tokens = 0;  // with a stop id that was sampled
  int64_t reasoning_tokens = 0;  // of the generated ones; filled by whoever can tell them apart
  int64_t queue_us = 0;          // submitted -> first step
  int64_t prefill_us = 0;        // first step -> logits of the last prompt token
  int64_t decode_us = 0;         // end of prefill -> last token

  double prefill_tokens_per_second() const;  // of those evaluated; 0 if none
  double decode_tokens_per_second() const;   // generated / decode time; 0 if none
};

struct GenerationFinish {
  FinishCause cause = FinishCause::kError;
  Error error;                   // kError only
  int32_t stop_id = -1;          // kStopId only
  LoopReport loop;               // a loop that was seen, also when it was only observed
  GenerationUsage usage;
};

struct PrefillProgress {
  int64_t done_tokens = 0;    // cached ones included
  int64_t total_tokens = 0;
  int64_t cached_tokens = 0;
};

/// Hears about one request, on the engine's thread: it must not block. Order: on_prefill() any number of times,
/// on_prompt_logprobs() if asked for, on_token() any number of times, on_finish() exactly once and last.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void on_prefill(const PrefillProgress& progress) { (void)progress; }
  /// Of each prompt token after the first, given those before it: prompt_tokens - 1 values.
  virtual void on_prompt_logprobs(std::span<const double> logprobs,
                                  std::span<const std::vector<TokenLogprob>> top) {
    (void)logprobs, (void)top;
  }
  /// False ends the answer after this token.
  virtual bool on_token(const GeneratedToken& token) = 0;
  virtual void on_finish(const GenerationFinish& finish) = 0;
};

struct GenerationRequest {
  std::string name;                // for logs and status, chosen by the caller
  std::vector<int32_t> prompt;
  int64_t max_tokens = -1;         // of the answer; -1: what the context holds; 0: only evaluate the prompt
  int64_t min_tokens = 0;          // stop ids are banned before
  bool ignore_stop_ids = false;    // stop ids are banned throughout
  std::vector<int32_t> stop_ids;
  SamplerOptions sampling;         // prompt_tokens is set by the generator
  std::unique_ptr<TokenMask> mask; // null: everything is allowed
  int top_logprobs = -1;           // -1: no logprobs; 0: of the chosen token only; else that many beside it
  bool prompt_logprobs = false;    // every layer runs on every row, nothing is reused
  /// Ascending prompt lengths at which other prompts are likely to part from this one: the end of the system
  /// message and tools, the part that stays when the next turn comes. The state is kept there if it is worth it.
  std::vector<int64_t> branch_points;
  bool reuse_prefix = true;
  LoopGuardOptions loop_guard;
  GenerationClock::time_point deadline = GenerationClock::time_point::max();
  std::shared_ptr<GenerationSink> sink;
};

using GenerationId = uint64_t;

struct SlotStatus {
  enum class Phase : uint8_t { kIdle, kPrefill, kDecode } phase = Phase::kIdle;
  GenerationId id = 0;
  std::string name;
  int64_t context_tokens = 0;    // that the slot can hold
  int64_t held_tokens = 0;       // that it holds now, also when idle
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
};

/// Counters only grow.
struct GeneratorStatistics {
  int64_t requests_finished[9] = {};  // by FinishCause
  int64_t requests_refused = 0;       // the queue was full
  int64_t prompt_tokens = 0, cached_tokens = 0, evaluated_tokens = 0, generated_tokens = 0;
  int64_t steps = 0, step_us = 0, step_us_max = 0;
  int64_t prefill_us = 0, decode_us = 0;
  int64_t loops_seen = 0;
  int64_t cache_entries = 0, cache_bytes = 0, cache_bytes_max = 0;  // now, in RAM
  int64_t cache_hits = 0, cache_misses = 0, cache_evictions = 0;
  int64_t disk_entries = 0, disk_bytes = 0, disk_bytes_max = 0;     // now
  int64_t disk_hits = 0, disk_writes = 0, disk_dropped = 0;         // dropped: damaged or foreign entries
};

struct GeneratorStatus {
  std::vector<SlotStatus> slots;
  int64_t queued_requests = 0;
  int64_t queue_limit = 0;
  int64_t context_tokens = 0;  // of a request, prompt and answer together
  int32_t vocab_size = 0;
  bool accepts_requests = true;  // false after shutdown() began
  GeneratorStatistics statistics;
};

/// All calls may come from any thread.
class Generator {
 public:
  virtual ~Generator() = default;
  /// Checks and queues. Errors, after which the sink is not called: kInvalidArgument (an empty prompt, an id out
  /// of range, a sampling value), kUnsupported (image tokens), kContextFull (the prompt leaves no room; both
  /// numbers are in the message), kBusy (the queue is full), kState (shutting down).
  virtual Result<GenerationId> submit(GenerationRequest request) = 0;
  /// Ends the request with kCancelled at the next step boundary. Unknown and finished ids are ignored. Also for
  /// sinks.
  virtual void cancel(GenerationId id) = 0;
  virtual GeneratorStatus status() const = 0;
  /// Takes no more requests, lets those that run and wait finish until `deadline`, ends the rest with kShutdown,
  /// and writes what should survive to disk. Returns when nothing runs.
  virtual void shutdown(GenerationClock::time_point deadline) = 0;
};

}  // namespace fathom
