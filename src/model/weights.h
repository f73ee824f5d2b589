// The weights of one model, as the forward pass names them. Matrices are views into the pack; small vectors
// are float32 copies in the backend's memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/layer_plan.h"
#include "model/pack.h"
#include "ops/buffer.h"

namespace fathom {

/// A matrix and whether its input goes through the FP8 activation quantiser first: in official numerics,
/// where the release stores it as FP8 or FP4 and the pack still does (or says so).
struct Projection {
  WeightMatrix weight;
  bool quantize_input = false;
};

struct HyperWeights {
  WeightMatrix fn;  // [(2 + n) n, n dim]
  Buffer base;      // [(2 + n) n]
  Buffer scale;     // [3]
};

struct CompressorWeights {
  WeightMatrix wkv;    // [head_dim, dim]
  WeightMatrix wgate;  // [head_dim, dim]; ratio 2 only
  Buffer norm;         // [head_dim]
  WeightMatrix index_wk;  // [index_dim, head_dim]
  Buffer index_k_norm;    // [index_dim]
};

struct IndexerWeights {
  Projection wq_b;            // [index_heads * index_dim, q_lora]
  WeightMatrix weights_proj;  // [index_heads, dim]
};

struct EngramWeights {
  Projection wkv;      // [(n + 1) dim, columns * width]
  Buffer gate_weight;  // [n, dim] q_weight * k_weight
};

struct LayerWeights {
  HyperWeights hyper_attention;
  HyperWeights hyper_experts;
  Buffer attention_norm;  // [dim]
  Buffer experts_norm;    // [dim]

  Projection wq_a;     // [q_lora, dim]
  Buffer q_norm;       // [q_lora]
  Projection wq_b;     // [heads * head_dim, q_lora]
  Projection wkv;      // [head_dim, dim]
  Buffer kv_norm;      // [head_dim]
  WeightMatrix wo_a;   // [groups * o_lora, heads * head_dim / groups]
  Projection wo_b;     // [dim, groups * o_lora]
  Buffer sinks;        // [heads]
  CompressorWeights compressor;  // kv sources only
  IndexerWeights indexer;        // index sources only
  EngramWeights engram;          // Engram layers only

  WeightMatrix router;   // [experts, dim]
  Buffer router_bias;    // [experts]
  ExpertWeights shared;
  // Inputs of gate and up, and of down: as Projection::quantize_input.
  struct ExpertQuantizers {
    bool in = false;
    bool down = false;
    bool operator==(const ExpertQuantizers&) const = default;
  };
  ExpertQuantizers quantize_routed;
  ExpertQuantizers quantize_shared;
};

/// Where routed experts come from. Resident experts are all there at load; a store that fetches them makes
/// `acquire` wait for the missing ones.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  /// Weights of all experts of a layer, indexed by id; those in `ids` [count] (backend memory) may be read
  /// until the next call. kBadPack names an expert whose weights are unusable.
  virtual Result<const ExpertWeights*> acquire(int layer, const int32_t* ids, int64_t count) = 0;
};

struct ModelWeights {
  WeightMatrix embedding;  // [vocab, dim]
  WeightMatrix head;       // [vocab, dim]
  Buffer final_norm;       // [dim]
  std::vector<LayerWeights> layers;
  std::unique_ptr<ExpertStore> experts;
};

/// Errors name the tensor: missing, wrong shape, an encoding the backend cannot read, or values that are not
/// finite. All but the routed experts are read through for the last; an expert is when it is first asked for.
Result<ModelWeights> load_weights(const Pack& pack, const std::vector<LayerPlan>& plan, Backend& backend,
                                  Numerics numerics, const ProgressFn& progress);

}  // namespace fathom
