#include "engine/job.h"

#include <algorithm>

namespace fathom {
namespace {

int64_t between_us(GenerationClock::time_point from, GenerationClock::time_point to) {
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(to - from).count());
}

}  // namespace

Job::Job(GenerationId job_id, GenerationRequest asked, GenerationClock::time_point now)
    : id(job_id), request(std::move(asked)), submitted(now), guard_(request.loop_guard) {
  tokens = std::move(request.prompt);
  prompt_tokens = static_cast<int64_t>(tokens.size());
}

void Job::prepare(int32_t vocab_size) {
  request.sampling.prompt_tokens = prompt_tokens;
  sampler_ = Sampler::make(request.sampling, vocab_size).value();
  allowed_.resize((static_cast<size_t>(vocab_size) + 63) / 64);
}

void Job::begin(GenerationClock::time_point now) {
  if (has_begun) return;
  has_begun = true;
  first_step = prefill_end = last_token = now;
}

bool Job::is_stop(int32_t token) const {
  return std::find(request.stop_ids.begin(), request.stop_ids.end(), token) != request.stop_ids.end();
}

// Empty: all.
std::span<const uint64_t> Job::allowed_ids() {
  const bool bans_stops = request.ignore_stop_ids || generated_tokens < request.min_tokens;
  if (request.mask == nullptr && (!bans_stops || request.stop_ids.empty())) return {};
  std::fill(allowed_.begin(), allowed_.end(), ~uint64_t{0});
  if (request.mask != nullptr) request.mask->restrict(allowed_);
  if (bans_stops)
    for (const int32_t token : request.stop_ids)
      allowed_[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
  return allowed_;
}

Result<std::optional<FinishCause>> Job::next_token(std::span<const float> logits, int64_t context_tokens) {
  const GenerationClock::time_point begin = GenerationClock::now();
  const std::span<const uint64_t> allowed = allowed_ids();
  mask_us = between_us(begin, GenerationClock::now());
  FATHOM_ASSIGN(const int32_t token_id, sampler_->sample(logits, tokens, allowed));
  GeneratedToken token{.id = token_id, .index = generated_tokens, .is_stop = is_stop(token_id)};
  std::vector<TokenLogprob> top;
  if (request.top_logprobs >= 0) {
    FATHOM_ASSIGN(token.logprob, token_logprob(logits, token_id));
    FATHOM_ASSIGN(top, top_logprobs(logits, request.top_logprobs));
    token.top = top;
  }
  tokens.push_back(token_id);
  ++generated_tokens;
  last_token = GenerationClock::now();
  if (request.mask != nullptr) {
    request.mask->accept(token_id);
    mask_us += between_us(last_token, GenerationClock::now());
  }
  const bool goes_on = request.sink->on_token(token);
  return end_of(token, goes_on, context_tokens);
}

std::optional<FinishCause> Job::end_of(const GeneratedToken& token, bool goes_on, int64_t context_tokens) {
  const bool loops =
      request.loop_guard.mode != LoopGuardMode::kOff && !token.is_stop && guard_.take(token.id);
  if (token.is_stop) {
    stop_id_ = token.id;
    return FinishCause::kStopId;
  }
  if (!goes_on) return FinishCause::kSink;
  if (loops && request.loop_guard.mode == LoopGuardMode::kStop) return FinishCause::kLoop;
  if (generated_tokens == request.max_tokens) return FinishCause::kMaxTokens;
  if (static_cast<int64_t>(tokens.size()) >= context_tokens) return FinishCause::kContextFull;
  return std::nullopt;
}

Result<void> Job::add_prompt_logprobs(std::span<const float> logits, int64_t rows, int64_t position) {
  const size_t vocab = logits.size() / static_cast<size_t>(rows);
  for (int64_t row = 0; row < rows && position + row + 1 < prompt_tokens; ++row) {
    const auto of_row = logits.subspan(static_cast<size_t>(row) * vocab, vocab);
    FATHOM_ASSIGN(const double logprob,
                  token_logprob(of_row, tokens[static_cast<size_t>(position + row + 1)]));
    prompt_logprobs.push_back(logprob);
    FATHOM_ASSIGN(std::vector<TokenLogprob> top, top_logprobs(of_row, std::max(0, request.top_logprobs)));
    prompt_top.push_back(std::move(top));
  }
  return {};
}

GenerationUsage Job::usage() const {
  GenerationUsage usage{.prompt_tokens = prompt_tokens,
                        .cached_tokens = cached_tokens,
                        .generated_tokens = generated_tokens};
  const GenerationClock::time_point now = GenerationClock::now();
  if (!has_begun) {
    usage.queue_us = between_us(submitted, now);
    return usage;
  }
  usage.queue_us = between_us(submitted, first_step);
  usage.prefill_us = between_us(first_step, is_prefilled ? prefill_end : now);
  if (generated_tokens > 0) usage.decode_us = between_us(prefill_end, last_token);
  return usage;
}

}  // namespace fathom
