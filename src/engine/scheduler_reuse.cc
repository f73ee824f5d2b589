// What the scheduler need not evaluate: what a slot, the cache or another request's prompt has already.
#include <algorithm>

#include "base/log.h"
#include "engine/prompt_tokens.h"
#include "engine/scheduler_core.h"

namespace fathom {
namespace {

// Of a state's tokens at least this part must be new for it to be written while requests run.
constexpr int64_t kDiskShare = 16;

}  // namespace

// Leaves in the slot as much of its job's tokens as can be had; `from_slot`: what it holds may serve.
void SchedulerCore::reuse(Slot& slot, bool from_slot, const DiskLoader::Loaded* loaded) {
  const Job& job = *slot.job;
  const bool may_reuse = job.request.reuse_prefix && !job.wants_prompt_logprobs();
  const int64_t here = may_reuse && from_slot ? reuse_of(slot, job) : 0;
  const PrefixCache::Match match = may_reuse ? cache_.find(job.tokens) : PrefixCache::Match{};
  if (loaded != nullptr && loaded->match.reused_tokens > std::max(here, match.reused_tokens)) {
    if (restore_loaded(slot, *loaded)) return;
    slot.state->reset();
    slot.has_logits = false;
    slot.tokens.clear();
    reuse(slot, false, nullptr);
    return;
  }
  if (match.reused_tokens > here) {
    const Result<bool> restored = cache_.restore(match, *slot.state, slot.logits);
    slot.has_logits = restored.ok() && *restored;
    if (restored.ok()) return;
    log_warning("request {}: a kept state of {} tokens: {}", job.id, match.snapshot_tokens,
                restored.error().message);
    slot.state->reset();
    return;
  }
  if (here == slot.position() && here > 0) return;
  slot.has_logits = false;
  if (here == 0 || !slot.state->rewind(here).ok()) slot.state->reset();
}

// ---- The disk ----

// The request waits in its slot until the state is there. False: there is none that is worth it.
bool SchedulerCore::start_load(Slot& slot, int64_t reused_tokens) {
  const Job& job = *slot.job;
  if (disk_ == nullptr || !job.may_reuse()) return false;
  const std::optional<DiskCacheMatch> match = disk_->find(job.tokens);
  if (!match || match->reused_tokens - reused_tokens < options_.disk_tokens_min) {
    if (reused_tokens > 0) disk_->note_use(std::span(job.tokens).first(static_cast<size_t>(reused_tokens)));
    return false;
  }
  slot.is_loading = true;
  loader_->start(job.id, *match, job.tokens);
  return true;
}

void SchedulerCore::begin_loaded() {
  if (disk_ == nullptr) return;
  for (Slot& slot : slots_) {
    if (!slot.is_loading) continue;
    std::optional<std::unique_ptr<DiskLoader::Loaded>> loaded = loader_->take(slot.job->id);
    if (!loaded) continue;
    slot.is_loading = false;
    begin(slot, std::move(*loaded));
  }
}

bool SchedulerCore::restore_loaded(Slot& slot, const DiskLoader::Loaded& loaded) {
  const SavedState& saved = loaded.saved;
  const auto held = static_cast<int64_t>(saved.tokens.size());
  slot.has_logits = false;
  Result<void> restored = slot.state->restore(saved.state);
  if (restored.ok() && slot.position() != held)
    restored = Error::bad_pack("{} tokens, but its state is at position {}", held, slot.position());
  if (restored.ok() && loaded.match.reused_tokens < held)
    restored = slot.state->rewind(loaded.match.reused_tokens);
  if (!restored.ok()) {
    disk_->drop(loaded.match.key, restored.error().message);
    return false;
  }
  slot.has_logits = slot.position() == held && saved.logits.size() == slot.logits.size();
  if (slot.has_logits) slot.logits = saved.logits;
  keep(slot, slot.has_logits ? std::span<const float>(slot.logits) : std::span<const float>());
  return true;
}

// A long state takes long to write, so the longer it is the more it must spare.
std::optional<DiskCachePut> SchedulerCore::keep_on_disk(Slot& slot, std::span<const float> logits,
                                                        int64_t spared_min) {
  if (disk_ == nullptr || slot.state->decoder_pending() || slot.position() < spared_min) return std::nullopt;
  const std::span<const int32_t> all = slot.job != nullptr ? slot.job->tokens : slot.tokens;
  const std::span<const int32_t> tokens = all.first(static_cast<size_t>(slot.position()));
  const std::optional<DiskCacheMatch> there = disk_->find(tokens);
  if (there && slot.position() - there->reused_tokens < spared_min) return std::nullopt;
  if (!disk_->has_room(slot.state->serialised_bytes())) return DiskCachePut::kQueueFull;
  SavedState saved{.tokens = {tokens.begin(), tokens.end()},
                   .logits = {logits.begin(), logits.end()},
                   .state = {}};
  Result<std::vector<std::byte>> bytes = slot.state->serialise(disk_->spare_memory());
  if (!bytes.ok()) return std::nullopt;
  saved.state = std::move(bytes).value();
  return disk_->put(std::move(saved));
}

void SchedulerCore::close() {
  loader_.reset();
  if (disk_ == nullptr) return;
  const auto end = GenerationClock::now() + std::chrono::milliseconds(options_.disk_flush_ms);
  const auto left_ms = [&] {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - GenerationClock::now());
    return std::max<int64_t>(0, left.count());
  };
  for (Slot& slot : slots_) {
    if (slot.job != nullptr || !slot.is_worth_saving) continue;
    const auto put = keep_on_disk(slot, {}, options_.disk_tokens_min);
    if (put != DiskCachePut::kQueueFull) continue;
    disk_->flush(left_ms());
    keep_on_disk(slot, {}, options_.disk_tokens_min);
  }
  if (!disk_->flush(left_ms()))
    log_warning("not all states were written to disk within {} ms", options_.disk_flush_ms);
}

// ---- Prompts that come together ----

// A request whose prompt begins like one that is being evaluated waits for it, if that spares enough.
SchedulerCore::Leader SchedulerCore::find_leader(const Job& job, int64_t reused_tokens) {
  Leader best{.slot = nullptr, .tokens = reused_tokens};
  if (!job.may_reuse() || options_.cache_bytes == 0) return best;
  for (Slot& slot : slots_) {
    if (slot.job == nullptr || !slot.has_begun) continue;
    const Job& other = *slot.job;
    if (other.is_prefilled || other.is_alone || !other.may_keep() || other.request.prompt_logprobs) continue;
    const int64_t common = count_common(other.tokens, job.tokens);
    const bool to_its_end = common == other.prompt_tokens;
    const int64_t tokens = to_its_end ? common : std::min(common, job.prompt_tokens - 1);
    const int64_t least = to_its_end ? options_.keep_tokens_min : options_.share_tokens_min;
    const bool is_past = tokens < slot.position() || (tokens == slot.position() && !slot.state->decoder_pending());
    if (is_past || tokens - reused_tokens < least || tokens <= best.tokens) continue;
    best = {.slot = &slot, .tokens = tokens};
  }
  if (best.slot == nullptr || best.tokens == best.slot->job->prompt_tokens) return best;
  std::vector<int64_t>& stops = best.slot->stops;
  const auto place = std::lower_bound(stops.begin(), stops.end(), best.tokens);
  if (place == stops.end() || *place != best.tokens) stops.insert(place, best.tokens);
  return best;
}

bool SchedulerCore::still_leads(const Slot& follower) const {
  const Slot& slot = slots_[static_cast<size_t>(follower.leader_slot)];
  if (slot.job == nullptr || slot.job->id != follower.leader || slot.job->is_prefilled || slot.job->is_alone)
    return false;
  return slot.position() < follower.leader_tokens ||
         (slot.position() == follower.leader_tokens && slot.state->decoder_pending());
}

void SchedulerCore::begin_followers() {
  for (Slot& slot : slots_)
    if (slot.job != nullptr && !slot.has_begun && slot.leader != 0 && !still_leads(slot)) begin(slot);
}

// ---- States that are kept ----

// Where a prompt is interrupted so that its state can be kept: where others are likely to part from it, and
// every so many tokens. Each costs a run of the decoder over the tail of what was evaluated since the last.
void SchedulerCore::place_stops(Slot& slot) const {
  const Job& job = *slot.job;
  slot.stops.clear();
  if (slot.state->decoder_catching_up()) slot.stops.push_back(slot.position());
  if (options_.cache_bytes == 0 || !job.may_keep() || job.request.prompt_logprobs) return;
  const int64_t begin = slot.position();
  // The state at the end of the prompt can go back so far by itself.
  const int64_t end = job.prompt_tokens - model_.options().rewind_tokens;
  std::vector<int64_t> places;
  const auto add = [&](int64_t place, int64_t gap) {
    if (place < begin + gap || place >= end) return;
    for (const int64_t other : places)
      if (std::abs(other - place) < gap) return;
    places.push_back(place);
  };
  for (const int64_t place : job.request.branch_points) add(place, options_.branch_gap_tokens);
  const int64_t spacing = options_.branch_spacing_tokens;
  if (spacing > 0)
    for (int64_t place = (begin / spacing + 1) * spacing; place < end; place += spacing)
      add(place, std::max(options_.branch_gap_tokens, spacing / 4));
  std::sort(places.begin(), places.end());
  slot.stops.insert(slot.stops.end(), places.begin(), places.end());
}

void SchedulerCore::keep(Slot& slot, std::span<const float> logits) {
  if (slot.state->decoder_pending() || slot.position() == 0) return;
  keep_on_disk(slot, logits, std::max(options_.disk_tokens_min, slot.position() / kDiskShare));
  if (options_.cache_bytes == 0) return;
  const std::span<const int32_t> all = slot.job != nullptr ? slot.job->tokens : slot.tokens;
  const std::span<const int32_t> tokens = all.first(static_cast<size_t>(slot.position()));
  const int64_t spared = slot.position() - cache_.kept_tokens(tokens);
  if (spared > 0 && spared < options_.keep_tokens_min) return;
  std::vector<std::span<const int32_t>> incoming;
  for (const auto& job : waiting_) incoming.push_back(job->tokens);
  for (const Slot& other : slots_)
    if (other.job != nullptr && !other.has_begun) incoming.push_back(other.job->tokens);
  cache_.keep(tokens, *slot.state, logits, incoming);
}

}  // namespace fathom
