// What both containers give: named tensors as views into mapped files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace fathom {

/// Faults collected by a lenient open. A null pointer to it means: stop at the first fault.
using Problems = std::vector<std::string>;

/// Stops with `error`, or notes it and goes on.
inline Result<void> report_problem(Problems* problems, Error error) {
  if (problems == nullptr) return error;
  problems->push_back(std::move(error.message));
  return {};
}

struct TensorEntry {
  std::string name;
  std::optional<DType> type;        // nothing for a type this build does not read
  std::string type_name;            // the container's own name of the type
  std::vector<int64_t> shape;       // row-major, outermost first (GGUF dims reversed)
  int file = 0;                     // index into TensorFiles::files
  uint64_t offset_bytes = 0;        // absolute in the file
  uint64_t size_bytes = 0;          // 0 where the type is unknown and the container does not say
  const std::byte* data = nullptr;  // view into the map; null only after a lenient open of a broken file
};

/// Open files and the tensors in them. Views live as long as the object; moving it keeps them.
struct TensorFiles {
  std::vector<MappedFile> files;
  std::vector<TensorEntry> tensors;
  std::unordered_map<std::string_view, size_t> index;  // keys are views of tensors[i].name

  const TensorEntry* find(std::string_view name) const {
    const auto found = index.find(name);
    return found == index.end() ? nullptr : &tensors[found->second];
  }
};

/// Product of `shape`; nothing when it is negative somewhere or does not fit 63 bits.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape);

/// Bytes of a tensor of `type`; nothing on overflow or when the innermost dimension is not whole blocks.
std::optional<uint64_t> tensor_bytes(DType type, const std::vector<int64_t>& shape);

/// "[384, 5120]".
std::string shape_text(const std::vector<int64_t>& shape);

/// Checks one file's tensors: each inside the file, none overlapping another. Tensors of a broken extent
/// get no data; the others get their views. `bytes` is the whole file.
Result<void> place_tensors(std::vector<TensorEntry>& tensors, std::span<const std::byte> bytes,
                           const std::string& where, Problems* problems);

/// Appends one file and its tensors, which become `files.back()`; duplicates of names already present are
/// faults. Does not update `index`: call index_tensors once everything is added.
void append_file(TensorFiles& store, MappedFile file, std::vector<TensorEntry> tensors);
Result<void> index_tensors(TensorFiles& store, Problems* problems);

/// "sparse: N of M bytes are allocated", or empty for a file whose bytes are all there. A sparse copy reads
/// as zeros where a table was left out.
std::string describe_sparseness(const FileInfo& info);

}  // namespace fathom
