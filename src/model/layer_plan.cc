#include "model/layer_plan.h"

namespace fathom {

std::vector<LayerPlan> make_layer_plan(const ModelConfig& config) {
  std::vector<LayerPlan> plan(static_cast<size_t>(config.num_layers));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    LayerPlan& entry = plan[static_cast<size_t>(layer)];
    entry.layer = layer;
    entry.ratio = config.ratio(layer);
    entry.in_decoder = layer >= config.encoder_layers();
    entry.engram_table = config.engram_index(layer);
    if (entry.ratio == 0) continue;
    entry.kv_source = config.kv_source_of(layer);
    entry.index_source = config.index_source_of(layer);
    entry.kind = config.is_kv_source(layer)      ? AttentionKind::kFull
                 : config.is_index_source(layer) ? AttentionKind::kReindex
                                                 : AttentionKind::kReuse;
    if (config.candidate_source_layer_id < 0) continue;
    entry.builds_candidates = layer == config.candidate_source_layer_id;
    // Candidates are blocks of the candidate source's own rows.
    entry.uses_candidates = layer > config.candidate_source_layer_id && entry.selects() &&
                            entry.kv_source == config.candidate_source_layer_id;
  }
  return plan;
}

}  // namespace fathom
