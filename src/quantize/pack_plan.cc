#include "quantize/pack_plan.h"

#include <algorithm>

#include "format/tensor_file.h"
#include "model/pack_names.h"

namespace fathom {
namespace {

constexpr uint64_t kDs4Alignment = 16384;  // pages of the machines that map it
constexpr uint64_t kGgufAlignment = 32;

class Planner {
 public:
  Planner(const ModelConfig& config, const Recipe& recipe, const PlanOptions& options)
      : config_(config), recipe_(recipe), options_(options) {
    plan.dialect = options.dialect;
  }

  Result<void> run() {
    std::vector<TensorShape> shapes = backbone_shapes(config_);
    // Files begin with what every token reads: embedding, norm and head.
    const auto norm = std::find_if(shapes.begin(), shapes.end(),
                                   [](const TensorShape& shape) { return shape.name == "norm.weight"; });
    if (norm != shapes.end() && norm != shapes.begin()) std::iter_swap(norm, norm - 1);
    for (const TensorShape& shape : shapes) FATHOM_TRY(add(shape));
    if (options_.with_draft)
      for (const TensorShape& shape : draft_shapes(config_)) FATHOM_TRY(add(shape));
    if (!options_.with_tables) return {};
    for (size_t index = 0; index < config_.engram.layer_ids.size(); ++index) FATHOM_TRY(add_table(index));
    return {};
  }

  PackPlan plan;

 private:
  bool is_official() const { return options_.dialect == PackDialect::kOfficial; }

  std::string stored_name(const std::string& official) const {
    if (is_official()) return official;
    return gguf_from_official(
        official, options_.dialect == PackDialect::kDs4Gguf ? GgufNames::kDs4 : GgufNames::kLlamaCpp);
  }

  size_t store(std::string name, DType type, std::vector<int64_t> shape) {
    const uint64_t bytes = tensor_bytes(type, shape).value_or(0);
    plan.stored.push_back({std::move(name), type, std::move(shape), bytes});
    return plan.stored.size() - 1;
  }

  Result<DType> type_of(const TensorShape& tensor, bool is_table) {
    std::string note;
    FATHOM_ASSIGN(const DType type, recipe_.type_of(tensor, options_.dialect, is_table, &note));
    if (!note.empty()) plan.notes.push_back(std::move(note));
    return type;
  }

  Result<void> add(const TensorShape& tensor) {
    if (tensor.name.ends_with(".bias_vl") && !options_.with_vision_bias) return {};
    FATHOM_ASSIGN(const DType type, type_of(tensor, /*is_table=*/false));
    if (tensor.experts == 0 || !is_official()) return add_unit(tensor, -1, type, stored_name(tensor.name));
    const size_t which = tensor.name.rfind('.', tensor.name.size() - 8);  // before "w1.weight"
    for (int64_t expert = 0; expert < tensor.experts; ++expert)
      FATHOM_TRY(
          add_unit(tensor, expert, type,
                   fmt::format("{}.{}{}", tensor.name.substr(0, which), expert, tensor.name.substr(which))));
    return {};
  }

  Result<void> add_unit(const TensorShape& tensor, int64_t expert, DType type, const std::string& name) {
    if (name.empty())
      return Error::unsupported("tensor {} has no name in {}", tensor.name, dialect_name(options_.dialect));
    PlannedUnit unit{.tensor = tensor, .expert = expert, .encoding = type};
    std::vector<int64_t> shape;
    if (unit.matrices() > 1 || (tensor.experts > 0 && expert < 0)) shape.push_back(tensor.experts);
    if (tensor.rows != 1 || !tensor.is_vector) shape.push_back(tensor.rows);
    shape.push_back(tensor.cols);
    if (type == DType::kFp4Row32) shape.back() /= 2;
    const DType stored = type == DType::kFp8Tile32  ? DType::kF8E4M3
                         : type == DType::kFp4Row32 ? DType::kI8
                                                    : type;
    unit.values = unit.scales = store(name, stored, std::move(shape));
    if (unit.scale_row_bytes() > 0) {
      const int64_t scale_rows = (tensor.rows + unit.scale_rows() - 1) / unit.scale_rows();
      unit.scales = store(fmt::format("{}.scale", module_of(name)), DType::kF8E8M0,
                          {scale_rows, unit.scale_row_bytes()});
    }
    plan.units.push_back(std::move(unit));
    return {};
  }

  Result<void> add_table(size_t index) {
    const int layer = config_.engram.layer_ids[index];
    const TensorShape tensor{.name = fmt::format("layers.{}.engram.embed.weight", layer),
                             .rows = config_.engram.rows[index],
                             .cols = config_.engram.head_dim};
    FATHOM_ASSIGN(const DType type, type_of(tensor, /*is_table=*/true));
    PlannedUnit unit{.kind = PlannedUnit::Kind::kTable, .tensor = tensor, .layer = layer, .encoding = type};
    const std::string name = stored_name(tensor.name);
    if (type != DType::kFp8Tile32) {
      unit.values = unit.scales = store(name, type, {tensor.rows, tensor.cols});
    } else {
      unit.encoding = DType::kFp8Row32;
      const int64_t scale_bytes = tensor.cols / 32;
      if (is_official()) {
        unit.values = store(name, DType::kF8E4M3, {tensor.rows, tensor.cols});
        unit.scales =
            store(fmt::format("{}.scale", module_of(name)), DType::kF8E8M0, {tensor.rows, scale_bytes});
      } else {
        unit.values = unit.scales = store(name, DType::kI8, {tensor.rows, tensor.cols + scale_bytes});
      }
    }
    plan.units.push_back(std::move(unit));
    return {};
  }

  const ModelConfig& config_;
  const Recipe& recipe_;
  const PlanOptions& options_;
};

}  // namespace

int64_t PlannedUnit::value_row_bytes() const { return row_bytes_of(encoding, tensor.cols); }

int64_t PlannedUnit::scale_row_bytes() const {
  switch (encoding) {
    case DType::kFp8Tile32: return (tensor.cols + 31) / 32;
    case DType::kFp8Row32:
    case DType::kFp4Row32: return tensor.cols / 32;
    default: return 0;
  }
}

uint64_t PackPlan::data_bytes(uint64_t alignment_bytes) const {
  uint64_t total = 0;
  for (const StoredTensor& tensor : stored)
    total += (tensor.bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  return total;
}

uint64_t PackPlan::unit_bytes(const PlannedUnit& unit) const {
  return stored[unit.values].bytes + (unit.scales != unit.values ? stored[unit.scales].bytes : 0);
}

Result<PackPlan> plan_pack(const ModelConfig& config, const Recipe& recipe, const PlanOptions& options) {
  Planner planner(config, recipe, options);
  FATHOM_TRY(planner.run());
  return std::move(planner.plan);
}

void add_copy(PackPlan& plan, const PackTensor& tensor, size_t source, DType type) {
  PlannedUnit unit{.kind = PlannedUnit::Kind::kCopy, .source = source, .encoding = type};
  unit.tensor.name = tensor.name;
  unit.values = unit.scales = plan.stored.size();
  plan.stored.push_back({tensor.name, type, tensor.shape, tensor.size_bytes});
  plan.units.push_back(std::move(unit));
}

uint64_t alignment_of(PackDialect dialect) {
  return dialect == PackDialect::kDs4Gguf    ? kDs4Alignment
         : dialect == PackDialect::kOfficial ? 1
                                             : kGgufAlignment;
}

}  // namespace fathom
