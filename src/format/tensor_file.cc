#include "format/tensor_file.h"

#include <algorithm>
#include <limits>

namespace fathom {

std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool zero = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      zero = true;
    } else if (__builtin_mul_overflow(count, size, &count)) {
      return std::nullopt;
    }
  }
  return zero ? 0 : count;
}

std::optional<uint64_t> tensor_bytes(DType type, const std::vector<int64_t>& shape) {
  const DTypeInfo& info = dtype_info(type);
  const std::optional<int64_t> count = element_count(shape);
  if (!count || info.block_elements <= 0) return std::nullopt;
  const int64_t innermost = shape.empty() ? 1 : shape.back();
  if (innermost % info.block_elements != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*count / info.block_elements, int64_t{info.block_bytes}, &bytes))
    return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis != 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

Result<void> place_tensors(std::vector<TensorEntry>& tensors, std::span<const std::byte> bytes,
                           const std::string& where, Problems* problems) {
  std::vector<TensorEntry*> placed;
  placed.reserve(tensors.size());
  for (TensorEntry& tensor : tensors) {
    uint64_t end = 0;
    const bool overflow = __builtin_add_overflow(tensor.offset_bytes, tensor.size_bytes, &end);
    if (overflow || end > bytes.size()) {
      FATHOM_TRY(report_problem(
          problems,
          Error::bad_pack("{}: truncated: tensor {} ends at byte {}, the file has {} bytes", where,
                          tensor.name, overflow ? std::numeric_limits<uint64_t>::max() : end, bytes.size())));
      continue;
    }
    tensor.data = bytes.data() + tensor.offset_bytes;
    if (tensor.size_bytes != 0) placed.push_back(&tensor);
  }
  std::sort(placed.begin(), placed.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->offset_bytes < b->offset_bytes; });
  for (size_t i = 1; i < placed.size(); ++i) {
    const TensorEntry& before = *placed[i - 1];
    if (before.offset_bytes + before.size_bytes <= placed[i]->offset_bytes) continue;
    FATHOM_TRY(report_problem(
        problems,
        Error::bad_pack("{}: tensors {} and {} overlap: the first ends at byte {}, the second begins at {}",
                        where, before.name, placed[i]->name, before.offset_bytes + before.size_bytes,
                        placed[i]->offset_bytes)));
  }
  return {};
}

void append_file(TensorFiles& store, MappedFile file, std::vector<TensorEntry> tensors) {
  const int number = static_cast<int>(store.files.size());
  store.files.push_back(std::move(file));
  for (TensorEntry& tensor : tensors) {
    tensor.file = number;
    store.tensors.push_back(std::move(tensor));
  }
}

Result<void> index_tensors(TensorFiles& store, Problems* problems) {
  store.index.clear();
  store.index.reserve(store.tensors.size());
  for (size_t i = 0; i < store.tensors.size(); ++i) {
    const TensorEntry& tensor = store.tensors[i];
    const auto [present, added] = store.index.emplace(tensor.name, i);
    if (added) continue;
    FATHOM_TRY(report_problem(
        problems,
        Error::bad_pack("{}: tensor {} is already in {}",
                        store.files[static_cast<size_t>(tensor.file)].path(), tensor.name,
                        store.files[static_cast<size_t>(store.tensors[present->second].file)].path())));
  }
  return {};
}

std::string describe_sparseness(const FileInfo& info) {
  if (info.is_directory || info.allocated_bytes >= info.size_bytes) return {};
  return fmt::format("sparse: {} of {} bytes are allocated", info.allocated_bytes, info.size_bytes);
}

}  // namespace fathom
