#include "model/tensor_shapes.h"

#include <string_view>
#include <unordered_set>

#include "base/check.h"
#include "model/pack_names.h"

namespace fathom {
namespace {

struct Rule {
  std::string_view suffix;  // what follows "layers.N." or "mtp.S."
  int64_t rows;
  int64_t cols;
  bool is_vector = false;
};

// Of layers and stages. Widths of a stage are those of the backbone but for its number of experts.
std::vector<Rule> block_rules(const ModelConfig& c, int64_t experts) {
  const int64_t hidden = c.hidden_size, inner = c.moe_intermediate_size, streams = c.hc_mult;
  const int64_t low_rank = int64_t{c.o_groups} * c.o_lora_rank;
  return {
      {"attn_norm.weight", 1, hidden, true},
      {"ffn_norm.weight", 1, hidden, true},
      {"hc_attn_fn", c.hc_mixes(), streams * hidden},
      {"hc_attn_base", 1, c.hc_mixes(), true},
      {"hc_attn_scale", 1, 3, true},
      {"hc_ffn_fn", c.hc_mixes(), streams * hidden},
      {"hc_ffn_base", 1, c.hc_mixes(), true},
      {"hc_ffn_scale", 1, 3, true},
      {"attn.attn_sink", 1, c.num_heads, true},
      {"attn.wq_a.weight", c.q_lora_rank, hidden},
      {"attn.q_norm.weight", 1, c.q_lora_rank, true},
      {"attn.wq_b.weight", c.head_width(), c.q_lora_rank},
      {"attn.wkv.weight", c.head_dim, hidden},
      {"attn.kv_norm.weight", 1, c.head_dim, true},
      {"attn.wo_a.weight", low_rank, c.head_width() / c.o_groups},
      {"attn.wo_b.weight", hidden, low_rank},
      {"attn.compressor.wkv.weight", c.head_dim, hidden},
      {"attn.compressor.wgate.weight", c.head_dim, hidden},
      {"attn.compressor.norm.weight", 1, c.head_dim, true},
      {"attn.indexer.wk.weight", c.index_head_dim, c.head_dim},
      {"attn.indexer.k_norm.weight", 1, c.index_head_dim, true},
      {"attn.indexer.wq_b.weight", int64_t{c.index_heads} * c.index_head_dim, c.q_lora_rank},
      {"attn.indexer.weights_proj.weight", c.index_heads, hidden},
      {"ffn.gate.weight", experts, hidden},
      {"ffn.gate.bias", 1, experts, true},
      {"ffn.gate.bias_vl", 1, experts, true},
      {"ffn.experts.w1.weight", inner, hidden},
      {"ffn.experts.w3.weight", inner, hidden},
      {"ffn.experts.w2.weight", hidden, inner},
      {"ffn.shared_experts.w1.weight", inner, hidden},
      {"ffn.shared_experts.w3.weight", inner, hidden},
      {"ffn.shared_experts.w2.weight", hidden, inner},
      {"engram.wkv.weight", (streams + 1) * hidden, c.engram.width()},
      {"engram.q_weight", streams, hidden, true},
      {"engram.k_weight", streams, hidden, true},
      {"main_proj.weight", hidden, static_cast<int64_t>(c.draft.target_layer_ids.size()) * hidden},
      {"main_norm.weight", 1, hidden, true},
      {"norm.weight", 1, hidden, true},
      {"markov_head.embed.weight", c.vocab_size, c.draft.markov_rank},
      {"markov_head.head.weight", c.vocab_size, c.draft.markov_rank},
      {"confidence_head.proj.weight", 1, hidden + c.draft.markov_rank},
  };
}

std::vector<Rule> top_rules(const ModelConfig& c) {
  return {{"embed.weight", c.vocab_size, c.hidden_size},
          {"head.weight", c.vocab_size, c.hidden_size},
          {"norm.weight", 1, c.hidden_size, true}};
}

// "layers.3.attn.wkv.weight" -> "attn.wkv.weight".
std::string_view within_block(std::string_view name) {
  if (!name.starts_with("layers.") && !name.starts_with("mtp.")) return name;
  const size_t number = name.find('.') + 1;
  return name.substr(name.find('.', number) + 1);
}

std::vector<TensorShape> shapes_of(const std::vector<ExpectedTensor>& expected, const ModelConfig& config,
                                   int64_t experts) {
  const std::vector<Rule> top = top_rules(config), block = block_rules(config, experts);
  std::vector<TensorShape> shapes;
  std::unordered_set<std::string> banks;
  for (const ExpectedTensor& tensor : expected) {
    const std::string bank = bank_of(tensor.name);
    if (!bank.empty() && !banks.insert(bank).second) continue;
    const std::string& name = bank.empty() ? tensor.name : bank;
    if (name.ends_with(".engram.embed.weight")) continue;
    const std::string_view suffix = within_block(name);
    const Rule* found = nullptr;
    for (const Rule& rule : suffix == name ? top : block) {
      if (rule.suffix == suffix) found = &rule;
    }
    FATHOM_CHECK(found != nullptr, "no shape is known of the expected tensor {}", name);
    shapes.push_back({.name = name,
                      .rows = found->rows,
                      .cols = found->cols,
                      .experts = bank.empty() ? 0 : experts,
                      .is_vector = found->is_vector});
  }
  return shapes;
}

}  // namespace

std::vector<TensorShape> backbone_shapes(const ModelConfig& config) {
  return shapes_of(expected_backbone(config), config, config.routed_experts);
}

std::vector<TensorShape> draft_shapes(const ModelConfig& config) {
  return shapes_of(expected_draft(config), config, config.draft.routed_experts);
}

}  // namespace fathom
