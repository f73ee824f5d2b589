// Everything that one sequence carries from step to step; docs/model/encoder_decoder.md, "State".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/engram_reader.h"
#include "model/layer_plan.h"
#include "ops/buffer.h"

namespace fathom {

/// Sizes that follow from a model and the numerics it runs with.
struct StateShape {
  int layers = 0;
  int window = 0;      // positions a query sees, its own included
  int ring_slots = 0;  // window + positions that can be taken back
  int head_dim = 0;
  int index_dim = 0;
  KvFormat window_format = KvFormat::kFp8Group32;
  KvFormat compressed_format = KvFormat::kFp4Group16;
  KvFormat index_format = KvFormat::kFp4Group32;
  int64_t window_row_bytes = 0;
  int64_t compressed_row_bytes = 0;
  int64_t index_row_bytes = 0;
  struct Source {
    int layer;
    int ratio;  // tokens a row
  };
  std::vector<Source> sources;      // layers that compress, ascending
  std::vector<int> source_of_layer; // [layers] index into sources, -1 for window-only layers
  int64_t tail_rows = 0;            // rows the decoder needs at its first layer to be exact
  int64_t tail_row_floats = 0;      // streams and `pre` of one row

  int64_t ring_bytes() const;                          // all rings and open groups of one sequence
  int64_t cache_bytes(int64_t capacity_tokens) const;  // compressed rows and index keys
  int64_t tail_bytes(int64_t capacity_tokens) const;   // held only between the chunks of a prompt
  int64_t rows_bytes(int64_t begin, int64_t end) const;  // SequenceState::export_rows()
  int64_t windows_bytes() const;                         // SequenceState::export_windows()
};
StateShape make_state_shape(const ModelConfig& config, Numerics numerics, int rewind_tokens);

/// Used by one thread at a time. The backend and the Model that made it must live longer.
class SequenceState {
 public:
  static Result<std::unique_ptr<SequenceState>> make(const StateShape& shape, Backend& backend,
                                                     int64_t capacity_tokens);

  /// Tokens evaluated so far = position of the next one.
  int64_t position() const { return position_; }
  int64_t capacity() const { return capacity_; }
  /// True between the chunks of a prompt: the decoder has not seen the newest rows yet. Such a state can only
  /// be extended or reset.
  bool decoder_pending() const { return pending_begin_ >= 0; }
  /// Rows that the decoder would have to see now for the prompt to end here; 0 unless pending.
  int64_t decoder_backlog() const;
  /// Some of those rows have been seen: the state can only be caught up or reset, and take no tokens before.
  bool decoder_catching_up() const { return replay_begin_ >= 0; }

  /// Whether rewind(position) can be answered from what is held: every window a query from there on would
  /// look into must still be in the rings.
  bool can_rewind(int64_t position) const;
  /// Goes back to an earlier position; ErrorCode::kState when can_rewind() says no.
  Result<void> rewind(int64_t position);
  void reset();

  /// The state as bytes, independent of capacity. Format: docs/formats/saved_state.md. They go into the memory of
  /// `room`, if that is large enough: touching a hundred megabytes for the first time costs more than copying them.
  Result<std::vector<std::byte>> serialise(std::vector<std::byte> room = {}) const;
  int64_t serialised_bytes() const;
  /// Replaces this state. On error nothing has changed. ErrorCode::kContextFull if it does not fit.
  Result<void> restore(std::span<const std::byte> bytes);

  // A state in two parts, for caches that hold many states with common prefixes.
  /// What tokens [begin, end) have added to the part that grows: Engram ids, compressed rows and index keys of
  /// the groups they complete. All states with the same first `end` tokens have the same bytes, pending ones
  /// too. `out`: shape.rows_bytes(begin, end).
  void export_rows(int64_t begin, int64_t end, std::byte* out) const;
  /// The other part, of fixed size: rings and open groups, good for this position alone. kState when pending.
  Result<std::vector<std::byte>> export_windows() const;
  /// Bytes of export_rows().
  struct RowsPiece {
    int64_t begin = 0;
    int64_t end = 0;
    const std::byte* bytes = nullptr;
  };
  /// Replaces this state by pieces that follow each other from 0 on, and the windows of where they end. Both
  /// come from states of the same shape. kContextFull if they do not fit; then nothing has changed.
  Result<void> assemble(std::span<const RowsPiece> pieces, std::span<const std::byte> windows);
  /// rewind() accepts this position and all between it and the present one.
  int64_t rewind_floor() const;

  // ---- For the forward pass ----
  std::byte* ring(int layer) const;
  std::byte* compressed(int source) const { return compressed_[static_cast<size_t>(source)].bytes(); }
  std::byte* index_keys(int source) const { return index_keys_[static_cast<size_t>(source)].bytes(); }
  /// Values and gates [head_dim] of the token at `position`, kept for groups that are still open.
  float* open_values(int source, int64_t position) const;
  float* open_gates(int source, int64_t position) const;
  /// Rows of `source` that exist once `tokens` tokens are evaluated.
  int64_t rows_at(int source, int64_t tokens) const;
  /// Streams and pre of one position of the tail of a prompt: tail_row_floats floats.
  float* tail_row(int64_t position) const;
  int64_t tail_capacity() const { return shape_.tail_rows < capacity_ ? shape_.tail_rows : capacity_; }
  Result<void> ensure_tail(Backend& backend);
  /// The position moves on over `tokens`; `token_map` [vocab] may be empty.
  void advance(std::span<const int32_t> tokens, std::span<const int32_t> token_map);

 private:
  friend class StepRunner;
  SequenceState() = default;
  int64_t open_slots() const { return shape_.ring_slots - shape_.window + 2; }

  StateShape shape_;
  Backend* backend_ = nullptr;
  int64_t capacity_ = 0;
  int64_t position_ = 0;
  int64_t pending_begin_ = -1;             // first position the decoder has not seen; -1: none
  int64_t replay_begin_ = -1;              // next position of a replay that has begun; -1: none has
  std::vector<int64_t> ring_valid_from_;   // [layers] positions below are not in the ring
  std::vector<int64_t> ring_end_;          // [layers] one beyond the newest position in the ring
  int64_t open_valid_from_ = 0;            // positions below are not among the open groups
  std::vector<int32_t> compressed_ids_;    // [position] Engram's view of the tokens; kEngramDead for images
  Buffer rings_;                           // [layers, ring_slots, window_row_bytes]
  Buffer open_groups_;                     // [sources, open_slots, 2, head_dim] f32
  std::vector<Buffer> compressed_;         // a source: [rows, compressed_row_bytes]
  std::vector<Buffer> index_keys_;         // a source: [rows, index_row_bytes]
  Buffer tail_;                            // [tail_rows, tail_row_floats] f32, slot = position mod tail_rows

  // Rows of the next tokens, if they were announced.
  std::unique_ptr<EngramReader::Fetch> ahead_;
  int64_t ahead_position_ = -1;
  std::vector<int32_t> ahead_tokens_;
};

}  // namespace fathom
