#include "engine/session.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "engine/prompt_tokens.h"
#include "engine/sampler.h"

namespace fathom {
namespace {

// Shorter additions are cheaper to evaluate again than to copy the state for.
constexpr int64_t kCheckpointTokensMin = 16;

Result<void> tell(const ProgressFn& progress, std::string_view stage, int64_t done, size_t total) {
  if (!progress) return {};
  const auto all = static_cast<int64_t>(total);
  if (progress({.stage = stage, .unit = "tokens", .done = done, .total = all}) || done == all) return {};
  return Error::cancelled("{} cancelled after {} of {} tokens", stage, done, all);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::make(Model& model, const SessionOptions& options) {
  const int64_t longest = model.config().max_position_embeddings;
  if (options.context_tokens < 1 || options.context_tokens > longest)
    return Error::invalid("context: expected 1 to {} tokens, which the model was made for, found {}", longest,
                          options.context_tokens);
  FATHOM_ASSIGN(std::unique_ptr<SequenceState> state, model.new_state(options.context_tokens));
  return std::unique_ptr<Session>(new Session(model, std::move(state), options));
}

Session::Session(Model& model, std::unique_ptr<SequenceState> state, const SessionOptions& options)
    : model_(model),
      state_(std::move(state)),
      options_(options),
      logits_(static_cast<size_t>(model.config().vocab_size)) {}

Result<void> Session::check_tokens(std::span<const int32_t> tokens) const {
  if (static_cast<int64_t>(tokens.size()) > context_tokens())
    return Error::context_full("the prompt has {} tokens, the context holds {}", tokens.size(),
                               context_tokens());
  return check_prompt_tokens(tokens, model_.config());
}

Result<void> Session::check_next(int32_t token) const {
  const int vocab = model_.config().vocab_size;
  if (token < 0 || token >= vocab)
    return Error::invalid("token {} at position {}: expected 0 to {}", token, position(), vocab - 1);
  if (state_->decoder_pending())
    return Error::state("the prompt is evaluated to position {} only: sync first", position());
  if (position() >= context_tokens())
    return Error::context_full("the context of {} tokens is full", context_tokens());
  return {};
}

int64_t Session::common_prefix(std::span<const int32_t> tokens) const {
  return count_common(tokens_, tokens);
}

Result<std::span<const float>> Session::logits() const {
  if (!has_logits_)
    return Error::state("there are no logits at position {}: evaluate a token first", position());
  return std::span<const float>(logits_);
}

void Session::forget_tokens() {
  state_->reset();
  tokens_.clear();
  has_logits_ = false;
}

void Session::invalidate() {
  forget_tokens();
  checkpoints_.clear();
}

Result<void> Session::rewind(int64_t to) {
  if (to < 0 || to > position())
    return Error::invalid("rewind: expected position 0 to {}, found {}", position(), to);
  if (to == position()) return {};
  FATHOM_TRY(state_->rewind(to));
  tokens_.resize(static_cast<size_t>(to));
  has_logits_ = false;
  return {};
}

// ---- sync ----

Result<SyncResult> Session::sync(std::span<const int32_t> tokens, const ProgressFn& progress) {
  FATHOM_TRY(check_tokens(tokens));
  SyncResult result;
  FATHOM_ASSIGN(result.action, go_back(tokens));
  result.reused_tokens = position();
  result.evaluated_tokens = static_cast<int64_t>(tokens.size()) - position();
  if (result.evaluated_tokens == 0) return result;
  FATHOM_TRY(evaluate_from_here(tokens, progress));
  if (result.evaluated_tokens >= kCheckpointTokensMin) keep_checkpoint();
  return result;
}

// Leaves the longest prefix of `tokens` that can be had, and room for a token whose evaluation gives logits.
Result<SyncAction> Session::go_back(std::span<const int32_t> tokens) {
  const int64_t common = common_prefix(tokens);
  const auto wanted = static_cast<int64_t>(tokens.size());
  if (common == wanted && common == position() && has_logits_) return SyncAction::kReused;

  const int64_t keep = std::min(common, wanted - 1);
  if (keep > 0 && keep == position()) return SyncAction::kExtended;
  if (keep > 0 && state_->can_rewind(keep)) {
    FATHOM_TRY(rewind(keep));
    return SyncAction::kRewound;
  }
  if (restore_checkpoint(tokens)) return SyncAction::kRestored;
  forget_tokens();
  return SyncAction::kRebuilt;
}

// A checkpoint somewhat behind the common prefix serves as well: its rings can go back a little.
bool Session::restore_checkpoint(std::span<const int32_t> tokens) {
  const SavedState* best = nullptr;
  int64_t best_keep = 0;
  for (const SavedState& checkpoint : checkpoints_) {
    const auto length = static_cast<int64_t>(checkpoint.tokens.size());
    const int64_t keep =
        std::min(count_common(checkpoint.tokens, tokens), static_cast<int64_t>(tokens.size()) - 1);
    if (length - keep > model_.options().rewind_tokens || keep <= best_keep) continue;
    best = &checkpoint;
    best_keep = keep;
  }
  if (best == nullptr) return false;
  if (Result<void> restored = restore(*best); !restored.ok()) {
    log_warning("checkpoint at position {}: {}", best->tokens.size(), restored.error().message);
    return false;
  }
  return rewind(best_keep).ok();
}

Result<void> Session::evaluate_from_here(std::span<const int32_t> tokens, const ProgressFn& progress) {
  const auto step_rows = static_cast<size_t>(model_.options().step_rows);
  while (tokens_.size() < tokens.size()) {
    FATHOM_TRY(tell(progress, "prefill", position(), tokens.size()));
    const std::span<const int32_t> rest = tokens.subspan(tokens_.size());
    const std::span<const int32_t> chunk = rest.first(std::min(rest.size(), step_rows));
    const std::span<const int32_t> next = rest.subspan(chunk.size());
    const Segment segment{.state = state_.get(),
                          .tokens = chunk,
                          .is_last_chunk = next.empty(),
                          .logits = next.empty() ? LogitRows::kLast : LogitRows::kNone,
                          .logits_out = next.empty() ? logits_.data() : nullptr,
                          .next_tokens = next.first(std::min(next.size(), step_rows))};
    FATHOM_TRY(run_step(segment));
    has_logits_ = next.empty();
  }
  return tell(progress, "prefill", position(), tokens.size());
}

Result<void> Session::run_step(const Segment& segment) {
  has_logits_ = false;
  Result<void> result = model_.run({&segment, 1});
  if (result.ok())
    tokens_.insert(tokens_.end(), segment.tokens.begin(), segment.tokens.end());
  else
    forget_tokens_of_empty_state();
  return result;
}

// A step that fails while it runs leaves its states empty: some rings have its rows and some have not.
void Session::forget_tokens_of_empty_state() {
  if (state_->position() == 0) forget_tokens();
}

void Session::keep_checkpoint() {
  const StateShape& shape = model_.state_shape();
  if (shape.ring_bytes() + shape.cache_bytes(position()) > options_.checkpoint_bytes) return;
  Result<std::vector<std::byte>> bytes = state_->serialise();
  if (!bytes.ok()) {
    log_warning("no checkpoint at position {}: {}", position(), bytes.error().message);
    return;
  }
  std::erase_if(checkpoints_, [&](const SavedState& old) { return old.tokens == tokens_; });
  checkpoints_.push_back({.tokens = tokens_, .logits = {}, .state = std::move(*bytes)});
  size_t total = 0;
  for (const SavedState& checkpoint : checkpoints_) total += checkpoint.bytes();
  while (!checkpoints_.empty() && total > static_cast<size_t>(options_.checkpoint_bytes)) {
    total -= checkpoints_.front().bytes();
    checkpoints_.erase(checkpoints_.begin());
  }
}

// ---- Single tokens ----

Result<void> Session::eval(int32_t token) {
  Session* const self = this;
  return eval_batch({&self, 1}, {&token, 1});
}

Result<void> Session::eval_batch(std::span<Session* const> sessions, std::span<const int32_t> tokens) {
  if (sessions.size() != tokens.size())
    return Error::invalid("{} sessions and {} tokens, expected one token each", sessions.size(),
                          tokens.size());
  if (sessions.empty()) return {};
  Model& model = sessions[0]->model_;
  if (sessions.size() > static_cast<size_t>(model.options().step_rows))
    return Error::invalid("{} sessions, expected at most {}, the rows of a step", sessions.size(),
                          model.options().step_rows);
  std::vector<Segment> segments;
  for (size_t which = 0; which < sessions.size(); ++which) {
    Session* session = sessions[which];
    if (&session->model_ != &model) return Error::invalid("session {} is of another engine", which);
    if (std::find(sessions.begin(), sessions.begin() + static_cast<ptrdiff_t>(which), session) !=
        sessions.begin() + static_cast<ptrdiff_t>(which))
      return Error::invalid("session {} appears twice", which);
    FATHOM_TRY(session->check_next(tokens[which]));
    segments.push_back({.state = session->state_.get(),
                        .tokens = tokens.subspan(which, 1),
                        .logits_out = session->logits_.data(),
                        .next_tokens = {}});
  }
  for (Session* session : sessions) session->has_logits_ = false;
  if (Result<void> outcome = model.run(segments); !outcome.ok()) {
    for (Session* session : sessions) session->forget_tokens_of_empty_state();
    return outcome;
  }
  for (size_t which = 0; which < sessions.size(); ++which) {
    sessions[which]->tokens_.push_back(tokens[which]);
    sessions[which]->has_logits_ = true;
  }
  return {};
}

Result<void> Session::evaluate(std::span<const int32_t> tokens, const LogitsFn& show, const ProgressFn& progress) {
  FATHOM_TRY(check_tokens(tokens));
  if (position() + static_cast<int64_t>(tokens.size()) > context_tokens())
    return Error::context_full("{} tokens after {} do not fit a context of {}", tokens.size(), position(),
                               context_tokens());
  if (state_->decoder_pending())
    return Error::state("the prompt is evaluated to position {} only: sync first", position());
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  const auto rows_max = static_cast<size_t>(evaluate_rows());
  std::vector<float> rows(std::min(rows_max, tokens.size()) * vocab);
  for (size_t done = 0; done < tokens.size();) {
    FATHOM_TRY(tell(progress, "evaluate", static_cast<int64_t>(done), tokens.size()));
    const std::span<const int32_t> rest = tokens.subspan(done);
    const std::span<const int32_t> chunk = rest.first(std::min(rest.size(), rows_max));
    const std::span<const int32_t> next = rest.subspan(chunk.size());
    const int64_t first = position();
    const Segment segment{.state = state_.get(),
                          .tokens = chunk,
                          .logits = LogitRows::kAll,
                          .logits_out = rows.data(),
                          .next_tokens = next.first(std::min(next.size(), rows_max))};
    FATHOM_TRY(run_step(segment));
    std::copy_n(rows.data() + (chunk.size() - 1) * vocab, vocab, logits_.data());
    has_logits_ = true;
    for (size_t row = 0; row < chunk.size(); ++row)
      FATHOM_TRY(show(first + static_cast<int64_t>(row), std::span(rows).subspan(row * vocab, vocab)));
    done += chunk.size();
  }
  return tell(progress, "evaluate", static_cast<int64_t>(tokens.size()), tokens.size());
}

int64_t Session::evaluate_rows() const {
  return std::clamp<int64_t>(kScoreLogits / model_.config().vocab_size, 1, model_.options().step_rows);
}

Result<std::vector<double>> Session::score(std::span<const int32_t> tokens, const ProgressFn& progress) {
  FATHOM_TRY(check_tokens(tokens));
  forget_tokens();
  std::vector<double> logprobs;
  const auto add = [&](int64_t position, std::span<const float> logits) -> Result<void> {
    const auto next = static_cast<size_t>(position) + 1;
    if (next == tokens.size()) return {};
    FATHOM_ASSIGN(const double logprob, token_logprob(logits, tokens[next]));
    logprobs.push_back(logprob);
    return {};
  };
  FATHOM_TRY(evaluate(tokens, add, progress));
  return logprobs;
}

// ---- Snapshots and files ----

SavedStateOwner saved_state_owner(const Model& model, int64_t context_tokens) {
  const StateShape& shape = model.state_shape();
  // What the serialised form adds to rings and rows is far below 64 bytes a token and a mebibyte.
  const int64_t state_bytes_max =
      shape.ring_bytes() + shape.cache_bytes(context_tokens) + 64 * context_tokens + (int64_t{1} << 20);
  return {.fingerprint = model.fingerprint(),
          .numerics = model.options().numerics,
          .vocab_size = model.config().vocab_size,
          .context_tokens = context_tokens,
          .state_bytes_max = state_bytes_max};
}


Result<SavedState> Session::snapshot() const {
  SavedState saved{.tokens = tokens_, .logits = {}, .state = {}};
  if (has_logits_) saved.logits = logits_;
  FATHOM_ASSIGN(saved.state, state_->serialise());
  return saved;
}

Result<void> Session::restore(const SavedState& saved) {
  if (static_cast<int64_t>(saved.tokens.size()) > context_tokens())
    return Error::context_full("the snapshot has {} tokens, the context holds {}", saved.tokens.size(),
                               context_tokens());
  if (!saved.logits.empty() && saved.logits.size() != logits_.size())
    return Error::invalid("the snapshot has {} logits, expected {}: it is another model's",
                          saved.logits.size(), logits_.size());
  FATHOM_TRY(state_->restore(saved.state));
  if (state_->position() != static_cast<int64_t>(saved.tokens.size())) {
    // Only a forged file gets here: the checksum holds and the parts contradict each other.
    const int64_t found = state_->position();
    forget_tokens();
    return Error::bad_pack("saved state: {} tokens, but its state is at position {}", saved.tokens.size(),
                           found);
  }
  tokens_ = saved.tokens;
  has_logits_ = !saved.logits.empty();
  if (has_logits_) logits_ = saved.logits;
  return {};
}

Result<void> Session::save(const std::string& path) const {
  FATHOM_ASSIGN(const SavedState saved, snapshot());
  return write_saved_state(path, saved_state_owner(model_, context_tokens()), saved);
}

Result<void> Session::load(const std::string& path) {
  FATHOM_ASSIGN(const SavedState saved, read_saved_state(path, saved_state_owner(model_, context_tokens())));
  return restore(saved);
}

}  // namespace fathom
