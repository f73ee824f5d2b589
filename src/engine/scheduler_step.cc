// A step of the scheduler: which rows it holds, and what comes of them.
#include <algorithm>

#include "base/log.h"
#include "engine/scheduler_core.h"
#include "engine/session.h"

namespace fathom {

// ---- The plan ----

// One row for everyone who decodes; the rest is for prompts.
void SchedulerCore::plan() {
  planned_.clear();
  is_alone_step_ = draws_wait_ = false;
  prompts_.clear(), lone_.clear();
  for (size_t step = 0; step < slots_.size(); ++step) {
    Slot& slot = slots_[(cursor_ + step) % slots_.size()];
    if (slot.job == nullptr || !slot.has_begun) continue;
    if (slot.draws_since != 0) {
      draws_wait_ = true;
    } else if (slot.job->is_alone) {
      lone_.push_back(&slot);
    } else if (slot.decodes) {
      planned_.push_back({.slot = &slot, .rows = 1});
    } else {
      prompts_.push_back(&slot);
    }
  }
  // Those whose step failed take turns with everybody else.
  lone_turn_ = !lone_.empty() && (!lone_turn_ || (prompts_.empty() && planned_.empty()));
  if (lone_turn_) {
    planned_.clear();
    planned_.push_back(chunk(*lone_.front(), alone_budget_.units(), model_.options().step_rows));
    is_alone_step_ = true;
    return;
  }
  if (prompts_.empty() || plan_lone(prompts_)) return;
  plan_prompts(prompts_);
}

int64_t SchedulerCore::units_wanted(const Slot& slot) const {
  return slot.job->to_evaluate(slot.position()) * all_units_ +
         slot.state->decoder_backlog() * (all_units_ - encoder_units_);
}

// While nobody decodes, long prompts take turns in long steps of their own: weights are read once a step,
// however many rows it has.
bool SchedulerCore::plan_lone(const std::vector<Slot*>& prompts) {
  if (!planned_.empty() || draws_wait_) return false;
  Slot& first = *prompts.front();
  if (prompts.size() > 1 && units_wanted(first) < shared_budget_.units()) return false;
  planned_.push_back(chunk(first, alone_budget_.units(), model_.options().step_rows));
  cursor_ = (static_cast<size_t>(first.index) + 1) % slots_.size();
  is_alone_step_ = true;
  return true;
}

void SchedulerCore::plan_prompts(const std::vector<Slot*>& prompts) {
  const int64_t least = options_.chunk_rows_min * all_units_;
  int64_t units = shared_budget_.units();
  int64_t rows = model_.options().step_rows - static_cast<int64_t>(planned_.size());
  bool scores = false;  // the logits of one prompt's rows have room
  for (size_t at = 0; at < prompts.size() && rows > 0 && units > 0; ++at) {
    Slot& slot = *prompts[at];
    if (scores && slot.job->wants_prompt_logprobs()) continue;
    const int64_t share = units / static_cast<int64_t>(prompts.size() - at);
    const Planned next = chunk(slot, std::max(least, share), rows);
    planned_.push_back(next);
    units -= next.units;
    rows -= next.rows;
    scores = scores || slot.job->wants_prompt_logprobs();
    cursor_ = (static_cast<size_t>(slot.index) + 1) % slots_.size();
  }
}

// The next piece of a prompt, within `units` and `rows_max`, but at least a row.
SchedulerCore::Planned SchedulerCore::chunk(Slot& slot, int64_t units, int64_t rows_max) const {
  const Job& job = *slot.job;
  const auto end = static_cast<int64_t>(job.tokens.size());
  const int64_t goal = slot.stops.empty() ? end : std::min(end, slot.stops.front());
  const int64_t todo = goal - slot.position();
  Planned planned{.slot = &slot, .logits = goal == end ? LogitRows::kLast : LogitRows::kNone};
  if (todo == 0) {  // the decoder has rows to see
    const int64_t row_units = std::max<int64_t>(1, all_units_ - encoder_units_);
    planned.decoder_rows = std::clamp<int64_t>(units / row_units, 1, slot.state->decoder_backlog());
    planned.units = planned.decoder_rows * row_units;
    return planned;
  }
  const bool scores = job.wants_prompt_logprobs();
  if (scores) rows_max = std::min(rows_max, std::max<int64_t>(1, kScoreLogits / model_.config().vocab_size));
  const bool whole = scores || (!slot.state->decoder_pending() && todo * all_units_ <= units && todo <= rows_max);
  const int64_t row_units = whole ? all_units_ : encoder_units_;
  const int64_t most = std::clamp<int64_t>(units / row_units, 1, rows_max);
  planned.rows = std::min(todo, most);
  // What was announced is being read already; another cut would read it twice.
  const int64_t announced = slot.announced_rows;
  if (announced > 0 && announced <= planned.rows && announced * 2 >= planned.rows) planned.rows = announced;
  planned.is_last_chunk = whole && planned.rows == todo;
  planned.units = planned.rows * row_units;
  if (scores) planned.logits = LogitRows::kAll;
  else if (!planned.is_last_chunk) planned.logits = LogitRows::kNone;
  return planned;
}

// ---- The step ----

Segment SchedulerCore::segment(const Planned& planned) {
  Slot& slot = *planned.slot;
  const std::span<const int32_t> rest =
      std::span<const int32_t>(slot.job->tokens).subspan(static_cast<size_t>(slot.position()));
  Segment segment{.state = slot.state.get(),
                  .tokens = rest.first(static_cast<size_t>(planned.rows)),
                  .is_last_chunk = planned.is_last_chunk,
                  .logits = planned.logits,
                  .logits_out = planned.logits == LogitRows::kNone ? nullptr : slot.logits.data(),
                  .next_tokens = {},
                  .decoder_rows_max = planned.decoder_rows};
  if (planned.rows > 0) {
    const std::span<const int32_t> next = rest.subspan(segment.tokens.size());
    segment.next_tokens = next.first(std::min(next.size(), segment.tokens.size()));
    slot.announced_rows = static_cast<int64_t>(segment.next_tokens.size());
  }
  if (planned.logits == LogitRows::kAll) {
    const size_t floats = segment.tokens.size() * slot.logits.size();
    if (score_logits_.size() < floats) score_logits_.resize(floats);
    segment.logits_out = score_logits_.data();
  }
  slot.has_logits = false;
  return segment;
}

void SchedulerCore::run_planned() {
  const GenerationClock::time_point begin = GenerationClock::now();
  const int64_t masks_us_before = masks_us_;
  segments_.clear();
  int64_t units = 0, evaluated = 0;
  for (const Planned& planned : planned_) {
    segments_.push_back(segment(planned));
    units += planned.units;
    evaluated += planned.rows;
  }
  // A step whose requests have all left ends before its next layer.
  const StopFn stop = [&] {
    return std::all_of(planned_.begin(), planned_.end(),
                       [&](const Planned& planned) { return over(*planned.slot->job).has_value(); });
  };
  Result<void> outcome = model_.run(segments_, stop);
  if (outcome.ok()) {
    statistics_.evaluated_tokens += evaluated;
    for (const Planned& planned : planned_) after(planned);
  } else {
    failed(std::move(outcome).error());
  }
  const auto step_us =
      std::chrono::duration_cast<std::chrono::microseconds>(GenerationClock::now() - begin).count();
  const int64_t masks_us_within = masks_us_ - masks_us_before;
  (is_alone_step_ ? alone_budget_ : shared_budget_).note(units, step_us - masks_us_within, masks_us_);
  ++statistics_.steps;
  statistics_.step_us += step_us;
  statistics_.step_us_max = std::max<int64_t>(statistics_.step_us_max, step_us);
}

void SchedulerCore::after(const Planned& planned) {
  Slot& slot = *planned.slot;
  Job& job = *slot.job;
  if (slot.decodes) {
    slot.has_logits = true;
    draw(slot);
    return;
  }
  if (planned.logits == LogitRows::kAll) {
    const auto rows = static_cast<size_t>(planned.rows);
    const std::span<const float> logits = std::span(score_logits_).first(rows * slot.logits.size());
    Result<void> added = job.add_prompt_logprobs(logits, planned.rows, slot.position() - planned.rows);
    if (!added.ok()) {
      release(slot, FinishCause::kError, added.error());
      return;
    }
    std::copy(logits.end() - static_cast<ptrdiff_t>(slot.logits.size()), logits.end(), slot.logits.begin());
  }
  if (!job.is_prefilled && planned.rows > 0)
    job.request.sink->on_prefill({.done_tokens = slot.position(),
                                  .total_tokens = job.prompt_tokens,
                                  .cached_tokens = job.cached_tokens});
  if (slot.state->decoder_pending()) return;
  const bool is_stop = !slot.stops.empty() && slot.stops.front() <= slot.position();
  if (is_stop) slot.stops.erase(slot.stops.begin());
  if (job.to_evaluate(slot.position()) > 0) {
    if (is_stop && job.may_keep()) keep(slot, {});
    return;
  }
  slot.has_logits = true;
  after_prompt(slot);
}

// Everything up to the newest token is evaluated, for the first time or again after a failure.
void SchedulerCore::after_prompt(Slot& slot) {
  Job& job = *slot.job;
  job.failures = 0;
  job.is_alone = false;
  slot.decodes = true;
  if (!job.is_prefilled) {
    if (job.may_keep()) keep(slot, slot.logits);
    if (job.request.prompt_logprobs) {
      job.request.sink->on_prompt_logprobs(job.prompt_logprobs, job.prompt_top);
      job.prompt_logprobs = {};
      job.prompt_top = {};
    }
    job.is_prefilled = true;
    job.prefill_end = GenerationClock::now();
  }
  if (job.request.max_tokens == 0) {
    release(slot, FinishCause::kMaxTokens);
    return;
  }
  draw(slot);
}

// Half of the step's target, and a mask that is begun is finished.
bool SchedulerCore::masks_had_their_share() const {
  return masks_us_ > std::max<int64_t>(0, options_.step_target_us / 2);
}

// Whoever has waited longest comes first. False: nobody waited.
bool SchedulerCore::draw_waiting() {
  bool drew = false;
  while (!masks_had_their_share()) {
    Slot* first = nullptr;
    for (Slot& slot : slots_)
      if (slot.draws_since != 0 && (first == nullptr || slot.draws_since < first->draws_since)) first = &slot;
    if (first == nullptr) break;
    draw(*first);
    drew = true;
  }
  return drew;
}

// The mask of one answer can take as long as a step. When those drawn had their share of the time, the others with
// a mask wait for the next round, and answers without one and prompts go on meanwhile.
void SchedulerCore::draw(Slot& slot) {
  Job& job = *slot.job;
  if (job.request.mask != nullptr && masks_had_their_share()) {
    if (slot.draws_since == 0) slot.draws_since = ++clock_;
    return;
  }
  slot.draws_since = 0;
  Result<std::optional<FinishCause>> drawn = job.next_token(slot.logits, options_.context_tokens);
  masks_us_ += job.mask_us;
  if (!drawn.ok()) {
    release(slot, FinishCause::kError, drawn.error());
  } else if (drawn->has_value()) {
    release(slot, **drawn);
  }
}

// The states of the step are empty, whoever was at fault. Each request is evaluated again in steps of its own;
// the one at fault fails again and ends, the others do not notice.
void SchedulerCore::failed(Error error) {
  const bool was_single = planned_.size() == 1;
  for (const Planned& planned : planned_) {
    Slot& slot = *planned.slot;
    Job& job = *slot.job;
    slot.state->reset();
    slot.has_logits = slot.decodes = false;
    slot.announced_rows = 0;
    if (error.code == ErrorCode::kCancelled) continue;  // all of them are over
    log_warning("request {}: a step of {} failed: {}", job.id, planned_.size(), error.message);
    ++job.failures;
    if (was_single && job.failures >= 2) {
      release(slot, FinishCause::kError, error);
      continue;
    }
    job.is_alone = true;
    job.prompt_logprobs.clear();
    job.prompt_top.clear();
    if (!job.wants_prompt_logprobs()) reuse(slot, false, nullptr);
    // The cache may hold more of it by now than this request had evaluated: all of it, or what lies beyond a stop.
    place_stops(slot);
    if (job.to_evaluate(slot.position()) == 0) after_prompt(slot);
  }
}

}  // namespace fathom
