// The two file formats of importance statistics, read. docs/formats/imatrix.md.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/file.h"
#include "format/gguf.h"
#include "model/pack_names.h"
#include "quantize/imatrix.h"

namespace fathom {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

// A name that maps to nothing stays as it is: check_fits() then names it.
std::string official_name(std::string_view name) {
  std::string official = official_from_gguf(name);
  return official.empty() ? std::string(name) : official;
}

bool is_bank(std::string_view name) { return name.find(".ffn.experts.") != std::string_view::npos; }

// ---- GGUF ----

Result<std::vector<float>> floats_of(const TensorEntry& tensor, const std::string& path) {
  if (tensor.type != DType::kF32)
    return Error::bad_pack("{}: tensor {}: expected F32, found {}", path, tensor.name, tensor.type_name);
  std::vector<float> values(tensor.size_bytes / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
  return values;
}

// Sums and counts of one tensor -> means.
Result<void> add_gguf_entry(const GgufFile& file, const TensorEntry& sums, ImportanceMatrix& importance) {
  const std::string& path = importance.path;
  const std::string name = sums.name.substr(0, sums.name.size() - kSums.size());
  const TensorEntry* counts = file.store.find(fmt::format("{}{}", name, kCounts));
  if (counts == nullptr)
    return Error::bad_pack("{}: tensor {} has no {}{} beside it", path, sums.name, name, kCounts);
  FATHOM_ASSIGN(std::vector<float> values, floats_of(sums, path));
  FATHOM_ASSIGN(const std::vector<float> seen, floats_of(*counts, path));
  if (seen.empty() || values.empty() || values.size() % seen.size() != 0)
    return Error::bad_pack("{}: tensor {}: expected a row for each of {} counts, found {} values", path,
                           sums.name, seen.size(), values.size());
  const std::string official = official_name(name);
  ImportanceEntry entry;
  entry.experts = is_bank(official) ? static_cast<int64_t>(seen.size()) : 0;
  entry.cols = static_cast<int64_t>(values.size() / seen.size());
  for (size_t matrix = 0; matrix < seen.size(); ++matrix) {
    const float count = seen[matrix];
    if (!std::isfinite(count) || count < 0 || count > 0x1p53f)
      return Error::bad_pack("{}: tensor {}: count {} is {}, expected a number of rows", path, counts->name,
                             matrix, count);
    entry.rows.push_back(static_cast<int64_t>(std::ceil(count)));
    const auto cols = static_cast<size_t>(entry.cols);
    for (float& value : std::span(values).subspan(matrix * cols, cols)) value = count > 0 ? value / count : 0;
  }
  entry.mean_squares = std::move(values);
  return importance.add(official, std::move(entry));
}

Result<ImportanceMatrix> read_gguf(const std::string& path) {
  FATHOM_ASSIGN(const GgufFile file, open_gguf(path));
  ImportanceMatrix importance;
  importance.path = path;
  FATHOM_ASSIGN(const std::string_view type, file.keys.string("general.type"));
  if (type != "imatrix")
    return Error::bad_pack("{}: general.type is \"{}\", expected \"imatrix\"", path, type);
  constexpr int64_t kMost = int64_t{1} << 40;
  if (file.keys.has("imatrix.datasets")) {
    FATHOM_ASSIGN(const auto names, file.keys.strings("imatrix.datasets"));
    importance.datasets.assign(names.begin(), names.end());
  }
  if (file.keys.has("imatrix.chunk_count")) {
    FATHOM_ASSIGN(importance.chunk_count, file.keys.integer("imatrix.chunk_count", 0, kMost));
  }
  if (file.keys.has("imatrix.chunk_size")) {
    FATHOM_ASSIGN(importance.chunk_tokens, file.keys.integer("imatrix.chunk_size", 0, kMost));
  }
  for (const TensorEntry& tensor : file.store.tensors) {
    if (tensor.name.ends_with(kCounts)) continue;
    if (!tensor.name.ends_with(kSums))
      return Error::bad_pack("{}: tensor {}: expected names that end in {} or {}", path, tensor.name, kSums,
                             kCounts);
    FATHOM_TRY(add_gguf_entry(file, tensor, importance));
  }
  return importance;
}

// ---- .dat ----

class DatReader {
 public:
  DatReader(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  bool at_end() const { return position_ == bytes_.size(); }

  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what) {
    if (count > bytes_.size() - position_)
      return Error::bad_pack("{}: truncated: {} at byte {} needs {} bytes, {} are left", path_, what,
                             position_, count, bytes_.size() - position_);
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  Result<int32_t> number(std::string_view what, int32_t low, int32_t high) {
    FATHOM_ASSIGN(const auto taken, take(sizeof(int32_t), what));
    int32_t value;
    std::memcpy(&value, taken.data(), sizeof value);
    if (value < low || value > high)
      return Error::bad_pack("{}: {} at byte {} is {}, expected {} to {}", path_, what,
                             position_ - sizeof value, value, low, high);
    return value;
  }
  Result<std::string> text(std::string_view what) {
    FATHOM_ASSIGN(const int32_t length, number(what, 0, 1 << 16));
    FATHOM_ASSIGN(const auto taken, take(static_cast<uint64_t>(length), what));
    return std::string(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t position_ = 0;
};

// The format knows neither experts nor counts of rows: the model's shape says how many experts a tensor has,
// and one that was never chosen has ones.
Result<void> add_dat_entry(DatReader& reader, const ModelConfig& config, ImportanceMatrix& importance) {
  FATHOM_ASSIGN(const std::string name, reader.text("a tensor's name"));
  FATHOM_ASSIGN(const int32_t calls, reader.number(name, 1, INT32_MAX));
  FATHOM_ASSIGN(const int32_t count, reader.number(name, 1, INT32_MAX));
  FATHOM_ASSIGN(const auto bytes, reader.take(static_cast<uint64_t>(count) * sizeof(float), name));
  std::vector<float> values(static_cast<size_t>(count));
  std::memcpy(values.data(), bytes.data(), bytes.size());

  const std::string official = official_name(name);
  ImportanceEntry entry;
  if (is_bank(official))
    entry.experts = official.starts_with("mtp.") ? config.draft.routed_experts : config.routed_experts;
  const int64_t matrices = std::max<int64_t>(entry.experts, 1);
  if (count % matrices != 0)
    return Error::bad_pack(
        "{}: importance of {}: expected values for {} experts, found {}: it is another "
        "model's",
        importance.path, official, matrices, count);
  entry.cols = count / matrices;
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    const auto columns =
        std::span(values).subspan(static_cast<size_t>(matrix * entry.cols), static_cast<size_t>(entry.cols));
    const bool seen = std::any_of(columns.begin(), columns.end(), [](float x) { return x != 1.0f; });
    entry.rows.push_back(seen ? calls : 0);
    for (float& value : columns) value /= static_cast<float>(calls);
  }
  entry.mean_squares = std::move(values);
  return importance.add(official, std::move(entry));
}

Result<ImportanceMatrix> read_dat(const MappedFile& file, const ModelConfig& config) {
  ImportanceMatrix importance;
  importance.path = file.path();
  DatReader reader(file.bytes(), importance.path);
  FATHOM_ASSIGN(const int32_t entries, reader.number("the number of entries", 0, 1 << 24));
  for (int32_t entry = 0; entry < entries; ++entry) FATHOM_TRY(add_dat_entry(reader, config, importance));
  if (reader.at_end()) return importance;  // the oldest writers stop here
  FATHOM_ASSIGN(importance.chunk_count, reader.number("the last chunk", 0, INT32_MAX));
  FATHOM_ASSIGN(std::string dataset, reader.text("the dataset's name"));
  if (!dataset.empty()) importance.datasets.push_back(std::move(dataset));
  if (!reader.at_end()) return Error::bad_pack("{}: bytes follow the last entry", importance.path);
  return importance;
}

Result<ImportanceMatrix> read_either(const std::string& path, const ModelConfig& config) {
  FATHOM_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) return read_gguf(path);
  return read_dat(file, config);
}

}  // namespace

Result<ImportanceMatrix> load_importance(const std::string& path, const ModelConfig& config) {
  FATHOM_ASSIGN(ImportanceMatrix importance, read_either(path, config));
  if (importance.entries().empty()) return Error::bad_pack("{}: it holds no importance of any tensor", path);
  FATHOM_TRY(importance.check_fits(config));
  return importance;
}

}  // namespace fathom
