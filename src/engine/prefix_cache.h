// States of prompts in RAM, as a tree over their tokens: what two prompts have in common is held once.
// docs/scheduler.md, "The cache".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/sequence_state.h"

namespace fathom {

/// A node owns the compressed rows and index keys of its tokens; a snapshot at its end holds rings, open groups
/// and perhaps logits. Rows are kept as long as a snapshot needs them. One thread at a time uses a PrefixCache.
class PrefixCache {
  struct Node;

 public:
  struct Statistics {
    int64_t entries = 0;  // snapshots
    int64_t bytes = 0, bytes_max = 0;
    int64_t evictions = 0;
  };
  /// Valid until the next keep().
  struct Match {
    int64_t reused_tokens = 0;  // of the prompt; 0: nothing
    int64_t snapshot_tokens = 0;  // that the snapshot holds; above reused_tokens the state must go back
   private:
    friend class PrefixCache;
    Node* node = nullptr;
  };

  /// `bytes_max` 0: keeps nothing.
  PrefixCache(const StateShape& shape, int64_t bytes_max);
  ~PrefixCache();

  /// What spares the most of `prompt`. At least its last token is left to be evaluated, unless a snapshot is
  /// exactly the prompt and has logits.
  Match find(std::span<const int32_t> prompt) const;

  /// Puts the match into `state`. `logits` [vocab] are filled, and true returned, if there are some that follow
  /// the last reused token. Counts as a use. On error (kContextFull) nothing has changed.
  Result<bool> restore(const Match& match, SequenceState& state, std::span<float> logits);

  /// Length of the longest snapshot that `tokens` begin with.
  int64_t kept_tokens(std::span<const int32_t> tokens) const;

  /// Keeps `state`, which is not pending and has evaluated `tokens`; `logits` may be empty. What is worth least
  /// makes room, but not what find() gives for the prompts of `incoming`. False: there was no room.
  bool keep(std::span<const int32_t> tokens, const SequenceState& state, std::span<const float> logits,
            std::span<const std::span<const int32_t>> incoming);

  Statistics statistics() const;

 private:
  struct Snapshot;
  struct Place {
    Node* node = nullptr;    // the deepest node that holds some of the tokens
    int64_t matched = 0;     // tokens of all that the tree holds; within `node`, its end included
  };
  Place walk(std::span<const int32_t> tokens) const;
  void look_beyond(Node& node, int64_t keep, Match& best) const;
  Node* split(Node& node, int64_t position);
  Node* append(Node& parent, std::span<const int32_t> tokens, int64_t end, const SequenceState& state);
  bool make_room(int64_t needed, const Node* path, std::span<const std::span<const int32_t>> incoming);
  double worth(const Node& node) const;
  void drop(Node& node);
  int64_t node_bytes(int64_t begin, int64_t end) const;
  int64_t needed_bytes(const Place& place, std::span<const int32_t> tokens, size_t logits) const;

  const StateShape shape_;
  const int64_t bytes_max_;
  int64_t bytes_ = 0;
  int64_t evictions_ = 0;
  uint64_t clock_ = 0;
  std::unique_ptr<Node> root_;
  std::vector<Node*> kept_;  // nodes with a snapshot
};

}  // namespace fathom
