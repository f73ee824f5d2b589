#include "model/pack_names.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace fathom {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

// GGUF name of a block's tensor, without ".weight" -> official name. docs/formats/packs.md.
constexpr NamePair kBlockNames[] = {
    {"attn_norm", "attn_norm.weight"},
    {"ffn_norm", "ffn_norm.weight"},
    {"hc_attn_fn", "hc_attn_fn"},
    {"hc_attn_base", "hc_attn_base"},
    {"hc_attn_scale", "hc_attn_scale"},
    {"hc_ffn_fn", "hc_ffn_fn"},
    {"hc_ffn_base", "hc_ffn_base"},
    {"hc_ffn_scale", "hc_ffn_scale"},
    {"attn_sinks", "attn.attn_sink"},
    {"attn_q_a", "attn.wq_a.weight"},
    {"attn_q_a_norm", "attn.q_norm.weight"},
    {"attn_q_b", "attn.wq_b.weight"},
    {"attn_kv", "attn.wkv.weight"},
    {"attn_kv_a_norm", "attn.kv_norm.weight"},
    {"attn_output_a", "attn.wo_a.weight"},
    {"attn_output_b", "attn.wo_b.weight"},
    {"attn_compressor_kv", "attn.compressor.wkv.weight"},
    {"attn_compressor_gate", "attn.compressor.wgate.weight"},
    {"attn_compressor_norm", "attn.compressor.norm.weight"},
    {"indexer.attn_k", "attn.indexer.wk.weight"},
    {"indexer.k_norm", "attn.indexer.k_norm.weight"},
    {"indexer.attn_q_b", "attn.indexer.wq_b.weight"},
    {"indexer.proj", "attn.indexer.weights_proj.weight"},
    {"ffn_gate_inp", "ffn.gate.weight"},
    {"exp_probs_b.bias", "ffn.gate.bias"},
    {"exp_probs_b_vl.bias", "ffn.gate.bias_vl"},
    {"ffn_gate_exps", "ffn.experts.w1.weight"},
    {"ffn_up_exps", "ffn.experts.w3.weight"},
    {"ffn_down_exps", "ffn.experts.w2.weight"},
    {"ffn_gate_shexp", "ffn.shared_experts.w1.weight"},
    {"ffn_up_shexp", "ffn.shared_experts.w3.weight"},
    {"ffn_down_shexp", "ffn.shared_experts.w2.weight"},
    {"engram_embd", "engram.embed.weight"},
    {"engram_kv", "engram.wkv.weight"},    // ds4
    {"engram_wkv", "engram.wkv.weight"},   // llama.cpp
    {"engram_q_norm", "engram.q_weight"},  // ds4
    {"engram_k_norm", "engram.k_weight"},
    {"engram_q", "engram.q_weight"},  // llama.cpp
    {"engram_k", "engram.k_weight"},
    {"engram_embed", "engram.embed.weight"},  // aliases seen in files of one converter
    {"indexer_compressor_kv", "attn.indexer.wk.weight"},
    {"indexer_compressor_norm", "attn.indexer.k_norm.weight"},
};

// Of draft stages only, under "mtp.S.".
constexpr NamePair kDraftNames[] = {
    {"main_proj", "main_proj.weight"},
    {"main_norm", "main_norm.weight"},
    {"norm", "norm.weight"},
    {"markov_head.markov_w1", "markov_head.embed.weight"},
    {"markov_head.markov_w2", "markov_head.head.weight"},
    {"confidence_head.proj", "confidence_head.proj.weight"},
};

constexpr NamePair kTopNames[] = {
    {"token_embd", "embed.weight"},
    {"output_norm", "norm.weight"},
    {"output", "head.weight"},
};

// What the llama.cpp dialect calls differently.
constexpr NamePair kLlamaCppNames[] = {
    {"engram_wkv", "engram.wkv.weight"},
    {"engram_q", "engram.q_weight"},
    {"engram_k", "engram.k_weight"},
};

template <size_t N>
std::string_view look_up_official(const NamePair (&table)[N], std::string_view official) {
  for (const auto& [stored, name] : table) {
    if (name == official) return stored;
  }
  return {};
}

template <size_t N>
std::string_view look_up(const NamePair (&table)[N], std::string_view name) {
  for (const auto& [stored, official] : table) {
    if (stored == name) return official;
  }
  return {};
}

// "7.rest" -> {"7", "rest"}; an empty number if there is none.
std::pair<std::string_view, std::string_view> split_number(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 5 ||
      text.substr(0, dot).find_first_not_of("0123456789") != std::string_view::npos)
    return {};
  return {text.substr(0, dot), text.substr(dot + 1)};
}

class Expected {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    list.push_back({fmt::format(text, std::forward<Args>(args)...), false});
  }
  std::vector<ExpectedTensor> list;
};

// What backbone layers and draft stages share. `block` is "layers.3" or "mtp.0".
void add_block(Expected& expected, const std::string& block, int experts) {
  for (const char* name : {"attn_norm.weight",
                           "ffn_norm.weight",
                           "hc_attn_fn",
                           "hc_attn_base",
                           "hc_attn_scale",
                           "hc_ffn_fn",
                           "hc_ffn_base",
                           "hc_ffn_scale",
                           "attn.attn_sink",
                           "attn.wq_a.weight",
                           "attn.q_norm.weight",
                           "attn.wq_b.weight",
                           "attn.wkv.weight",
                           "attn.kv_norm.weight",
                           "attn.wo_a.weight",
                           "attn.wo_b.weight",
                           "ffn.gate.weight",
                           "ffn.gate.bias",
                           "ffn.shared_experts.w1.weight",
                           "ffn.shared_experts.w2.weight",
                           "ffn.shared_experts.w3.weight"})
    expected.add("{}.{}", block, name);
  for (int expert = 0; expert < experts; ++expert) {
    for (const char* name : {"w1", "w2", "w3"})
      expected.add("{}.ffn.experts.{}.{}.weight", block, expert, name);
  }
  expected.add("{}.ffn.gate.bias_vl", block);
  expected.list.back().optional = true;  // read for image rows only
}

}  // namespace

std::string official_from_gguf(std::string_view name) {
  std::string_view stem = name;
  if (stem.ends_with(".weight")) stem.remove_suffix(7);
  if (stem.starts_with("blk.")) {
    const auto [number, rest] = split_number(stem.substr(4));
    const std::string_view official = number.empty() ? std::string_view() : look_up(kBlockNames, rest);
    return official.empty() ? std::string() : fmt::format("layers.{}.{}", number, official);
  }
  if (stem.starts_with("mtp.")) {
    const auto [number, rest] = split_number(stem.substr(4));
    if (number.empty()) return {};
    std::string_view official = look_up(kBlockNames, rest);
    if (official.empty()) official = look_up(kDraftNames, rest);
    return official.empty() ? std::string() : fmt::format("mtp.{}.{}", number, official);
  }
  return std::string(look_up(kTopNames, stem));
}

std::string gguf_from_official(std::string_view name, GgufNames names) {
  const auto ended = [](std::string_view stem) {
    return stem.empty() || stem.ends_with(".bias") ? std::string(stem) : fmt::format("{}.weight", stem);
  };
  const bool is_layer = name.starts_with("layers.");
  const bool is_draft = name.starts_with("mtp.");
  if (!is_layer && !is_draft) return ended(look_up_official(kTopNames, name));
  const auto [number, rest] = split_number(name.substr(is_layer ? 7 : 4));
  if (number.empty()) return {};
  std::string_view stem;
  if (names == GgufNames::kLlamaCpp) stem = look_up_official(kLlamaCppNames, rest);
  if (stem.empty()) stem = look_up_official(kBlockNames, rest);
  if (stem.empty() && is_draft) stem = look_up_official(kDraftNames, rest);
  if (stem.empty()) return {};
  return fmt::format("{}.{}.{}", is_layer ? "blk" : "mtp", number, ended(stem));
}

std::string official_from_mlx(std::string_view name) {
  for (const std::string_view prefix : {"language_model.", "model."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  std::string official(name);
  if (official.starts_with("vision.")) {
    const size_t at = official.find(".ffn.");
    if (at != std::string::npos) official.replace(at, 5, ".mlp.");
  }
  return official;
}

std::string_view module_of(std::string_view name) {
  for (const std::string_view suffix : {".weight", ".scales", ".biases", ".scale"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

std::string bank_of(std::string_view expert_name) {
  constexpr std::string_view kMark = ".experts.";
  const size_t at = expert_name.find(kMark);
  if (at == std::string_view::npos) return {};
  const auto [number, rest] = split_number(expert_name.substr(at + kMark.size()));
  if (number.empty()) return {};
  return fmt::format("{}{}", expert_name.substr(0, at + kMark.size()), rest);
}

std::vector<ExpectedTensor> expected_backbone(const ModelConfig& config) {
  Expected expected;
  for (const char* name : {"embed.weight", "head.weight", "norm.weight"}) expected.add("{}", name);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::string block = fmt::format("layers.{}", layer);
    add_block(expected, block, config.routed_experts);
    if (config.is_kv_source(layer)) {
      for (const char* name : {"compressor.wkv", "compressor.norm", "indexer.wk", "indexer.k_norm"})
        expected.add("{}.attn.{}.weight", block, name);
      if (config.ratio(layer) > 1) expected.add("{}.attn.compressor.wgate.weight", block);
    }
    if (config.is_index_source(layer)) {
      expected.add("{}.attn.indexer.wq_b.weight", block);
      expected.add("{}.attn.indexer.weights_proj.weight", block);
    }
    if (config.engram_index(layer) >= 0) {
      for (const char* name : {"embed.weight", "wkv.weight", "q_weight", "k_weight"})
        expected.add("{}.engram.{}", block, name);
    }
  }
  return std::move(expected.list);
}

std::vector<ExpectedTensor> expected_draft(const ModelConfig& config) {
  Expected expected;
  const int stages = config.draft.stages;
  for (int stage = 0; stage < stages; ++stage)
    add_block(expected, fmt::format("mtp.{}", stage), config.draft.routed_experts);
  if (stages == 0) return {};
  expected.add("mtp.0.main_proj.weight");
  expected.add("mtp.0.main_norm.weight");
  for (const char* name : {"norm", "markov_head.embed", "markov_head.head", "confidence_head.proj"})
    expected.add("mtp.{}.{}.weight", stages - 1, name);
  return std::move(expected.list);
}

std::vector<ExpectedTensor> expected_vision(const ModelConfig& config) {
  if (!config.vision) return {};
  Expected expected;
  for (int block = 0; block < config.vision->layers; ++block) {
    for (const char* name : {"attn.wqkv.weight", "attn.wqkv.bias", "attn.wo.weight", "attn.wo.bias",
                             "mlp.w1.weight", "mlp.w2.weight", "norm1.weight", "norm2.weight"})
      expected.add("vision.blocks.{}.{}", block, name);
  }
  for (const char* name :
       {"vision.norm.weight", "vision.patch_embed.proj.weight", "vision.patch_embed.proj.bias",
        "aligner.w1.weight", "aligner.w1.bias", "aligner.w2.weight", "aligner.w2.bias", "image_start",
        "image_end", "image_newline"})
    expected.add("{}", name);
  return std::move(expected.list);
}

bool is_draft_tensor(std::string_view official_name) { return official_name.starts_with("mtp."); }

bool is_vision_tensor(std::string_view official_name) {
  for (const std::string_view prefix : {"vision.", "aligner.", "image_"}) {
    if (official_name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace fathom
