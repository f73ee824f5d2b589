#include "format/gguf_writer.h"

namespace fathom {
namespace {

constexpr uint32_t kTypeIds = 64;  // above every id of the GGUF type table

std::optional<uint32_t> gguf_id_of(DType type) {
  for (uint32_t id = 0; id < kTypeIds; ++id) {
    if (dtype_from_gguf_id(id) == type) return id;
  }
  return std::nullopt;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment_bytes) : alignment_bytes_(alignment_bytes) {
  if (alignment_bytes != 32) add_u32("general.alignment", alignment_bytes);
}

void GgufWriter::put(const void* data, size_t bytes) { keys_.append(static_cast<const char*>(data), bytes); }

void GgufWriter::put_string(std::string_view text) {
  const uint64_t length = text.size();
  put(&length, sizeof(length));
  put(text.data(), text.size());
}

void GgufWriter::add_key(std::string_view key, GgufType type) {
  put_string(key);
  put(&type, sizeof(type));
  ++key_count_;
}

template <class T>
void GgufWriter::add_array(std::string_view key, GgufType element, const std::vector<T>& values) {
  add_key(key, GgufType::kArray);
  put(&element, sizeof(element));
  const uint64_t count = values.size();
  put(&count, sizeof(count));
  put(values.data(), values.size() * sizeof(T));
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  add_key(key, GgufType::kString);
  put_string(value);
}
void GgufWriter::add_bool(std::string_view key, bool value) {
  add_key(key, GgufType::kBool);
  const uint8_t byte = value ? 1 : 0;
  put(&byte, 1);
}
void GgufWriter::add_f32(std::string_view key, float value) {
  add_key(key, GgufType::kF32);
  put(&value, sizeof(value));
}
void GgufWriter::add_u16(std::string_view key, uint16_t value) {
  add_key(key, GgufType::kU16);
  put(&value, sizeof(value));
}
void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  add_key(key, GgufType::kU32);
  put(&value, sizeof(value));
}
void GgufWriter::add_i32(std::string_view key, int32_t value) {
  add_key(key, GgufType::kI32);
  put(&value, sizeof(value));
}
void GgufWriter::add_strings(std::string_view key, const std::vector<std::string>& values) {
  add_key(key, GgufType::kArray);
  const GgufType element = GgufType::kString;
  put(&element, sizeof(element));
  const uint64_t count = values.size();
  put(&count, sizeof(count));
  for (const std::string& value : values) put_string(value);
}
void GgufWriter::add_f32s(std::string_view key, const std::vector<float>& values) {
  add_array(key, GgufType::kF32, values);
}
void GgufWriter::add_i32s(std::string_view key, const std::vector<int32_t>& values) {
  add_array(key, GgufType::kI32, values);
}
void GgufWriter::add_u32s(std::string_view key, const std::vector<uint32_t>& values) {
  add_array(key, GgufType::kU32, values);
}
void GgufWriter::add_u64s(std::string_view key, const std::vector<uint64_t>& values) {
  add_array(key, GgufType::kU64, values);
}

void GgufWriter::add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape) {
  records_.push_back({.name = std::string(name), .type = type, .shape = shape});
}

Result<std::string> GgufWriter::header(const std::string& where) const {
  GgufWriter out;
  const uint32_t magic_and_version[2] = {0x46554747, 3};
  const uint64_t counts[2] = {records_.size(), key_count_};
  out.put(magic_and_version, sizeof(magic_and_version));
  out.put(counts, sizeof(counts));
  out.keys_ += keys_;
  uint64_t offset = 0;
  for (const Record& record : records_) {
    const std::optional<uint64_t> size = tensor_bytes(record.type, record.shape);
    const std::optional<uint32_t> id = gguf_id_of(record.type);
    if (!size || !id)
      return Error::invalid("{}: tensor {}: {} {} cannot be stored in GGUF", where, record.name,
                            dtype_name(record.type), shape_text(record.shape));
    out.put_string(record.name);
    const uint32_t rank = static_cast<uint32_t>(record.shape.size());
    out.put(&rank, sizeof(rank));
    for (size_t axis = record.shape.size(); axis-- > 0;) out.put(&record.shape[axis], sizeof(int64_t));
    out.put(&*id, sizeof(uint32_t));
    out.put(&offset, sizeof(offset));
    offset += (*size + alignment_bytes_ - 1) / alignment_bytes_ * alignment_bytes_;
  }
  out.keys_.append((alignment_bytes_ - out.keys_.size() % alignment_bytes_) % alignment_bytes_, '\0');
  return std::move(out.keys_);
}

Result<void> GgufWriter::begin(const std::string& path) {
  FATHOM_CHECK(!file_, "begin() twice");
  FATHOM_ASSIGN(const std::string bytes, header(path));
  FATHOM_ASSIGN(FileWriter file, FileWriter::create(path));
  FATHOM_TRY(file.append(std::as_bytes(std::span(bytes))));
  file_.emplace(std::move(file));
  return {};
}

Result<void> GgufWriter::write(std::span<const std::byte> bytes) {
  FATHOM_CHECK(file_ && next_ < records_.size(), "write() without a tensor to write");
  const Record& record = records_[next_];
  const uint64_t size_bytes = tensor_bytes(record.type, record.shape).value_or(0);
  if (bytes.size() != size_bytes)
    return Error::invalid("{}: tensor {}: {} bytes given, expected {}", file_->path(), record.name,
                          bytes.size(), size_bytes);
  FATHOM_TRY(file_->append(bytes));
  FATHOM_TRY(file_->pad_to(alignment_bytes_));
  ++next_;
  return {};
}

Result<void> GgufWriter::finish() {
  FATHOM_CHECK(file_.has_value(), "finish() before begin()");
  if (next_ != records_.size())
    return Error::state("{}: {} of {} tensors were written", file_->path(), next_, records_.size());
  return file_->commit();
}

}  // namespace fathom
