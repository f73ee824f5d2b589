// A session: one sequence of tokens, its state, and the logits of what comes next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "engine/saved_state.h"
#include "model/model.h"

namespace fathom {

struct SessionOptions {
  int64_t context_tokens = 4096;
  /// Automatic checkpoints, taken at the ends of prompts, may take this much memory together; 0: none.
  int64_t checkpoint_bytes = int64_t{64} << 20;
};

enum class SyncAction {
  kReused,    // all tokens were there already, with logits
  kExtended,  // what was there is a prefix: the rest was evaluated
  kRewound,   // went back to the common prefix, then on
  kRestored,  // went back to a checkpoint, then on
  kRebuilt,   // began anew
};

struct SyncResult {
  SyncAction action = SyncAction::kReused;
  int64_t reused_tokens = 0;
  int64_t evaluated_tokens = 0;
};

/// Logits [vocab_size] that follow the token at `position`; valid during the call.
using LogitsFn = std::function<Result<void>(int64_t position, std::span<const float> logits)>;

/// Logits that are held while a prompt is scored: 16 Mi floats, 64 MiB, or a row if that is more.
inline constexpr int64_t kScoreLogits = int64_t{16} << 20;

/// Whose states sessions and slots of such a model and context write and read.
SavedStateOwner saved_state_owner(const Model& model, int64_t context_tokens);

/// Belongs to the thread that runs its model. The model must live longer.
class Session {
 public:
  static Result<std::unique_ptr<Session>> make(Model& model, const SessionOptions& options);

  /// Makes the session hold exactly `tokens`, with logits. Reuses what it can: the common prefix where the
  /// state can go back that far, else the best checkpoint. At least the last token is evaluated unless its
  /// logits are there. Progress ("prefill", "tokens") is told before each step; when it cancels
  /// (kCancelled), the session keeps what was evaluated and the next sync goes on from there if its tokens
  /// agree. A step that fails while it runs (kIo, kBadPack) leaves the session without tokens; checkpoints
  /// stay.
  /// Errors before anything changes: kInvalidArgument (no tokens; an id out of range), kContextFull.
  Result<SyncResult> sync(std::span<const int32_t> tokens, const ProgressFn& progress = {});

  /// Evaluates one more token. kContextFull; kState after a cancelled sync; kIo and kBadPack as in sync().
  Result<void> eval(int32_t token);
  /// One token each, in one step: all sessions advance, or none; after kIo and kBadPack all are without
  /// tokens. The sessions are distinct, of one model, and at most as many as a step has rows.
  static Result<void> eval_batch(std::span<Session* const> sessions, std::span<const int32_t> tokens);

  /// Evaluates `tokens` after those it holds and shows the logits of each row, in order; every layer runs on
  /// every row. What `show` returns as an error ends it; the session then holds what was evaluated, which is
  /// up to evaluate_rows() tokens more than were shown. Errors before anything changes: kInvalidArgument,
  /// kContextFull, kState after a cancelled sync.
  Result<void> evaluate(std::span<const int32_t> tokens, const LogitsFn& show, const ProgressFn& progress = {});
  /// Rows of one step of evaluate(): their logits are held at once.
  int64_t evaluate_rows() const;

  /// Log-probability of each token after the first given those before it, tokens.size() - 1 values. Begins
  /// anew; every layer runs on every row. The session then holds the tokens, with logits.
  Result<std::vector<double>> score(std::span<const int32_t> tokens, const ProgressFn& progress = {});

  /// Of the next token, [vocab_size]; kState if there are none. Valid until the session changes.
  Result<std::span<const float>> logits() const;
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t position() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t context_tokens() const { return state_->capacity(); }
  const Model& model() const { return model_; }
  int64_t common_prefix(std::span<const int32_t> tokens) const;

  /// Keeps the first `position` tokens, without logits; kState when they are too far back.
  Result<void> rewind(int64_t position);
  /// Forgets tokens and checkpoints.
  void invalidate();

  Result<SavedState> snapshot() const;
  /// `saved` must come from a session of the same model. On error nothing has changed.
  Result<void> restore(const SavedState& saved);
  Result<void> save(const std::string& path) const;
  Result<void> load(const std::string& path);

  size_t checkpoint_count() const { return checkpoints_.size(); }

 private:
  Session(Model& model, std::unique_ptr<SequenceState> state, const SessionOptions& options);
  Result<void> check_tokens(std::span<const int32_t> tokens) const;
  Result<void> check_next(int32_t token) const;
  Result<SyncAction> go_back(std::span<const int32_t> tokens);
  bool restore_checkpoint(std::span<const int32_t> tokens);
  Result<void> run_step(const Segment& segment);
  Result<void> evaluate_from_here(std::span<const int32_t> tokens, const ProgressFn& progress);
  void keep_checkpoint();
  void forget_tokens();
  void forget_tokens_of_empty_state();

  Model& model_;
  std::unique_ptr<SequenceState> state_;
  SessionOptions options_;
  std::vector<int32_t> tokens_;  // what the state has seen
  std::vector<float> logits_;    // [vocab]
  bool has_logits_ = false;
  std::vector<SavedState> checkpoints_;  // oldest first, without logits
};

}  // namespace fathom
