// Engram: rows looked up by the ids of the last few tokens, gated into the streams.
#include <algorithm>

#include "model/forward.h"

namespace fathom {

std::unique_ptr<EngramReader::Fetch> StepRunner::fetch_engram(const SequenceState& state,
                                                              std::span<const int32_t> before,
                                                              std::span<const int32_t> tokens) {
  const std::vector<int32_t>& map = context_.engram_token_map;
  const int ngram_max = config_.engram.max_ngram;
  EngramHistory history(ngram_max, map[static_cast<size_t>(config_.engram.pad_token_id)]);
  const size_t remembered = std::min(state.compressed_ids_.size(), static_cast<size_t>(ngram_max - 1));
  for (size_t index = state.compressed_ids_.size() - remembered; index < state.compressed_ids_.size(); ++index)
    history.push(state.compressed_ids_[index]);
  for (const int32_t token : before) history.push(map[static_cast<size_t>(token)]);

  const size_t tables = context_.engram_hashes.size();
  const size_t columns = static_cast<size_t>(config_.engram.columns());
  std::vector<int64_t> row_ids(tokens.size() * tables * columns);
  std::vector<int32_t> ids_back(static_cast<size_t>(ngram_max));
  for (size_t token = 0; token < tokens.size(); ++token) {
    const int32_t id = map[static_cast<size_t>(tokens[token])];
    history.gather(id, ids_back);
    for (size_t table = 0; table < tables; ++table)
      engram_rows(context_.engram_hashes[table], ids_back,
                  std::span(row_ids).subspan((token * tables + table) * columns, columns));
    history.push(id);
  }
  return context_.engram_reader->start(row_ids, static_cast<int64_t>(tokens.size()));
}

// Row ids depend on token ids alone, so all reads of the step begin before its first layer, and those of the
// next step's tokens, where they are known, right behind them.
Result<void> StepRunner::start_engram(std::span<const Segment> segments) {
  fetches_.clear();
  if (context_.engram_reader == nullptr) return {};
  for (const Segment& segment : segments) {
    SequenceState& state = *segment.state;
    const bool announced = state.ahead_ != nullptr && state.ahead_position_ == state.position() &&
                           std::ranges::equal(state.ahead_tokens_, segment.tokens);
    fetches_.push_back(announced ? std::move(state.ahead_) : fetch_engram(state, {}, segment.tokens));
    state.ahead_.reset();
  }
  for (const Segment& segment : segments) {
    if (segment.next_tokens.empty()) continue;
    SequenceState& state = *segment.state;
    state.ahead_ = fetch_engram(state, segment.tokens, segment.next_tokens);
    state.ahead_position_ = state.position() + static_cast<int64_t>(segment.tokens.size());
    state.ahead_tokens_.assign(segment.next_tokens.begin(), segment.next_tokens.end());
  }
  return {};
}

Result<void> StepRunner::run_engram(const LayerPlan& plan, const LayerWeights& w) {
  const int64_t width = config_.engram.width();
  for (size_t index = 0; index < fetches_.size(); ++index) {
    EngramReader::Fetch& fetch = *fetches_[index];
    FATHOM_TRY(fetch.wait());
    backend_.upload(s_.engram_rows + rows_.segments[index].offset * width, fetch.rows(plan.engram_table),
                    static_cast<size_t>(fetch.tokens() * width) * sizeof(float));
  }
  const float* in = quantized_if(w.engram.wkv.quantize_input, s_.engram_rows, width, s_.engram_rows);
  backend_.linear({.in = in, .weight = &w.engram.wkv.weight, .rows = rows_.rows, .out = s_.engram_kv,
                   .round_to_bf16 = official_, .inputs_are_bf16 = official_});
  backend_.engram_write({.key_value = s_.engram_kv, .gate_weight = w.engram.gate_weight.floats(),
                         .is_masked = nullptr, .rows = rows_.rows, .stream_count = config_.hc_mult,
                         .dim = config_.hidden_size, .norm_eps = static_cast<float>(config_.rms_norm_eps),
                         .streams = s_.streams, .numerics = numerics_});
  return {};
}

}  // namespace fathom
