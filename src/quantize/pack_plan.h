// What an output pack will hold: every stored tensor with type and shape, before a byte of it exists. A plan
// of the whole release takes no more than its names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/pack.h"
#include "model/tensor_shapes.h"
#include "quantize/recipe.h"

namespace fathom {

struct StoredTensor {
  std::string name;            // as the container spells it
  DType type = DType::kF32;    // as the container names it
  std::vector<int64_t> shape;  // outermost first
  uint64_t bytes = 0;
};

/// What is made and resumed as one: a matrix, a bank, a table. One or two stored tensors.
struct PlannedUnit {
  enum class Kind { kMatrix, kTable, kCopy };
  Kind kind = Kind::kMatrix;
  TensorShape tensor;            // of kCopy only the name counts
  int64_t expert = -1;           // this expert of a bank, which is then stored by itself
  int layer = -1;                // kTable
  size_t source = 0;             // kCopy: index into Pack::tensors()
  DType encoding = DType::kF32;  // kFp8Tile32, kFp8Row32 and kFp4Row32 where scales stand apart
  size_t values = 0;             // index into PackPlan::stored
  size_t scales = 0;             // likewise; equal to `values` where there is no tensor of its own
  bool is_hole = false;          // a table that is left out, to be read as zeros

  int64_t matrices() const { return expert < 0 && tensor.experts > 0 ? tensor.experts : 1; }
  int64_t rows() const { return tensor.rows; }
  int64_t cols() const { return tensor.cols; }
  int64_t value_row_bytes() const;
  /// 0 where scales are in the blocks.
  int64_t scale_row_bytes() const;
  /// Rows that share a row of scales.
  int64_t scale_rows() const { return encoding == DType::kFp8Tile32 ? 32 : 1; }
  /// Values and scales of a row side by side in one tensor: tables of the ds4 dialect.
  bool is_interleaved() const { return scale_row_bytes() > 0 && scales == values; }
};

struct PlanOptions {
  PackDialect dialect = PackDialect::kOfficial;  // kOfficial, kDs4Gguf or kLlamaCppGguf
  bool with_draft = false;
  bool with_vision_bias = false;  // gate.bias_vl
  bool with_tables = true;
};

struct PackPlan {
  PackDialect dialect = PackDialect::kOfficial;
  std::vector<StoredTensor> stored;  // in the order of the files
  std::vector<PlannedUnit> units;    // tables after matrices, copies after tables
  std::vector<std::string> notes;    // fallbacks that were taken

  /// Bytes of all tensors, each padded to `alignment_bytes`.
  uint64_t data_bytes(uint64_t alignment_bytes = 1) const;
  /// Bytes of a unit's stored tensors.
  uint64_t unit_bytes(const PlannedUnit& unit) const;
};

/// Errors are those of Recipe::type_of.
Result<PackPlan> plan_pack(const ModelConfig& config, const Recipe& recipe, const PlanOptions& options);

/// Adds a tensor that goes over byte by byte.
void add_copy(PackPlan& plan, const PackTensor& tensor, size_t source, DType type);

/// Alignment of the tensors in files of the dialect.
uint64_t alignment_of(PackDialect dialect);

}  // namespace fathom
