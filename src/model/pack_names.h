// Official tensor names: how each container's names map to them, and which of them a config expects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace fathom {

/// "blk.3.attn_q_a.weight" -> "layers.3.attn.wq_a.weight", for the ds4 and llama.cpp dialects and their
/// aliases. A bank of experts becomes "layers.3.ffn.experts.w1.weight". Empty for a name that maps to
/// nothing.
std::string official_from_gguf(std::string_view name);

/// The other way: "layers.3.attn.wq_a.weight" -> "blk.3.attn_q_a.weight". The two dialects differ in the
/// names of Engram tensors only. Empty for a name that maps to nothing.
enum class GgufNames { kDs4, kLlamaCpp };
std::string gguf_from_official(std::string_view name, GgufNames names);

/// Strips "language_model." and "model.", and undoes the renaming of the vision blocks' "mlp".
std::string official_from_mlx(std::string_view name);

/// Cuts ".weight", ".scale", ".scales" or ".biases" off; a name without such an ending is its own module.
std::string_view module_of(std::string_view name);

/// "layers.3.ffn.experts.7.w1.weight" -> "layers.3.ffn.experts.w1.weight"; empty if it is no expert's.
std::string bank_of(std::string_view expert_name);

struct ExpectedTensor {
  std::string name;
  bool optional = false;
};

/// Tensors of the backbone, without those of draft stages and vision. An expert is named singly,
/// "…7.w1.weight".
std::vector<ExpectedTensor> expected_backbone(const ModelConfig& config);
std::vector<ExpectedTensor> expected_draft(const ModelConfig& config);
std::vector<ExpectedTensor> expected_vision(const ModelConfig& config);

bool is_draft_tensor(std::string_view official_name);
bool is_vision_tensor(std::string_view official_name);

}  // namespace fathom
