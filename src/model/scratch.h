// The buffers of a step, laid out once when a model is loaded. Steps take no other memory of the backend but
// the tail of a prompt, which belongs to its sequence.
#pragma once

#include "model/sequence_state.h"
#include "ops/buffer.h"

namespace fathom {

/// All are in the backend's memory; R = most rows of a step.
struct Scratch {
  // Streams, and the weights the next sub-layer reads them with.
  float* streams = nullptr;        // [R, n, dim]
  float* pre = nullptr;            // [R, n]
  float* mix_pre = nullptr;        // [R, n]
  float* mix_post = nullptr;       // [R, n]
  float* mix_comb = nullptr;       // [R, n, n]

  float* hidden = nullptr;            // [R, dim] input of a sub-layer
  float* hidden_quantized = nullptr;  // [R, dim]
  float* sublayer_out = nullptr;      // [R, dim]

  float* window_kv = nullptr;      // [R, head_dim]
  std::byte* fresh = nullptr;      // [R, window_row_bytes] window rows of this step
  float* q_low = nullptr;          // [R, q_lora]
  float* q_low_quantized = nullptr;  // [R, q_lora]
  float* attention_out = nullptr;  // [R, heads, head_dim]
  float* low_rank = nullptr;       // [R, groups * o_lora]

  float* values = nullptr;       // [R, head_dim] compressor
  float* gates = nullptr;        // [R, head_dim]
  float* latent = nullptr;       // [R, head_dim]
  float* index_key = nullptr;    // [R, index_dim]
  float* index_query = nullptr;  // [R, index_heads, index_dim]
  float* index_weights = nullptr;  // [R, index_heads]
  int32_t* selected = nullptr;         // [R, top_k]
  int32_t* candidates = nullptr;       // [R, candidate blocks]

  float* router_logits = nullptr;    // [R, experts]
  int32_t* expert_ids = nullptr;     // [R, experts per token]
  float* expert_weights = nullptr;   // [R, experts per token]

  float* engram_rows = nullptr;  // [R, columns * width]

  // Angles of the rows for layers with and without YaRN, and of compressed rows.
  float* cosines[2] = {};  // [R, pairs]
  float* sines[2] = {};
  float* row_cosines = nullptr;
  float* row_sines = nullptr;

  // The step record: what operations read per row.
  int32_t* tokens = nullptr;            // [R]
  int32_t* positions = nullptr;         // [R]
  AttentionRow* attention_rows = nullptr;  // [R]
  IndexRow* index_rows = nullptr;       // [R]
  void** pointers[4] = {};        // [R] each

  // Four that are never needed at once share a place.
  float* query = nullptr;      // [R, heads, head_dim] of attention
  float* engram_kv = nullptr;  // [R, (n + 1) * dim]
  std::byte* moved = nullptr;  // [R, n, dim] floats, or less: rows on their way to another place
  float* logits = nullptr;     // [kLogitRows, vocab]: more rows are computed in slices

  static constexpr int64_t kLogitRows = 16;

  Buffer memory;
};

Result<Scratch> make_scratch(const ModelConfig& config, const StateShape& shape, int step_rows,
                             Backend& backend);

}  // namespace fathom
