#include "quantize/imatrix.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "model/pack_names.h"
#include "model/tensor_shapes.h"

namespace fathom {
namespace {

// "layers.3.ffn.experts.7.w1.weight" -> 7. Only for names that bank_of() knows.
int64_t expert_of(std::string_view name) {
  const std::string_view rest = name.substr(name.find(".experts.") + 9);
  return std::stoll(std::string(rest.substr(0, rest.find('.'))));
}

std::string sizes_text(int64_t experts, int64_t cols) {
  return experts == 0 ? fmt::format("{} columns", cols)
                      : fmt::format("{} experts of {} columns", experts, cols);
}

}  // namespace

std::span<const float> ImportanceMatrix::for_tensor(std::string_view official_name, int64_t expert) const {
  const std::string bank = bank_of(official_name);
  if (!bank.empty()) expert = expert_of(official_name);
  const auto found = bank.empty() ? entries_.find(official_name) : entries_.find(bank);
  if (found == entries_.end()) return {};
  const ImportanceEntry& entry = found->second;
  const int64_t which = entry.experts == 0 ? 0 : expert;
  if (which < 0 || which >= std::max<int64_t>(entry.experts, 1)) return {};
  if (entry.rows[static_cast<size_t>(which)] == 0) return {};
  return std::span(entry.mean_squares)
      .subspan(static_cast<size_t>(which * entry.cols), static_cast<size_t>(entry.cols));
}

Result<void> ImportanceMatrix::check_fits(const ModelConfig& config) const {
  std::vector<TensorShape> shapes = backbone_shapes(config);
  const std::vector<TensorShape> draft = draft_shapes(config);
  shapes.insert(shapes.end(), draft.begin(), draft.end());
  std::unordered_map<std::string_view, const TensorShape*> by_name;
  for (const TensorShape& shape : shapes)
    if (!shape.is_vector && shape.name != "embed.weight") by_name.emplace(shape.name, &shape);
  for (const auto& [name, entry] : entries_) {
    const auto found = by_name.find(name);
    if (found == by_name.end())
      return Error::bad_pack(
          "{}: importance of {}, expected names of this model's matrices: it is another "
          "model's",
          path, name);
    const TensorShape& shape = *found->second;
    if (shape.cols != entry.cols || shape.experts != entry.experts)
      return Error::bad_pack("{}: importance of {}: expected {}, found {}: it is another model's", path, name,
                             sizes_text(shape.experts, shape.cols), sizes_text(entry.experts, entry.cols));
  }
  return {};
}

Result<void> ImportanceMatrix::add(std::string official_name, ImportanceEntry entry) {
  const int64_t matrices = std::max<int64_t>(entry.experts, 1);
  if (entry.experts < 0 || entry.cols < 1 || static_cast<int64_t>(entry.rows.size()) != matrices ||
      static_cast<int64_t>(entry.mean_squares.size()) / entry.cols != matrices ||
      static_cast<int64_t>(entry.mean_squares.size()) % entry.cols != 0)
    return Error::bad_pack("{}: importance of {}: expected values for {}, found {}", path, official_name,
                           sizes_text(entry.experts, entry.cols), entry.mean_squares.size());
  for (size_t index = 0; index < entry.mean_squares.size(); ++index) {
    const float value = entry.mean_squares[index];
    if (!std::isfinite(value) || value < 0)
      return Error::bad_pack("{}: importance of {}: value {} is {}, expected a finite number of at least 0",
                             path, official_name, index, value);
  }
  for (const int64_t rows : entry.rows)
    if (rows < 0)
      return Error::bad_pack("{}: importance of {}: {} rows, expected at least 0", path, official_name, rows);
  const auto [place, is_new] = entries_.emplace(std::move(official_name), std::move(entry));
  if (!is_new) return Error::bad_pack("{}: importance of {} occurs twice", path, place->first);
  return {};
}

}  // namespace fathom
