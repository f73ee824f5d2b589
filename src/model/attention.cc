// The attention half of a layer: window rows, compressed rows, selection, and the sum over both.
#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace fathom {

void StepRunner::run_attention(const LayerPlan& plan, const LayerWeights& w, const RowLimits& next_limits) {
  store_window_rows(plan, w);
  const RowSet window_rows = rows_;
  shrink_rows(next_limits);  // window rows are there; queries are wanted of fewer
  if (rows_.rows > 0) {
    hyper_mix(w.hyper_attention);
    const Angles kind = plan.ratio > 0 ? kYarn : kPlain;
    const float* in = quantized_if(w.wq_a.quantize_input, s_.hidden, config_.hidden_size, s_.hidden_quantized);
    backend_.linear({.in = in, .weight = &w.wq_a.weight, .rows = rows_.rows, .out = s_.q_low,
                     .round_to_bf16 = official_, .inputs_are_bf16 = official_});
    backend_.rms_norm({.in = s_.q_low, .weight = w.q_norm.floats(), .rows = rows_.rows,
                       .width = config_.q_lora_rank, .eps = static_cast<float>(config_.rms_norm_eps),
                       .out = s_.q_low, .numerics = numerics_});
    const float* q_low = quantized_if(w.wq_b.quantize_input, s_.q_low, config_.q_lora_rank, s_.q_low_quantized);
    backend_.linear({.in = q_low, .weight = &w.wq_b.weight, .rows = rows_.rows, .out = s_.query,
                     .round_to_bf16 = official_, .inputs_are_bf16 = official_});
    backend_.rope({.data = s_.query, .cosines = s_.cosines[kind], .sines = s_.sines[kind], .rows = rows_.rows,
                   .heads = config_.num_heads, .head_dim = config_.head_dim, .pairs = config_.rope_dim / 2,
                   .inverse = false, .numerics = numerics_});
    if (plan.selects()) select_rows(plan, w);
    attend(plan, w, window_rows);
  }
  commit_window_rows(plan, window_rows);
}

// Keys (= values) of the window: one row of this layer's own for every token.
void StepRunner::store_window_rows(const LayerPlan& plan, const LayerWeights& w) {
  const Angles kind = plan.ratio > 0 ? kYarn : kPlain;
  const float* in = quantized_if(w.wkv.quantize_input, s_.hidden, config_.hidden_size, s_.hidden_quantized);
  backend_.linear({.in = in, .weight = &w.wkv.weight, .rows = rows_.rows, .out = s_.window_kv,
                   .round_to_bf16 = official_, .inputs_are_bf16 = official_});
  backend_.rms_norm({.in = s_.window_kv, .weight = w.kv_norm.floats(), .rows = rows_.rows,
                     .width = config_.head_dim, .eps = static_cast<float>(config_.rms_norm_eps),
                     .out = s_.window_kv, .numerics = numerics_});
  backend_.rope({.data = s_.window_kv, .cosines = s_.cosines[kind], .sines = s_.sines[kind], .rows = rows_.rows,
                 .heads = 1, .head_dim = config_.head_dim, .pairs = config_.rope_dim / 2, .inverse = false,
                 .numerics = numerics_});
  std::vector<void*>& out = host_pointers_[0];
  out.clear();
  for (int64_t row = 0; row < rows_.rows; ++row)
    out.push_back(s_.fresh + row * context_.shape.window_row_bytes);
  upload(s_.pointers[0], out);
  backend_.store_kv({.in = s_.window_kv, .rows = rows_.rows, .width = config_.head_dim,
                     .format = context_.shape.window_format,
                     .out = reinterpret_cast<std::byte* const*>(s_.pointers[0])});
}

// Compressed rows and index keys that the step's tokens complete, appended to the source's caches.
void StepRunner::publish_rows(const LayerPlan& plan, const LayerWeights& w) {
  const StateShape& shape = context_.shape;
  const int source = shape.source_of_layer[static_cast<size_t>(plan.layer)];
  int64_t count = 0;
  compress(plan, w, source, &count);

  std::vector<int32_t>& positions = host_positions_;
  std::vector<void*>&rows = host_pointers_[0], &keys = host_pointers_[1];
  positions.clear(), rows.clear(), keys.clear();
  for (const RowSegment& segment : rows_.segments) {
    for (int64_t j = segment.first_position / plan.ratio; j < segment.end() / plan.ratio; ++j) {
      positions.push_back(static_cast<int32_t>(j * plan.ratio));  // a row stands at its first token
      rows.push_back(segment.state->compressed(source) + j * shape.compressed_row_bytes);
      keys.push_back(segment.state->index_keys(source) + j * shape.index_row_bytes);
    }
  }
  FATHOM_CHECK(static_cast<int64_t>(positions.size()) == count);
  if (count == 0) return;
  upload(s_.positions, positions);
  upload(s_.pointers[0], rows);
  upload(s_.pointers[1], keys);
  const int pairs = config_.rope_dim / 2;
  const float eps = static_cast<float>(config_.rms_norm_eps);
  backend_.rope_angles({.positions = s_.positions, .inverse_frequencies = context_.frequencies[kYarn],
                        .rows = count, .pairs = pairs, .cosines = s_.row_cosines, .sines = s_.row_sines});
  backend_.rms_norm({.in = s_.latent, .weight = w.compressor.norm.floats(), .rows = count,
                     .width = config_.head_dim, .eps = eps, .out = s_.latent, .numerics = numerics_});

  // The key is taken from the latent before it is rotated.
  backend_.linear({.in = s_.latent, .weight = &w.compressor.index_wk, .rows = count, .out = s_.index_key,
                   .round_to_bf16 = official_, .inputs_are_bf16 = official_});
  backend_.rms_norm({.in = s_.index_key, .weight = w.compressor.index_k_norm.floats(), .rows = count,
                     .width = config_.index_head_dim, .eps = eps, .out = s_.index_key, .numerics = numerics_});
  backend_.rope({.data = s_.index_key, .cosines = s_.row_cosines, .sines = s_.row_sines, .rows = count,
                 .heads = 1, .head_dim = config_.index_head_dim, .pairs = pairs, .inverse = false,
                 .numerics = numerics_});
  backend_.store_kv({.in = s_.index_key, .rows = count, .width = config_.index_head_dim,
                     .format = shape.index_format, .out = reinterpret_cast<std::byte* const*>(s_.pointers[1])});

  backend_.rope({.data = s_.latent, .cosines = s_.row_cosines, .sines = s_.row_sines, .rows = count, .heads = 1,
                 .head_dim = config_.head_dim, .pairs = pairs, .inverse = false, .numerics = numerics_});
  backend_.store_kv({.in = s_.latent, .rows = count, .width = config_.head_dim,
                     .format = shape.compressed_format,
                     .out = reinterpret_cast<std::byte* const*>(s_.pointers[0])});
}

// Latents of the rows that become complete -> s_.latent. At ratio 2 the even token of a pair may belong to an
// earlier step: values and gates of the newest tokens are kept in the state.
void StepRunner::compress(const LayerPlan& plan, const LayerWeights& w, int source, int64_t* row_count) {
  const int64_t width = config_.head_dim;
  if (plan.ratio == 1) {
    backend_.linear({.in = s_.hidden, .weight = &w.compressor.wkv, .rows = rows_.rows, .out = s_.latent,
                     .round_to_bf16 = official_, .inputs_are_bf16 = official_});
    *row_count = rows_.rows;
    return;
  }
  backend_.linear({.in = s_.hidden, .weight = &w.compressor.wkv, .rows = rows_.rows, .out = s_.values,
                   .round_to_bf16 = false, .inputs_are_bf16 = official_});
  backend_.linear({.in = s_.hidden, .weight = &w.compressor.wgate, .rows = rows_.rows, .out = s_.gates,
                   .round_to_bf16 = false, .inputs_are_bf16 = official_});
  for (auto& list : host_pointers_) list.clear();
  for (const RowSegment& segment : rows_.segments) {
    for (int64_t odd = segment.first_position | 1; odd < segment.end(); odd += 2) {
      const int64_t row = segment.offset + odd - segment.first_position;
      const bool earlier = odd == segment.first_position;
      host_pointers_[0].push_back(earlier ? segment.state->open_values(source, odd - 1)
                                          : s_.values + (row - 1) * width);
      host_pointers_[1].push_back(earlier ? segment.state->open_gates(source, odd - 1)
                                          : s_.gates + (row - 1) * width);
      host_pointers_[2].push_back(s_.values + row * width);
      host_pointers_[3].push_back(s_.gates + row * width);
    }
  }
  for (int list = 0; list < 4; ++list) upload(s_.pointers[list], host_pointers_[list]);
  *row_count = static_cast<int64_t>(host_pointers_[0].size());
  const auto floats = [&](int list) { return reinterpret_cast<const float* const*>(s_.pointers[list]); };
  backend_.compress_pair({.even_values = floats(0), .even_gates = floats(1), .odd_values = floats(2),
                          .odd_gates = floats(3), .rows = *row_count, .width = width, .out = s_.latent,
                          .numerics = numerics_});

  // Keep the newest tokens' values and gates, one slot each.
  std::vector<void*>&from = host_pointers_[0], &to = host_pointers_[1];
  from.clear(), to.clear();
  for (const RowSegment& segment : rows_.segments) {
    const int64_t begin = std::max(segment.first_position, segment.end() - segment.state->open_slots());
    for (int64_t p = begin; p < segment.end(); ++p) {
      const int64_t row = segment.offset + p - segment.first_position;
      from.push_back(s_.values + row * width), to.push_back(segment.state->open_values(source, p));
      from.push_back(s_.gates + row * width), to.push_back(segment.state->open_gates(source, p));
    }
  }
  for (size_t begin = 0; begin < from.size(); begin += static_cast<size_t>(context_.options.step_rows)) {
    const size_t count = std::min(from.size() - begin, static_cast<size_t>(context_.options.step_rows));
    backend_.upload(s_.pointers[0], from.data() + begin, count * sizeof(void*));
    backend_.upload(s_.pointers[1], to.data() + begin, count * sizeof(void*));
    backend_.copy_rows({.from = s_.pointers[0], .to = s_.pointers[1],
                        .rows = static_cast<int64_t>(count), .row_bytes = width * 4});
  }
}

void StepRunner::select_rows(const LayerPlan& plan, const LayerWeights& w) {
  const StateShape& shape = context_.shape;
  const float* q_low =
      quantized_if(w.indexer.wq_b.quantize_input, s_.q_low, config_.q_lora_rank, s_.q_low_quantized);
  backend_.linear({.in = q_low, .weight = &w.indexer.wq_b.weight, .rows = rows_.rows, .out = s_.index_query,
                   .round_to_bf16 = official_, .inputs_are_bf16 = official_});
  backend_.rope({.data = s_.index_query, .cosines = s_.cosines[kYarn], .sines = s_.sines[kYarn],
                 .rows = rows_.rows, .heads = config_.index_heads, .head_dim = config_.index_head_dim,
                 .pairs = config_.rope_dim / 2, .inverse = false, .numerics = numerics_});
  backend_.fake_quantize({.data = s_.index_query, .rows = rows_.rows * config_.index_heads,
                          .width = config_.index_head_dim, .format = shape.index_format});
  backend_.linear({.in = s_.hidden, .weight = &w.indexer.weights_proj, .rows = rows_.rows,
                   .out = s_.index_weights, .round_to_bf16 = official_, .inputs_are_bf16 = official_});

  const int source = shape.source_of_layer[static_cast<size_t>(plan.layer)];
  std::vector<IndexRow>& index_rows = host_index_rows_;
  index_rows.clear();
  for (const RowSegment& segment : rows_.segments)
    for (int64_t p = segment.first_position; p < segment.end(); ++p)
      index_rows.push_back({.keys = segment.state->index_keys(source),
                            .visible = static_cast<int32_t>((p + 1) / plan.ratio)});
  upload(s_.index_rows, index_rows);
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.index_head_dim) * config_.index_heads);
  backend_.index_select({.query = s_.index_query, .head_weights = s_.index_weights,
                         .head_weight_scale = static_cast<float>(scale), .row = s_.index_rows,
                         .rows = rows_.rows, .heads = config_.index_heads, .key_dim = config_.index_head_dim,
                         .key_format = shape.index_format, .top_k = config_.index_topk, .selected = s_.selected,
                         .block_size = config_.candidate_block_size, .max_blocks = config_.candidate_topk_blocks,
                         .allowed_blocks = plan.uses_candidates ? s_.candidates : nullptr,
                         .candidate_blocks = plan.builds_candidates ? s_.candidates : nullptr,
                         .scores = nullptr, .score_stride = 0, .numerics = numerics_});
  probe("selected", plan.layer, s_.selected, rows_.rows, config_.index_topk);
  if (plan.builds_candidates)
    probe("candidates", plan.layer, s_.candidates, rows_.rows, config_.candidate_topk_blocks);
}

// `window_rows` are the rows whose window keys lie in s_.fresh: those of rows_, and perhaps earlier ones.
void StepRunner::attend(const LayerPlan& plan, const LayerWeights& w, const RowSet& window_rows) {
  const StateShape& shape = context_.shape;
  const int source = shape.source_of_layer[static_cast<size_t>(plan.layer)];
  std::vector<AttentionRow>& rows = host_attention_rows_;
  rows.clear();
  size_t index = 0;
  for (const RowSegment& segment : rows_.segments) {
    while (window_rows.segments[index].state != segment.state) ++index;
    const RowSegment& keys = window_rows.segments[index];
    for (int64_t p = segment.first_position; p < segment.end(); ++p)
      rows.push_back({.ring = segment.state->ring(plan.layer),
                      .fresh = s_.fresh + keys.offset * shape.window_row_bytes,
                      .compressed = source >= 0 ? segment.state->compressed(source) : nullptr,
                      .ring_slots = shape.ring_slots,
                      .fresh_begin = static_cast<int32_t>(keys.first_position),
                      .window_begin = static_cast<int32_t>(
                          std::max({segment.window_floor, p - (shape.window - 1), int64_t{0}})),
                      .position = static_cast<int32_t>(p)});
  }
  upload(s_.attention_rows, rows);
  backend_.sparse_attention(
      {.query = s_.query, .row = s_.attention_rows, .selected = source >= 0 ? s_.selected : nullptr,
       .sinks = w.sinks.floats(), .rows = rows_.rows, .heads = config_.num_heads, .head_dim = config_.head_dim,
       .window = shape.window, .top_k = config_.index_topk,
       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
       .window_format = shape.window_format, .compressed_format = shape.compressed_format,
       .out = s_.attention_out, .numerics = numerics_});
  const Angles kind = plan.ratio > 0 ? kYarn : kPlain;
  backend_.rope({.data = s_.attention_out, .cosines = s_.cosines[kind], .sines = s_.sines[kind],
                 .rows = rows_.rows, .heads = config_.num_heads, .head_dim = config_.head_dim,
                 .pairs = config_.rope_dim / 2, .inverse = true, .numerics = numerics_});
  const int64_t low_rank = int64_t{config_.o_groups} * config_.o_lora_rank;
  backend_.grouped_linear({.in = s_.attention_out, .weight = &w.wo_a, .rows = rows_.rows,
                           .groups = config_.o_groups, .out = s_.low_rank, .round_to_bf16 = official_,
                           .inputs_are_bf16 = official_});
  const float* in = quantized_if(w.wo_b.quantize_input, s_.low_rank, low_rank, s_.low_rank);
  backend_.linear({.in = in, .weight = &w.wo_b.weight, .rows = rows_.rows, .out = s_.sublayer_out,
                   .round_to_bf16 = official_, .inputs_are_bf16 = official_});
}

// Rings are written after the step's queries have read them: a step may be longer than a ring.
void StepRunner::commit_window_rows(const LayerPlan& plan, const RowSet& window_rows) {
  const StateShape& shape = context_.shape;
  std::vector<void*>&from = host_pointers_[0], &to = host_pointers_[1];
  from.clear(), to.clear();
  for (const RowSegment& segment : window_rows.segments) {
    std::byte* ring = segment.state->ring(plan.layer);
    for (int64_t p = segment.first_position; p < segment.end(); ++p) {
      const bool is_overwritten = p + shape.ring_slots < segment.end();
      from.push_back(s_.fresh + (segment.offset + p - segment.first_position) * shape.window_row_bytes);
      to.push_back(is_overwritten ? nullptr : ring + p % shape.ring_slots * shape.window_row_bytes);
    }
    // Where rows between the ring's old end and these were never computed, the ring begins anew.
    int64_t& valid_from = segment.state->ring_valid_from_[static_cast<size_t>(plan.layer)];
    int64_t& ring_end = segment.state->ring_end_[static_cast<size_t>(plan.layer)];
    if (segment.first_position > ring_end) valid_from = segment.first_position;
    ring_end = segment.end();
  }
  upload(s_.pointers[0], from);
  upload(s_.pointers[1], to);
  backend_.copy_rows({.from = s_.pointers[0], .to = s_.pointers[1],
                      .rows = static_cast<int64_t>(from.size()), .row_bytes = shape.window_row_bytes});
}

}  // namespace fathom
