#include "engine/scheduler_core.h"

#include <algorithm>

#include "engine/prompt_tokens.h"

namespace fathom {
namespace {

// The first steps of a run, before anything was measured.
constexpr int64_t kSharedRowsStart = 32, kAloneRowsStart = 128;

Result<void> check_options(const Model& model, const SchedulerOptions& options) {
  const int64_t longest = model.config().max_position_embeddings;
  const int slots_max = std::min(64, model.options().step_rows);
  if (options.slots < 1 || options.slots > slots_max)
    return Error::invalid("requests at once: expected 1 to {} (at most 64 and the rows of a step), found {}",
                          slots_max, options.slots);
  if (options.context_tokens < 1 || options.context_tokens > longest)
    return Error::invalid("context: expected 1 to {} tokens, which the model was made for, found {}", longest,
                          options.context_tokens);
  if (options.queue_limit < 0) return Error::invalid("queue: expected 0 or more, found {}", options.queue_limit);
  if (options.chunk_rows_min < 1)
    return Error::invalid("least rows of a chunk: expected 1 or more, found {}", options.chunk_rows_min);
  return {};
}

}  // namespace

SchedulerCore::SchedulerCore(Model& model, const SchedulerOptions& options, DiskCache* disk)
    : model_(model),
      options_(options),
      encoder_units_(model.options().ced == CedMode::kOff ? model.config().num_layers
                                                          : std::max(1, model.config().encoder_layers())),
      all_units_(model.config().num_layers),
      cache_(model.state_shape(), options.cache_bytes),
      disk_(disk),
      shared_budget_(options.step_target_us, options.chunk_rows_min * all_units_,
                     model.options().step_rows * all_units_, kSharedRowsStart * encoder_units_),
      alone_budget_(options.alone_target_us, options.chunk_rows_min * all_units_,
                    model.options().step_rows * all_units_, kAloneRowsStart * encoder_units_) {}

void SchedulerCore::set_hooks(Hooks hooks) {
  hooks_ = std::move(hooks);
  if (disk_ != nullptr) loader_ = std::make_unique<DiskLoader>(*disk_, hooks_.wake);
}

Result<std::unique_ptr<SchedulerCore>> SchedulerCore::make(Model& model, const SchedulerOptions& options,
                                                           DiskCache* disk) {
  FATHOM_TRY(check_options(model, options));
  std::unique_ptr<SchedulerCore> core(new SchedulerCore(model, options, disk));
  core->slots_.resize(static_cast<size_t>(options.slots));
  for (Slot& slot : core->slots_) {
    slot.index = static_cast<int>(&slot - core->slots_.data());
    FATHOM_ASSIGN(slot.state, model.new_state(options.context_tokens));
    slot.logits.resize(static_cast<size_t>(model.config().vocab_size));
    slot.tokens.reserve(static_cast<size_t>(options.context_tokens));
  }
  return core;
}

int SchedulerCore::running() const {
  return static_cast<int>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.job != nullptr; }));
}

void SchedulerCore::enqueue(std::shared_ptr<Job> job) {
  if (disk_ != nullptr && job->may_reuse()) job->disk_protection = disk_->protect(job->tokens);
  waiting_.push_back(std::move(job));
}

bool SchedulerCore::round() {
  masks_us_ = 0;
  end_overdue();
  const bool drew = draw_waiting();
  begin_followers();
  begin_loaded();
  admit();
  plan();
  if (planned_.empty()) return drew || draws_wait_;
  run_planned();
  hooks_.publish();
  return true;
}

// ---- The end of a request ----

std::optional<FinishCause> SchedulerCore::over(const Job& job) const {
  if (job.cancelled.load(std::memory_order_relaxed)) return FinishCause::kCancelled;
  const GenerationClock::time_point now = GenerationClock::now();
  if (now >= job.request.deadline) return FinishCause::kDeadline;
  if (now >= last_moment_) return FinishCause::kShutdown;
  return std::nullopt;
}

GenerationClock::time_point SchedulerCore::next_deadline() const {
  GenerationClock::time_point earliest = last_moment_;
  for (const auto& job : waiting_) earliest = std::min(earliest, job->request.deadline);
  for (const Slot& slot : slots_)
    if (slot.job != nullptr) earliest = std::min(earliest, slot.job->request.deadline);
  return earliest;
}

void SchedulerCore::end_overdue() {
  for (Slot& slot : slots_) {
    if (slot.job == nullptr) continue;
    if (const auto cause = over(*slot.job)) release(slot, *cause);
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto cause = over(**at);
    if (!cause) {
      ++at;
      continue;
    }
    const std::shared_ptr<Job> job = std::move(*at);
    at = waiting_.erase(at);
    finish(*job, *cause, {}, false);
  }
}

// The slot keeps what was evaluated, for the next request that begins with it.
void SchedulerCore::release(Slot& slot, FinishCause cause, const Error& error) {
  const std::shared_ptr<Job> job = std::move(slot.job);
  slot.job = nullptr;
  slot.decodes = false;
  slot.draws_since = 0;
  slot.leader = 0;
  if (slot.is_loading) loader_->forget(job->id);
  slot.is_loading = false;
  slot.stops.clear();
  slot.last_used = ++clock_;
  if (slot.has_begun)
    slot.tokens.assign(job->tokens.begin(), job->tokens.begin() + static_cast<ptrdiff_t>(slot.position()));
  if (slot.has_begun) slot.is_worth_saving = job->may_keep();
  if (slot.has_begun && job->may_keep()) keep(slot, {});
  slot.has_begun = false;
  finish(*job, cause, error, true);
}

void SchedulerCore::finish(Job& job, FinishCause cause, const Error& error, bool was_running) {
  GenerationFinish finish{.cause = cause, .error = error, .stop_id = job.stop_id(), .loop = job.loop()};
  finish.usage = job.usage();
  ++statistics_.requests_finished[static_cast<size_t>(cause)];
  statistics_.prompt_tokens += finish.usage.prompt_tokens;
  statistics_.cached_tokens += finish.usage.cached_tokens;
  statistics_.generated_tokens += finish.usage.generated_tokens;
  statistics_.prefill_us += finish.usage.prefill_us;
  statistics_.decode_us += finish.usage.decode_us;
  if (finish.loop.found) ++statistics_.loops_seen;
  job.disk_protection.reset();
  hooks_.ended(job, was_running);
  hooks_.publish();
  job.request.sink->on_finish(finish);
  job.request.sink.reset();
}

// ---- The beginning ----

void SchedulerCore::admit() {
  while (!waiting_.empty()) {
    const std::shared_ptr<Job> job = waiting_.front();
    Slot* slot = choose(*job);
    if (slot == nullptr) return;  // all are busy
    const int64_t reused =
        job->may_reuse() ? std::max(reuse_of(*slot, *job), cache_.find(job->tokens).reused_tokens) : 0;
    const Leader leader = find_leader(*job, reused);
    waiting_.pop_front();
    slot->job = job;
    slot->has_begun = false;
    slot->last_used = ++clock_;
    hooks_.admitted(*job);
    slot->leader = leader.slot != nullptr ? leader.slot->job->id : 0;
    if (leader.slot == nullptr) {
      if (!start_load(*slot, reused)) begin(*slot);
      continue;
    }
    slot->leader_slot = leader.slot->index;
    slot->leader_tokens = leader.tokens;
  }
}

// Of the job's tokens, how many an idle slot spares, with the logits that must come of the last one.
int64_t SchedulerCore::reuse_of(const Slot& slot, const Job& job) const {
  const auto wanted = static_cast<int64_t>(job.tokens.size());
  const int64_t common = count_common(slot.tokens, job.tokens);
  if (common == slot.position() && common == wanted && slot.has_logits) return wanted;
  const int64_t keep = std::min(common, wanted - 1);
  if (keep == slot.position()) return keep;
  return keep > 0 && slot.state->can_rewind(keep) ? keep : 0;
}

// Whether somebody further back in the queue goes on from what an idle slot holds.
bool SchedulerCore::is_wanted(const Slot& slot) const {
  constexpr size_t kLookedAt = 16;
  for (size_t at = 1; at < std::min(waiting_.size(), kLookedAt); ++at)
    if (waiting_[at]->may_reuse() && reuse_of(slot, *waiting_[at]) >= options_.keep_tokens_min) return true;
  return false;
}

// The idle slot that spares most. If the cache spares more, or nothing does: one that nobody waits for, empty
// or unused for longest. What it holds is in the cache since its request ended.
Slot* SchedulerCore::choose(const Job& job) {
  Slot* most = nullptr;
  Slot* spare = nullptr;
  int64_t most_tokens = job.may_reuse() ? cache_.find(job.tokens).reused_tokens : 0;
  bool spare_is_wanted = false;
  for (Slot& slot : slots_) {
    if (slot.job != nullptr) continue;
    const int64_t tokens = job.may_reuse() ? reuse_of(slot, job) : 0;
    if (tokens > 0 && tokens >= most_tokens) {
      most = &slot;
      most_tokens = tokens;
    }
    const bool wanted = is_wanted(slot);
    const bool is_better = spare == nullptr || wanted < spare_is_wanted ||
                           (wanted == spare_is_wanted && slot.last_used < spare->last_used);
    if (!is_better) continue;
    spare = &slot;
    spare_is_wanted = wanted;
  }
  return most != nullptr ? most : spare;
}

// The job takes over the slot's state, with as much of its prompt as can be had.
void SchedulerCore::begin(Slot& slot, std::unique_ptr<DiskLoader::Loaded> loaded) {
  Job& job = *slot.job;
  slot.has_begun = true;
  slot.leader = 0;
  slot.decodes = false;
  slot.announced_rows = 0;
  job.prepare(model_.config().vocab_size);
  reuse(slot, true, loaded.get());
  loaded.reset();
  job.disk_protection.reset();
  job.cached_tokens = slot.position();
  slot.tokens.clear();
  place_stops(slot);
  job.begin(GenerationClock::now());
  (job.cached_tokens > 0 ? statistics_.cache_hits : statistics_.cache_misses) += 1;
  job.request.sink->on_prefill({.done_tokens = job.cached_tokens,
                                .total_tokens = job.prompt_tokens,
                                .cached_tokens = job.cached_tokens});
  if (job.to_evaluate(slot.position()) == 0) after_prompt(slot);
}

// ---- Status ----

void SchedulerCore::describe(GeneratorStatus& status) const {
  status.slots.resize(slots_.size());
  for (size_t index = 0; index < slots_.size(); ++index) {
    const Slot& slot = slots_[index];
    SlotStatus& shown = status.slots[index];
    shown.phase = slot.job == nullptr ? SlotStatus::Phase::kIdle
                  : slot.decodes      ? SlotStatus::Phase::kDecode
                                      : SlotStatus::Phase::kPrefill;
    shown.context_tokens = options_.context_tokens;
    shown.held_tokens = slot.position();
    const Job* job = slot.job.get();
    shown.id = job != nullptr ? job->id : 0;
    shown.name = job != nullptr ? job->request.name : std::string();
    shown.prompt_tokens = job != nullptr ? job->prompt_tokens : 0;
    shown.cached_tokens = job != nullptr ? job->cached_tokens : 0;
    shown.generated_tokens = job != nullptr ? job->generated_tokens : 0;
  }
  status.statistics = statistics_;
  const PrefixCache::Statistics cache = cache_.statistics();
  status.statistics.cache_entries = cache.entries;
  status.statistics.cache_bytes = cache.bytes;
  status.statistics.cache_bytes_max = cache.bytes_max;
  status.statistics.cache_evictions = cache.evictions;
  if (disk_ == nullptr) return;
  const DiskCacheStatistics disk = disk_->statistics();
  status.statistics.disk_entries = disk.entries;
  status.statistics.disk_bytes = disk.bytes;
  status.statistics.disk_bytes_max = disk.bytes_max;
  status.statistics.disk_hits = disk.hits;
  status.statistics.disk_writes = disk.writes;
  status.statistics.disk_dropped = disk.dropped;
}

}  // namespace fathom
