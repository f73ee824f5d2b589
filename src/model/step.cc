// Bookkeeping of a step: which rows the streams hold, and moving them.
#include <algorithm>

#include "model/forward.h"

namespace fathom {

int64_t StepRunner::logits_begin(const Segment& segment) const {
  const int64_t end = segment.state->position();
  switch (segment.logits) {
    case LogitRows::kNone: return end;
    case LogitRows::kLast: return end - 1;
    case LogitRows::kAll: return end - static_cast<int64_t>(segment.tokens.size());
  }
  return end;
}

RowSet StepRunner::rows_of(std::span<const Segment> segments) const {
  RowSet rows;
  for (const Segment& segment : segments) {
    const SequenceState& state = *segment.state;
    const int64_t count = static_cast<int64_t>(segment.tokens.size());
    rows.add({.state = segment.state,
              .first_position = state.position(),
              .rows = count,
              .evaluation_begin = state.decoder_pending() ? state.pending_begin_ : state.position(),
              .logits_begin = logits_begin(segment) + count,  // the state has not moved on yet
              .whole = context_.options.ced == CedMode::kOff || segment.logits == LogitRows::kAll});
  }
  return rows;
}

void StepRunner::set_rows(RowSet rows) {
  rows_ = std::move(rows);
  host_positions_.clear();
  for (const RowSegment& segment : rows_.segments)
    for (int64_t p = segment.first_position; p < segment.end(); ++p)
      host_positions_.push_back(static_cast<int32_t>(p));
  upload(s_.positions, host_positions_);
  for (const Angles kind : {kPlain, kYarn})
    backend_.rope_angles({.positions = s_.positions, .inverse_frequencies = context_.frequencies[kind],
                          .rows = rows_.rows, .pairs = config_.rope_dim / 2, .cosines = s_.cosines[kind],
                          .sines = s_.sines[kind]});
}

// Moves the kept rows to the front. They go by way of another place: a row may lie where another comes to be.
void StepRunner::move_kept_rows(const std::vector<int64_t>& kept, void* data, int64_t row_bytes) {
  std::vector<void*>&places = host_pointers_[0], &moved = host_pointers_[1];
  const auto copy = [&](void** from, void** to) {
    backend_.copy_rows(
        {.from = from, .to = to, .rows = static_cast<int64_t>(kept.size()), .row_bytes = row_bytes});
  };
  places.clear(), moved.clear();
  for (size_t row = 0; row < kept.size(); ++row) {
    places.push_back(static_cast<std::byte*>(data) + kept[row] * row_bytes);
    moved.push_back(s_.moved + static_cast<int64_t>(row) * row_bytes);
  }
  upload(s_.pointers[0], places);
  upload(s_.pointers[1], moved);
  copy(s_.pointers[0], s_.pointers[1]);
  for (size_t row = 0; row < kept.size(); ++row)
    places[row] = static_cast<std::byte*>(data) + static_cast<int64_t>(row) * row_bytes;
  upload(s_.pointers[0], places);
  copy(s_.pointers[1], s_.pointers[0]);
}

// Drops rows below `limits` from everything that goes with a row from layer to layer, and from the hidden
// rows of the layer at work.
void StepRunner::shrink_rows(const RowLimits& limits) {
  RowSet left = keep_rows(rows_, limits, kept_);
  if (left.rows == rows_.rows) return;
  const int64_t n = config_.hc_mult, dim = config_.hidden_size;
  move_kept_rows(kept_, s_.streams, n * dim * 4);
  move_kept_rows(kept_, s_.pre, n * 4);
  move_kept_rows(kept_, s_.hidden, dim * 4);
  move_kept_rows(kept_, s_.selected, config_.index_topk * 4);
  if (config_.candidate_topk_blocks > 0)
    move_kept_rows(kept_, s_.candidates, config_.candidate_topk_blocks * 4);
  set_rows(std::move(left));
}

// Puts the streams of a segment's newest rows aside: those the decoder may need at the end of the prompt.
void StepRunner::store_tail(const RowSegment& segment) {
  const int64_t n = config_.hc_mult, width = n * config_.hidden_size;
  const int64_t begin = std::max(segment.first_position, segment.end() - segment.state->tail_capacity());
  const auto copy = [&](float* from, int64_t row_floats, int64_t tail_offset) {
    std::vector<void*>&sources = host_pointers_[0], &targets = host_pointers_[1];
    sources.clear(), targets.clear();
    for (int64_t p = begin; p < segment.end(); ++p) {
      sources.push_back(from + (segment.offset + p - segment.first_position) * row_floats);
      targets.push_back(segment.state->tail_row(p) + tail_offset);
    }
    upload(s_.pointers[0], sources);
    upload(s_.pointers[1], targets);
    backend_.copy_rows({.from = s_.pointers[0], .to = s_.pointers[1],
                        .rows = segment.end() - begin, .row_bytes = row_floats * 4});
  };
  copy(s_.streams, width, 0);
  copy(s_.pre, n, width);
}

void StepRunner::load_tail(RowSet rows) {
  const int64_t n = config_.hc_mult, width = n * config_.hidden_size;
  const RowSegment& segment = rows.segments.front();
  const auto copy = [&](float* to, int64_t row_floats, int64_t tail_offset) {
    std::vector<void*>&sources = host_pointers_[0], &targets = host_pointers_[1];
    sources.clear(), targets.clear();
    for (int64_t row = 0; row < segment.rows; ++row) {
      sources.push_back(segment.state->tail_row(segment.first_position + row) + tail_offset);
      targets.push_back(to + row * row_floats);
    }
    upload(s_.pointers[0], sources);
    upload(s_.pointers[1], targets);
    backend_.copy_rows({.from = s_.pointers[0], .to = s_.pointers[1],
                        .rows = segment.rows, .row_bytes = row_floats * 4});
  };
  copy(s_.streams, width, 0);
  copy(s_.pre, n, width);
  set_rows(std::move(rows));
}

// Layer l's input must reach a window back from the first row that layer l + 1 needs. The last layer's own
// ring must be full, spare slots included, so that the state can be taken back a little afterwards.
RowLimits StepRunner::decoder_limits(int layer) const {
  const int64_t window = context_.shape.window;
  const int64_t above = config_.num_layers - 1 - layer;
  RowLimits limits;
  for (const RowSegment& segment : rows_.segments) {
    const int64_t end = segment.state->position();
    if (layer == config_.num_layers) {
      limits.push_back(segment.logits_begin);
    } else if (segment.whole) {
      limits.push_back(0);
    } else if (context_.options.ced == CedMode::kBounded) {
      limits.push_back(end - segment.evaluation_begin > window ? end - window : segment.evaluation_begin);
    } else {
      const int64_t needed = context_.shape.ring_slots + (window - 1) * above;
      limits.push_back(std::max(segment.evaluation_begin, end - needed));
    }
  }
  return limits;
}

// Of a bounded replay: the rows before it were never computed, so the rings hold something else there.
void StepRunner::cut_windows(const RowLimits& replay_begin) {
  for (size_t index = 0; index < rows_.segments.size(); ++index) {
    RowSegment& segment = rows_.segments[index];
    if (replay_begin[index] > segment.evaluation_begin) segment.window_floor = replay_begin[index];
  }
}

const float* StepRunner::quantized_if(bool wanted, const float* in, int64_t width, float* room) {
  if (!wanted) return in;
  backend_.quantize_activations({.in = in, .rows = rows_.rows, .width = width, .out = room});
  return room;
}

void StepRunner::hyper_read_and_norm(const float* pre, const Buffer& norm) {
  backend_.hyper_read({.streams = s_.streams, .pre = pre, .rows = rows_.rows, .stream_count = config_.hc_mult,
                       .dim = config_.hidden_size, .out = s_.hidden, .numerics = numerics_});
  backend_.rms_norm({.in = s_.hidden, .weight = norm.floats(), .rows = rows_.rows, .width = config_.hidden_size,
                     .eps = static_cast<float>(config_.rms_norm_eps), .out = s_.hidden, .numerics = numerics_});
}

void StepRunner::hyper_mix(const HyperWeights& w) {
  backend_.hyper_mix({.streams = s_.streams, .fn = &w.fn, .base = w.base.floats(), .scale = w.scale.floats(),
                      .rows = rows_.rows, .stream_count = config_.hc_mult, .dim = config_.hidden_size,
                      .norm_eps = static_cast<float>(config_.rms_norm_eps),
                      .hyper_eps = static_cast<float>(config_.hc_eps),
                      .sinkhorn_iterations = config_.hc_sinkhorn_iters, .pre = s_.mix_pre, .post = s_.mix_post,
                      .comb = s_.mix_comb});
}

void StepRunner::probe(std::string_view name, int layer, void* data, int64_t rows, int64_t width) const {
  if (!probe_) return;
  const int64_t first = rows_.segments.empty() ? 0 : rows_.segments.front().first_position;
  probe_({.name = name, .layer = layer, .data = data, .rows = rows, .width = width, .first_position = first});
}

}  // namespace fathom
