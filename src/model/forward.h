// The forward pass, once, over the operations of a backend. Read forward.cc from the top: it is a list of
// named steps. The equations are in docs/model/backbone.md.
#pragma once

#include <span>
#include <vector>

#include "model/engram_hash.h"
#include "model/engram_reader.h"
#include "model/layer_plan.h"
#include "model/model.h"
#include "model/scratch.h"
#include "model/step_rows.h"
#include "model/weights.h"

namespace fathom {

/// What a forward pass runs on. All of it outlives the StepRunner.
struct ForwardContext {
  const ModelConfig& config;
  const ModelOptions& options;
  const StateShape& shape;
  const std::vector<LayerPlan>& plan;
  const ModelWeights& weights;
  Scratch& scratch;
  Backend& backend;
  EngramReader* engram_reader = nullptr;                // null without Engram layers
  const std::vector<EngramLayerHash>& engram_hashes;    // one an Engram layer
  const std::vector<int32_t>& engram_token_map;         // [vocab]
  const float* frequencies[2] = {};                     // [rope_dim / 2] without and with YaRN, backend memory
};

class StepRunner {
 public:
  explicit StepRunner(const ForwardContext& context);
  /// Segments have been checked. On error the states of the step are reset.
  Result<void> run(std::span<const Segment> segments, const StopFn& stop);
  void set_probe(Probe probe) { probe_ = std::move(probe); }

 private:
  enum Angles { kPlain = 0, kYarn = 1 };

  // forward.cc: the order of things.
  Result<void> run_encoder(std::span<const Segment> segments);
  Result<void> run_decoder(std::span<const Segment> segments);
  Result<void> replay_tail(const Segment& segment, int64_t rows_max);
  Result<void> run_decoder_rows(std::vector<const Segment*> owners);
  Result<void> run_layer(const LayerPlan& plan, const RowLimits& next_limits);
  void write_logits(const std::vector<const Segment*>& owners);

  // attention.cc
  void run_attention(const LayerPlan& plan, const LayerWeights& w, const RowLimits& next_limits);
  void publish_rows(const LayerPlan& plan, const LayerWeights& w);
  void compress(const LayerPlan& plan, const LayerWeights& w, int source, int64_t* row_count);
  void store_window_rows(const LayerPlan& plan, const LayerWeights& w);
  void select_rows(const LayerPlan& plan, const LayerWeights& w);
  void attend(const LayerPlan& plan, const LayerWeights& w, const RowSet& window_rows);
  void commit_window_rows(const LayerPlan& plan, const RowSet& window_rows);

  // experts.cc
  Result<void> run_experts(const LayerPlan& plan, const LayerWeights& w);

  // engram.cc
  Result<void> start_engram(std::span<const Segment> segments);
  std::unique_ptr<EngramReader::Fetch> fetch_engram(const SequenceState& state, std::span<const int32_t> before,
                                                    std::span<const int32_t> tokens);
  Result<void> run_engram(const LayerPlan& plan, const LayerWeights& w);

  // step.cc: bookkeeping of rows.
  RowSet rows_of(std::span<const Segment> segments) const;
  int64_t logits_begin(const Segment& segment) const;
  void set_rows(RowSet rows);
  void shrink_rows(const RowLimits& limits);
  void move_kept_rows(const std::vector<int64_t>& kept, void* data, int64_t row_bytes);
  void store_tail(const RowSegment& segment);
  void load_tail(RowSet rows);
  /// First position of each segment that a layer (or the head, for num_layers) must look at.
  RowLimits decoder_limits(int layer) const;
  void cut_windows(const RowLimits& replay_begin);
  const float* quantized_if(bool wanted, const float* in, int64_t width, float* room);
  void hyper_read_and_norm(const float* pre, const Buffer& norm);
  void hyper_mix(const HyperWeights& w);
  template <class T>
  void upload(T* to, const std::vector<T>& from) {
    backend_.upload(to, from.data(), from.size() * sizeof(T));
  }
  void probe(std::string_view name, int layer, void* data, int64_t rows, int64_t width) const;

  ForwardContext context_;
  const ModelConfig& config_;
  Scratch& s_;
  Backend& backend_;
  const Numerics numerics_;
  const bool official_;
  Probe probe_;
  const StopFn* stop_ = nullptr;  // of the step at work
  std::vector<Segment> fresh_;    // segments of the step that have tokens

  RowSet rows_;                 // rows the streams hold now
  std::vector<int64_t> kept_;   // host-side lists, reused
  std::vector<int32_t> host_tokens_;
  std::vector<float> host_pre_;
  std::vector<int32_t> host_positions_;
  std::vector<AttentionRow> host_attention_rows_;
  std::vector<IndexRow> host_index_rows_;
  std::vector<void*> host_pointers_[4];
  std::vector<std::unique_ptr<EngramReader::Fetch>> fetches_;  // one a segment of the step
};

}  // namespace fathom
