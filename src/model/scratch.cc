#include "model/scratch.h"

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
  for (float** piece : {&s.streams, &s.streams_other}) arena.take(*piece, rows * n * dim);
  for (float** piece : {&s.pre, &s.pre_other, &s.mix_pre, &s.mix_post}) arena.take(*piece, rows * n);
  arena.take(s.mix_comb, rows * n * n);
  for (float** piece : {&s.hidden, &s.hidden_other, &s.hidden_quantized, &s.sublayer_out})
    arena.take(*piece, rows * dim);
  for (float** piece : {&s.window_kv, &s.values, &s.gates, &s.latent}) arena.take(*piece, rows * head_dim);
  arena.take(s.fresh, rows * shape.window_row_bytes);
  for (float** piece : {&s.q_low, &s.q_low_quantized}) arena.take(*piece, rows * c.q_lora_rank);
  for (float** piece : {&s.query, &s.attention_out}) arena.take(*piece, rows * c.head_width());
  arena.take(s.low_rank, rows * c.o_groups * c.o_lora_rank);
  arena.take(s.index_key, rows * c.index_head_dim);
  arena.take(s.index_query, rows * c.index_heads * c.index_head_dim);
  arena.take(s.index_weights, rows * c.index_heads);
  for (int32_t** piece : {&s.selected, &s.selected_other}) arena.take(*piece, rows * c.index_topk);
  for (int32_t** piece : {&s.candidates, &s.candidates_other}) arena.take(*piece, rows * candidate_blocks);
  arena.take(s.router_logits, rows * c.routed_experts);
  arena.take(s.expert_ids, rows * c.experts_per_token);
  arena.take(s.expert_weights, rows * c.experts_per_token);
  if (!c.engram.layer_ids.empty()) {
    arena.take(s.engram_rows, rows * c.engram.width());
    arena.take(s.engram_kv, rows * (n + 1) * dim);
  }
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
  arena.take(s.logits, Scratch::kLogitRows * c.vocab_size);
  return arena.used_bytes();
}

}  // namespace

int64_t step_scratch_bytes(const ModelConfig& config, const StateShape& shape, int step_rows) {
  Scratch counted;
  return lay_out(counted, config, shape, step_rows, nullptr);
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
