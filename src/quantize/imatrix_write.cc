// The two file formats of importance statistics, written. docs/formats/imatrix.md.
#include <limits>

#include "format/file_writer.h"
#include "format/gguf_writer.h"
#include "model/pack_names.h"
#include "quantize/imatrix.h"

namespace fathom {
namespace {

std::string stored_name(const std::string& official) {
  // Both kinds of GGUF are read with either spelling; this one is what the ds4 tools expect.
  const std::string name = gguf_from_official(official, GgufNames::kDs4);
  return name.empty() ? official : name;
}

Result<void> save_gguf(const ImportanceMatrix& importance, const std::string& path) {
  GgufWriter writer;
  writer.add_string("general.type", "imatrix");
  writer.add_strings("imatrix.datasets", importance.datasets);
  writer.add_u32("imatrix.chunk_count", static_cast<uint32_t>(importance.chunk_count));
  writer.add_u32("imatrix.chunk_size", static_cast<uint32_t>(importance.chunk_tokens));
  for (const auto& [name, entry] : importance.entries()) {
    const auto matrices = static_cast<int64_t>(entry.rows.size());
    writer.add_tensor(stored_name(name) + ".in_sum2", DType::kF32, {matrices, entry.cols});
    writer.add_tensor(stored_name(name) + ".counts", DType::kF32, {matrices, 1});
  }
  FATHOM_TRY(writer.begin(path));
  for (const auto& [name, entry] : importance.entries()) {
    std::vector<float> sums = entry.mean_squares, counts;
    const auto cols = static_cast<size_t>(entry.cols);
    for (size_t matrix = 0; matrix < entry.rows.size(); ++matrix) {
      counts.push_back(static_cast<float>(entry.rows[matrix]));
      for (float& value : std::span(sums).subspan(matrix * cols, cols)) value *= counts.back();
    }
    FATHOM_TRY(writer.write(std::as_bytes(std::span(sums))));
    FATHOM_TRY(writer.write(std::as_bytes(std::span(counts))));
  }
  return writer.finish();
}

class DatWriter {
 public:
  explicit DatWriter(FileWriter& file) : file_(file) {}

  Result<void> number(int64_t value) {
    const auto narrow = static_cast<int32_t>(std::min<int64_t>(value, std::numeric_limits<int32_t>::max()));
    return file_.append(std::as_bytes(std::span(&narrow, 1)));
  }
  Result<void> text(const std::string& text) {
    FATHOM_TRY(number(static_cast<int64_t>(text.size())));
    return file_.append(std::as_bytes(std::span(text)));
  }
  Result<void> floats(const std::vector<float>& values) {
    FATHOM_TRY(number(static_cast<int64_t>(values.size())));
    return file_.append(std::as_bytes(std::span(values)));
  }

 private:
  FileWriter& file_;
};

Result<void> save_dat(const ImportanceMatrix& importance, const std::string& path) {
  FATHOM_ASSIGN(FileWriter file, FileWriter::create(path));
  DatWriter writer(file);
  const int64_t calls = std::max<int64_t>(importance.chunk_count, 1);
  FATHOM_TRY(writer.number(static_cast<int64_t>(importance.entries().size())));
  for (const auto& [name, entry] : importance.entries()) {
    std::vector<float> values = entry.mean_squares;
    const auto cols = static_cast<size_t>(entry.cols);
    for (size_t matrix = 0; matrix < entry.rows.size(); ++matrix)
      for (float& value : std::span(values).subspan(matrix * cols, cols))
        value = entry.rows[matrix] == 0 ? 1.0f : value * static_cast<float>(calls);
    FATHOM_TRY(writer.text(stored_name(name)));
    FATHOM_TRY(writer.number(calls));
    FATHOM_TRY(writer.floats(values));
  }
  FATHOM_TRY(writer.number(importance.chunk_count));
  FATHOM_TRY(writer.text(importance.datasets.empty() ? std::string() : importance.datasets.front()));
  return file.commit();
}

}  // namespace

Result<void> save_importance(const ImportanceMatrix& importance, const std::string& path,
                             ImportanceFormat format) {
  return format == ImportanceFormat::kGguf ? save_gguf(importance, path) : save_dat(importance, path);
}

}  // namespace fathom
