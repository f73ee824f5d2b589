#include "model/forward.h"

#include <algorithm>

namespace fathom {

StepRunner::StepRunner(const ForwardContext& context)
    : context_(context),
      config_(context.config),
      s_(context.scratch),
      backend_(context.backend),
      numerics_(context.options.numerics),
      official_(context.options.numerics == Numerics::kOfficial) {}

Result<void> StepRunner::run(std::span<const Segment> segments, const StopFn& stop) {
  stop_ = &stop;
  fresh_.clear();
  for (const Segment& segment : segments)
    if (!segment.tokens.empty()) fresh_.push_back(segment);
  Result<void> outcome;
  if (!fresh_.empty()) outcome = run_encoder(fresh_);
  if (outcome.ok() && !fresh_.empty()) outcome = run_decoder(fresh_);
  for (const Segment& segment : segments)
    if (outcome.ok() && segment.tokens.empty()) outcome = replay_tail(segment, segment.decoder_rows_max);
  fetches_.clear();
  if (!outcome.ok())
    for (const Segment& segment : segments) segment.state->reset();
  return outcome;
}

// Layers below the last kv source, for every row; then that source's compressed rows and index keys, which
// are all that later tokens will ever read of a row the decoder does not see.
Result<void> StepRunner::run_encoder(std::span<const Segment> segments) {
  set_rows(rows_of(segments));
  FATHOM_TRY(start_engram(segments));

  host_tokens_.clear();
  for (const Segment& segment : segments)
    host_tokens_.insert(host_tokens_.end(), segment.tokens.begin(), segment.tokens.end());
  upload(s_.tokens, host_tokens_);
  backend_.embed_tokens({.table = &context_.weights.embedding, .tokens = s_.tokens, .rows = rows_.rows,
                         .stream_count = config_.hc_mult, .streams = s_.streams});
  // Layer 0 reads stream 0 alone.
  host_pre_.assign(static_cast<size_t>(rows_.rows * config_.hc_mult), 0.0f);
  for (size_t row = 0; row < static_cast<size_t>(rows_.rows); ++row)
    host_pre_[row * static_cast<size_t>(config_.hc_mult)] = 1.0f;
  upload(s_.pre, host_pre_);

  const RowLimits all(rows_.segments.size(), 0);
  for (int layer = 0; layer < config_.encoder_layers(); ++layer)
    FATHOM_TRY(run_layer(context_.plan[static_cast<size_t>(layer)], all));

  if (config_.encoder_layers() < config_.num_layers) {
    const LayerPlan& source = context_.plan[static_cast<size_t>(config_.encoder_layers())];
    const LayerWeights& w = context_.weights.layers[static_cast<size_t>(source.layer)];
    // A probe may replace the streams of a layer before anything is computed from them.
    probe("layer_begin", source.layer, s_.streams, rows_.rows, config_.hc_mult * config_.hidden_size);
    probe("pre_in", source.layer, s_.pre, rows_.rows, config_.hc_mult);
    if (source.engram_table >= 0) FATHOM_TRY(run_engram(source, w));
    hyper_read_and_norm(s_.pre, w.attention_norm);
    publish_rows(source, w);
  }
  return {};
}

// The other layers, for the rows whose output somebody will read. Sequences in the middle of their prompt
// put their newest rows aside; those that end it here run the decoder on what was put aside.
Result<void> StepRunner::run_decoder(std::span<const Segment> segments) {
  std::vector<const Segment*> direct;  // rows that are in the streams now
  std::vector<const Segment*> replay;  // rows that were put aside
  RowLimits limits;
  for (size_t index = 0; index < segments.size(); ++index) {
    const Segment& segment = segments[index];
    SequenceState& state = *segment.state;
    const RowSegment& rows = rows_.segments[index];
    state.advance(segment.tokens, context_.engram_token_map);
    const bool puts_aside = !rows.whole && (!segment.is_last_chunk || state.decoder_pending());
    limits.push_back(puts_aside ? rows.end() : 0);
    if (!puts_aside) {
      direct.push_back(&segment);
      continue;
    }
    FATHOM_TRY(state.ensure_tail(backend_));
    store_tail(rows);
    state.pending_begin_ = rows.evaluation_begin;
    if (segment.is_last_chunk) replay.push_back(&segment);
  }
  if (!direct.empty()) {
    shrink_rows(limits);
    FATHOM_TRY(run_decoder_rows(direct));
  }
  for (const Segment* segment : replay)
    FATHOM_TRY(replay_tail(*segment, segment->state->decoder_backlog()));
  return {};
}

// The decoder on the next `rows_max` rows put aside during a prompt, in portions that fit a step.
Result<void> StepRunner::replay_tail(const Segment& segment, int64_t rows_max) {
  SequenceState& state = *segment.state;
  RowSegment rest{.state = &state,
                  .first_position = state.position() - state.decoder_backlog(),
                  .evaluation_begin = state.pending_begin_,
                  .logits_begin = logits_begin(segment)};
  const int64_t end = std::min(state.position(), rest.first_position + rows_max);
  while (rest.first_position < end) {
    rest.rows = std::min<int64_t>(context_.options.step_rows, end - rest.first_position);
    RowSet rows;
    rows.add(rest);
    load_tail(std::move(rows));
    FATHOM_TRY(run_decoder_rows({&segment}));
    rest.first_position += rest.rows;
  }
  state.replay_begin_ = end;
  if (end < state.position()) return {};
  state.pending_begin_ = state.replay_begin_ = -1;
  state.tail_ = Buffer();
  return {};
}

// `owners` are the segments whose rows the streams hold, in order. Every layer looks at fewer rows than the
// one below it; a segment without rows left has nothing more to give.
Result<void> StepRunner::run_decoder_rows(std::vector<const Segment*> owners) {
  const auto keep_owners = [&](const RowLimits& limits) {
    std::vector<const Segment*> left;
    for (size_t index = 0; index < owners.size(); ++index)
      if (rows_.segments[index].end() > limits[index]) left.push_back(owners[index]);
    return left;
  };
  RowLimits limits = decoder_limits(config_.encoder_layers());
  std::vector<const Segment*> left = keep_owners(limits);
  if (context_.options.ced == CedMode::kBounded) cut_windows(limits);
  shrink_rows(limits);
  owners = std::move(left);
  for (int layer = config_.encoder_layers(); layer < config_.num_layers && !owners.empty(); ++layer) {
    limits = decoder_limits(layer + 1);
    left = keep_owners(limits);
    FATHOM_TRY(run_layer(context_.plan[static_cast<size_t>(layer)], limits));
    owners = std::move(left);
  }
  if (!owners.empty()) write_logits(owners);
  return {};
}

Result<void> StepRunner::run_layer(const LayerPlan& plan, const RowLimits& next_limits) {
  if (*stop_ && (*stop_)()) return Error::cancelled("the step was ended before layer {}", plan.layer);
  const LayerWeights& w = context_.weights.layers[static_cast<size_t>(plan.layer)];
  const int64_t width = int64_t{config_.hc_mult} * config_.hidden_size;
  // The decoder's first layer has had this part in run_encoder.
  const bool is_first_of_decoder = plan.in_decoder && plan.layer == config_.encoder_layers();
  if (!is_first_of_decoder) {
    probe("layer_begin", plan.layer, s_.streams, rows_.rows, width);
    probe("pre_in", plan.layer, s_.pre, rows_.rows, config_.hc_mult);
    if (plan.engram_table >= 0) FATHOM_TRY(run_engram(plan, w));
  }
  probe("layer_in", plan.layer, s_.streams, rows_.rows, width);

  hyper_read_and_norm(s_.pre, w.attention_norm);
  if (plan.owns_rows() && !is_first_of_decoder) publish_rows(plan, w);
  run_attention(plan, w, next_limits);  // keeps only the rows that the next layer needs
  if (rows_.rows == 0) return {};
  probe("attn_out", plan.layer, s_.sublayer_out, rows_.rows, config_.hidden_size);
  backend_.hyper_write({.in = s_.sublayer_out, .post = s_.mix_post, .comb = s_.mix_comb, .rows = rows_.rows,
                        .stream_count = config_.hc_mult, .dim = config_.hidden_size, .streams = s_.streams,
                        .numerics = numerics_});

  // The experts' input is read with the attention's weights; their own serve the next layer's attention.
  hyper_read_and_norm(s_.mix_pre, w.experts_norm);
  hyper_mix(w.hyper_experts);
  std::swap(s_.pre, s_.mix_pre);
  FATHOM_TRY(run_experts(plan, w));
  probe("ffn_out", plan.layer, s_.sublayer_out, rows_.rows, config_.hidden_size);
  backend_.hyper_write({.in = s_.sublayer_out, .post = s_.mix_post, .comb = s_.mix_comb, .rows = rows_.rows,
                        .stream_count = config_.hc_mult, .dim = config_.hidden_size, .streams = s_.streams,
                        .numerics = numerics_});
  probe("layer_out", plan.layer, s_.streams, rows_.rows, width);
  probe("pre_out", plan.layer, s_.pre, rows_.rows, config_.hc_mult);
  return {};
}

void StepRunner::write_logits(const std::vector<const Segment*>& owners) {
  hyper_read_and_norm(s_.pre, context_.weights.final_norm);
  probe("final_norm", config_.num_layers, s_.hidden, rows_.rows, config_.hidden_size);
  for (size_t index = 0; index < owners.size(); ++index) {
    const Segment& segment = *owners[index];
    const RowSegment& where = rows_.segments[index];
    if (segment.logits == LogitRows::kNone) continue;
    const int64_t begin = segment.logits == LogitRows::kAll ? 0 : where.rows - 1;
    for (int64_t row = begin; row < where.rows; row += Scratch::kLogitRows) {
      const int64_t count = std::min(Scratch::kLogitRows, where.rows - row);
      backend_.linear({.in = s_.hidden + (where.offset + row) * config_.hidden_size,
                       .weight = &context_.weights.head, .rows = count, .out = s_.logits,
                       .round_to_bf16 = false, .inputs_are_bf16 = official_});
      backend_.download(segment.logits_out + (row - begin) * config_.vocab_size, s_.logits,
                        static_cast<size_t>(count * config_.vocab_size) * sizeof(float));
    }
  }
}

}  // namespace fathom
