// A request while the scheduler has it: what was said, drawn and counted.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "engine/generator.h"

namespace fathom {

/// Made by the thread that submits, afterwards of the engine's thread, except for `cancelled`.
struct Job {
  Job(GenerationId job_id, GenerationRequest asked, GenerationClock::time_point now);

  const GenerationId id;
  GenerationRequest request;
  std::atomic<bool> cancelled = false;

  std::vector<int32_t> tokens;  // the prompt and the answer so far
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  bool is_prefilled = false;  // the sink has heard of the whole prompt
  bool is_alone = false;      // after a failed step: runs in steps of its own until it is where it was
  int failures = 0;           // in a row
  int64_t mask_us = 0;        // what the mask took for the newest token
  std::vector<double> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_top;

  std::shared_ptr<void> disk_protection;  // what it may need is not evicted while it waits

  GenerationClock::time_point submitted, first_step, prefill_end, last_token;
  bool has_begun = false;

  /// Makes what draws tokens, of options that have been checked; not before the job runs, it is large.
  void prepare(int32_t vocab_size);
  /// Draws the next token from `logits`, shows it to the sink, and says why the answer ends with it, if it
  /// does. kInvalidArgument when nothing may come next.
  Result<std::optional<FinishCause>> next_token(std::span<const float> logits, int64_t context_tokens);
  /// Log-probabilities of the tokens that follow rows of logits [rows, vocab], the first of them at `position`.
  Result<void> add_prompt_logprobs(std::span<const float> logits, int64_t rows, int64_t position);

  bool may_reuse() const { return request.reuse_prefix && !request.prompt_logprobs; }
  bool may_keep() const { return request.reuse_prefix; }
  bool wants_prompt_logprobs() const { return request.prompt_logprobs && !is_prefilled; }
  int64_t to_evaluate(int64_t position) const { return static_cast<int64_t>(tokens.size()) - position; }
  void begin(GenerationClock::time_point now);
  GenerationUsage usage() const;
  int32_t stop_id() const { return stop_id_; }
  const LoopReport& loop() const { return guard_.report(); }

 private:
  std::span<const uint64_t> allowed_ids();
  bool is_stop(int32_t token) const;
  std::optional<FinishCause> end_of(const GeneratedToken& token, bool goes_on, int64_t context_tokens);

  std::optional<Sampler> sampler_;
  LoopGuard guard_;
  std::vector<uint64_t> allowed_;
  int32_t stop_id_ = -1;
};

}  // namespace fathom
