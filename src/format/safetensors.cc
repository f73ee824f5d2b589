#include "format/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_depth.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

// The largest header known is 10 MB for the 96,085 tensors of the release in one file.
constexpr uint64_t kHeaderLimitBytes = uint64_t{256} << 20;
constexpr uint64_t kIndexLimitBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxOffset = uint64_t{1} << 62;

// Reads the header as a stream of events: a document tree would hide duplicate names and cost a tree of
// 100,000 objects. Every callback returns false to stop, with `fault` set.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}
  std::string fault;

  bool null() override { return stop("null is not a value of the format"); }
  bool boolean(bool) override { return stop("a boolean is not a value of the format"); }
  bool binary(binary_t&) override { return stop("binary data"); }
  bool number_float(number_float_t, const string_t& text) override {
    return stop("number {}, expected an integer", text);
  }
  bool number_integer(number_integer_t value) override { return stop("negative number {}", value); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_ || (field_ != Field::kShape && field_ != Field::kOffsets))
      return stop("unexpected number {}", value);
    if (value > kMaxOffset) return stop("number {} is too large", value);
    if (field_ == Field::kShape) {
      tensor_.shape.push_back(static_cast<int64_t>(value));
      if (tensor_.shape.size() > 8) return stop("shape has more than 8 dimensions");
    } else {
      if (offset_count_ >= 2) return stop("data_offsets has more than two entries");
      offsets_[offset_count_++] = value;
    }
    return true;
  }

  bool string(string_t& text) override {
    if (in_metadata_) {
      header_.metadata[key_] = text;
      return true;
    }
    if (depth_ != 2 || field_ != Field::kDtype || in_array_) return stop("unexpected string \"{}\"", text);
    tensor_.type_name = text;
    tensor_.type = dtype_from_safetensors(text);
    return true;
  }

  bool start_object(size_t) override {
    if (in_array_ || depth_ >= 2) return stop("unexpected object");
    if (++depth_ == 2) {
      in_metadata_ = key_ == "__metadata__";
      tensor_ = {};
      tensor_.name = key_;
      field_ = Field::kNone;
      offset_count_ = 0;
      seen_ = 0;
    }
    return true;
  }

  bool key(string_t& text) override {
    if (depth_ == 1 || in_metadata_) {
      key_ = text;
      return depth_ != 1 || !key_.empty() || stop("a tensor with an empty name");
    }
    field_ = text == "dtype"          ? Field::kDtype
             : text == "shape"        ? Field::kShape
             : text == "data_offsets" ? Field::kOffsets
                                      : Field::kNone;
    if (field_ == Field::kNone) return stop("unexpected field \"{}\"", text);
    const unsigned bit = 1u << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) return stop("field \"{}\" twice", text);
    seen_ |= bit;
    return true;
  }

  bool end_object() override {
    if (--depth_ != 1) return true;
    if (in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    if (tensor_.type_name.empty()) return stop("no dtype");
    if ((seen_ & (1u << static_cast<unsigned>(Field::kShape))) == 0) return stop("no shape");
    if (offset_count_ != 2) return stop("data_offsets has {} entries, expected two", offset_count_);
    if (offsets_[0] > offsets_[1])
      return stop("data_offsets [{}, {}] are not in order", offsets_[0], offsets_[1]);
    tensor_.offset_bytes = offsets_[0];
    tensor_.size_bytes = offsets_[1] - offsets_[0];
    header_.tensors.push_back(std::move(tensor_));
    return true;
  }

  bool start_array(size_t) override {
    if (in_array_ || depth_ != 2 || (field_ != Field::kShape && field_ != Field::kOffsets))
      return stop("unexpected array");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fault = fmt::format("not valid JSON at byte {}", position);
    return false;
  }

 private:
  enum class Field : unsigned { kNone, kDtype, kShape, kOffsets };

  template <class... Args>
  bool stop(fmt::format_string<Args...> text, Args&&... args) {
    fault = fmt::format(text, std::forward<Args>(args)...);
    if (depth_ == 2)
      fault = fmt::format("{}: {}", in_metadata_ ? "__metadata__" : "tensor " + tensor_.name, fault);
    return false;
  }

  SafetensorsHeader& header_;
  TensorEntry tensor_;
  std::string key_;
  Field field_ = Field::kNone;
  uint64_t offsets_[2] = {};
  size_t offset_count_ = 0;
  unsigned seen_ = 0;
  int depth_ = 0;
  bool in_array_ = false;
  bool in_metadata_ = false;
};

Result<void> check_size(const TensorEntry& tensor, const std::string& where) {
  if (!element_count(tensor.shape))
    return Error::bad_pack("{}: tensor {}: shape {} has too many elements", where, tensor.name,
                           shape_text(tensor.shape));
  if (!tensor.type) return {};
  const std::optional<uint64_t> expected = tensor_bytes(*tensor.type, tensor.shape);
  if (!expected || *expected != tensor.size_bytes)
    return Error::bad_pack("{}: tensor {}: {} {} takes {} bytes, data_offsets give {}", where, tensor.name,
                           tensor.type_name, shape_text(tensor.shape), expected.value_or(0),
                           tensor.size_bytes);
  return {};
}

Result<void> check_names(const std::vector<TensorEntry>& tensors, const std::string& where,
                         Problems* problems) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  for (size_t i = 1; i < names.size(); ++i) {
    if (names[i] == names[i - 1])
      FATHOM_TRY(report_problem(problems, Error::bad_pack("{}: tensor {} is listed twice", where, names[i])));
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, const std::string& where,
                                            Problems* problems) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes))
    return Error::bad_pack("{}: {} bytes, expected a safetensors header of at least 8", where, bytes.size());
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kHeaderLimitBytes || header_bytes > bytes.size() - sizeof(header_bytes))
    return Error::bad_pack("{}: the header claims {} bytes, the file has {}", where, header_bytes,
                           bytes.size());

  SafetensorsHeader header;
  HeaderReader reader(header);
  const char* text = reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes);
  if (!Json::sax_parse(text, text + header_bytes, &reader))
    return Error::bad_pack("{}: header: {}", where, reader.fault);
  FATHOM_TRY(check_names(header.tensors, where, problems));
  for (TensorEntry& tensor : header.tensors) {
    FATHOM_TRY([&]() -> Result<void> {
      const Result<void> checked = check_size(tensor, where);
      return checked.ok() ? Result<void>() : report_problem(problems, checked.error());
    }());
    tensor.offset_bytes += sizeof(header_bytes) + header_bytes;
  }
  FATHOM_TRY(place_tensors(header.tensors, bytes, where, problems));
  return header;
}

namespace {

Result<void> add_file(TensorFiles& store, const std::string& path, Problems* problems) {
  FATHOM_ASSIGN(MappedFile file, MappedFile::open(path));
  FATHOM_ASSIGN(SafetensorsHeader header, parse_safetensors(file.bytes(), path, problems));
  append_file(store, std::move(file), std::move(header.tensors));
  return {};
}

struct ShardIndex {
  std::vector<std::pair<std::string, std::string>> weights;  // tensor, file
  std::set<std::string> files;
};

Result<ShardIndex> read_index(const std::string& path) {
  FATHOM_ASSIGN(const std::string text, read_text_file(path, kIndexLimitBytes));
  if (json_is_deeper_than(text, kPackJsonDepthMax))
    return Error::bad_pack("{}: nested deeper than {} levels", path, kPackJsonDepthMax);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return Error::bad_pack("{}: not a JSON object", path);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return Error::bad_pack("{}: no weight_map object", path);
  ShardIndex index;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) return Error::bad_pack("{}: weight_map.{}: expected a file name", path, name);
    const std::string shard = file.get<std::string>();
    // A name with a separator could lead out of the pack's folder.
    if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of("/\\") != std::string::npos ||
        shard.find('\0') != std::string::npos)
      return Error::bad_pack("{}: weight_map.{}: \"{}\" is not a plain file name", path, name, shard);
    index.weights.emplace_back(name, shard);
    index.files.insert(shard);
  }
  if (index.files.empty()) return Error::bad_pack("{}: weight_map is empty", path);
  return index;
}

Result<TensorFiles> open_index(const std::string& path, Problems* problems) {
  FATHOM_ASSIGN(const ShardIndex index, read_index(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  TensorFiles store;
  std::map<std::string, int> numbers;
  for (const std::string& shard : index.files) {
    const std::string shard_path = (folder / shard).string();
    if (!file_exists(shard_path)) {
      FATHOM_TRY(report_problem(problems, Error::not_found("{}: missing shard {}", path, shard)));
      continue;
    }
    FATHOM_TRY(add_file(store, shard_path, problems));
    numbers[shard] = static_cast<int>(store.files.size()) - 1;
  }
  FATHOM_TRY(index_tensors(store, problems));
  for (const auto& [name, shard] : index.weights) {
    const auto number = numbers.find(shard);
    if (number == numbers.end()) continue;
    const TensorEntry* tensor = store.find(name);
    if (tensor != nullptr && tensor->file == number->second) continue;
    FATHOM_TRY(report_problem(problems, Error::bad_pack("{}: tensor {} is not in {}", path, name, shard)));
  }
  return store;
}

Result<std::string> find_in_folder(const std::string& path) {
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    std::string candidate = (std::filesystem::path(path) / name).string();
    if (file_exists(candidate)) return candidate;
  }
  std::error_code code;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(path, code), end; !code && entry != end;
       entry.increment(code)) {
    if (entry->path().extension() == ".safetensors") found.push_back(entry->path().string());
  }
  if (code) return Error::io("{}: cannot list the folder: {}", path, code.message());
  if (found.size() == 1) return found[0];
  if (found.empty()) return Error::not_found("{}: no .safetensors file in the folder", path);
  return Error::not_found("{}: {} .safetensors files but no model.safetensors.index.json", path,
                          found.size());
}

}  // namespace

Result<TensorFiles> open_safetensors(const std::string& path, Problems* problems) {
  FATHOM_ASSIGN(const FileInfo info, file_info(path));
  std::string file = path;
  if (info.is_directory) {
    FATHOM_ASSIGN(file, find_in_folder(path));
  }
  if (file.ends_with(".json")) return open_index(file, problems);
  TensorFiles store;
  FATHOM_TRY(add_file(store, file, problems));
  FATHOM_TRY(index_tensors(store, problems));
  return store;
}

Result<void> add_safetensors_file(TensorFiles& store, const std::string& path, Problems* problems) {
  FATHOM_TRY(add_file(store, path, problems));
  return index_tensors(store, problems);
}

}  // namespace fathom
