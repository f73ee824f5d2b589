// Which matrices and vectors a model of some shape has, and how large they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace fathom {

struct TensorShape {
  std::string name;  // official; of a bank "layers.3.ffn.experts.w1.weight"
  int64_t rows = 1;
  int64_t cols = 0;
  int64_t experts = 0;     // more than 0: a bank of that many matrices
  bool is_vector = false;  // small, kept as float32 at run time: Pack::vector() reads rows * cols values
};

/// Tensors of backbone and draft stages in the order of expected_backbone() and expected_draft(), without
/// Engram tables (Pack::engram_table knows those) and without vision.
std::vector<TensorShape> backbone_shapes(const ModelConfig& config);
std::vector<TensorShape> draft_shapes(const ModelConfig& config);

}  // namespace fathom
