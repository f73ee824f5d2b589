#include "model/scratch.h"

#include <algorithm>

#include "model/model.h"

namespace fathom {
namespace {

// Hands out aligned pieces of one block; without a block it only counts.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}
  template <class T>
  void take(T*& piece, int64_t count) {
    if (base_ != nullptr) piece = reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  }
  int64_t used_bytes() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

int64_t lay_out(Scratch& s, const ModelConfig& c, const StateShape& shape, int64_t rows, std::byte* base) {
  Arena arena(base);
  const int64_t n = c.hc_mult, dim = c.hidden_size, pairs = c.rope_dim / 2;
  const int64_t head_dim = c.head_dim, candidate_blocks = std::max(c.candidate_topk_blocks, 1);
  arena.take(s.streams, rows * n * dim);
  for (float** piece : {&s.pre, &s.mix_pre, &s.mix_post}) arena.take(*piece, rows * n);
  arena.take(s.mix_comb, rows * n * n);
  for (float** piece : {&s.hidden, &s.hidden_quantized, &s.sublayer_out})
    arena.take(*piece, rows * dim);
  for (float** piece : {&s.window_kv, &s.values, &s.gates, &s.latent}) arena.take(*piece, rows * head_dim);
  arena.take(s.fresh, rows * shape.window_row_bytes);
  for (float** piece : {&s.q_low, &s.q_low_quantized}) arena.take(*piece, rows * c.q_lora_rank);
  arena.take(s.attention_out, rows * c.head_width());
  arena.take(s.low_rank, rows * c.o_groups * c.o_lora_rank);
  arena.take(s.index_key, rows * c.index_head_dim);
  arena.take(s.index_query, rows * c.index_heads * c.index_head_dim);
  arena.take(s.index_weights, rows * c.index_heads);
  arena.take(s.selected, rows * c.index_topk);
  arena.take(s.candidates, rows * candidate_blocks);
  arena.take(s.router_logits, rows * c.routed_experts);
  arena.take(s.expert_ids, rows * c.experts_per_token);
  arena.take(s.expert_weights, rows * c.experts_per_token);
  const bool has_engram = !c.engram.layer_ids.empty();
  if (has_engram) arena.take(s.engram_rows, rows * c.engram.width());
  const int64_t moved = std::max<int64_t>({n * dim, c.index_topk, candidate_blocks});
  const int64_t shared_row = std::max<int64_t>({c.head_width(), moved, has_engram ? (n + 1) * dim : 0});
  arena.take(s.query, std::max(rows * shared_row, Scratch::kLogitRows * c.vocab_size));
  s.engram_kv = s.logits = s.query;
  s.moved = reinterpret_cast<std::byte*>(s.query);
  for (int kind = 0; kind < 2; ++kind) {
    arena.take(s.cosines[kind], rows * pairs);
    arena.take(s.sines[kind], rows * pairs);
  }
  arena.take(s.row_cosines, rows * pairs);
  arena.take(s.row_sines, rows * pairs);
  arena.take(s.tokens, rows);
  arena.take(s.positions, rows);
  arena.take(s.attention_rows, rows);
  arena.take(s.index_rows, rows);
  for (void**& piece : s.pointers) arena.take(piece, rows);
  return arena.used_bytes();
}

}  // namespace

int64_t step_scratch_bytes(const ModelConfig& config, const StateShape& shape, int step_rows) {
  Scratch counted;
  return lay_out(counted, config, shape, step_rows, nullptr);
}

WorkShape work_shape(const ModelConfig& c, int step_rows, int64_t context_tokens) {
  const int64_t grouped = c.o_groups == 0 ? 0 : c.head_width() / c.o_groups;
  const int64_t engram = c.engram.layer_ids.empty() ? 0 : c.engram.width();
  int least_ratio = 0;
  for (const int layer : c.index_source_layer_ids)
    if (least_ratio == 0 || c.ratio(layer) < least_ratio) least_ratio = c.ratio(layer);
  return {.rows = step_rows,
          .context_tokens = least_ratio == 0 ? 0 : context_tokens / least_ratio,
          .streams = c.hc_mult,
          .dim = c.hidden_size,
          .widest_input = std::max<int64_t>({c.hidden_size, c.q_lora_rank, grouped, engram,
                                             int64_t{c.o_groups} * c.o_lora_rank, c.moe_intermediate_size}),
          .heads = c.num_heads,
          .head_dim = c.head_dim,
          .output_groups = c.o_groups,
          .window = c.sliding_window,
          .top_k = c.index_topk,
          .index_heads = least_ratio == 0 ? 0 : c.index_heads,
          .index_dim = c.index_head_dim,
          .candidate_block = c.candidate_topk_blocks > 0 ? c.candidate_block_size : 0,
          .candidate_blocks = c.candidate_topk_blocks,
          .experts = c.routed_experts,
          .experts_per_token = c.experts_per_token,
          .inter = c.moe_intermediate_size};
}

Result<Scratch> make_scratch(const ModelConfig& config, const StateShape& shape, int step_rows,
                             Backend& backend) {
  Scratch scratch;
  FATHOM_ASSIGN(scratch.memory,
                Buffer::make(backend, step_scratch_bytes(config, shape, step_rows), "the buffers of a step"));
  lay_out(scratch, config, shape, step_rows, scratch.memory.bytes());
  return scratch;
}

}  // namespace fathom
