// What each layer does, as a table. The only place that turns a config into roles.
#pragma once

#include <vector>

#include "model/config.h"

namespace fathom {

enum class AttentionKind {
  kWindow,   // no compressed rows
  kFull,     // compresses its own rows and selects among them
  kReindex,  // selects anew among an earlier layer's rows
  kReuse,    // takes an earlier layer's rows and selection
};

struct LayerPlan {
  int layer = 0;
  AttentionKind kind = AttentionKind::kWindow;
  int ratio = 0;                  // tokens a compressed row; 0 without
  int kv_source = -1;             // layer whose compressed rows are read
  int index_source = -1;          // layer whose selection is read
  bool in_decoder = false;        // at or after the last kv source
  bool builds_candidates = false;
  bool uses_candidates = false;
  int engram_table = -1;          // index of its table, -1 without

  bool owns_rows() const { return kind == AttentionKind::kFull; }
  bool selects() const { return kind == AttentionKind::kFull || kind == AttentionKind::kReindex; }
};

std::vector<LayerPlan> make_layer_plan(const ModelConfig& config);

}  // namespace fathom
