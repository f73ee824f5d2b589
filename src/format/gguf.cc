#include "format/gguf.h"

#include <bit>
#include <cstring>
#include <limits>

namespace fathom {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;         // length, type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // length, rank, type, offset

int scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

// A cursor that refuses to leave the file. Every read names what it was after.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what) {
    if (count > remaining())
      return Error::bad_pack("{}: truncated: {} at byte {} needs {} bytes, {} are left", where_, what,
                             position_, count, remaining());
    const std::span<const std::byte> taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  template <class T>
  Result<T> scalar(std::string_view what) {
    FATHOM_ASSIGN(const std::span<const std::byte> taken, take(sizeof(T), what));
    T value;
    std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }
  Result<std::string_view> string(std::string_view what) {
    FATHOM_ASSIGN(const uint64_t length, scalar<uint64_t>(what));
    FATHOM_ASSIGN(const std::span<const std::byte> taken, take(length, what));
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  std::span<const std::byte> since(uint64_t start) const { return bytes_.subspan(start, position_ - start); }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t position_ = 0;
};

Result<GgufType> read_type(Reader& reader, std::string_view key, const std::string& where) {
  FATHOM_ASSIGN(const uint32_t raw, reader.scalar<uint32_t>(key));
  if (raw > static_cast<uint32_t>(GgufType::kF64))
    return Error::bad_pack("{}: key {}: value type {}, expected 0 to 12", where, key, raw);
  return static_cast<GgufType>(raw);
}

Result<GgufValue> read_value(Reader& reader, std::string_view key, const std::string& where) {
  GgufValue value;
  FATHOM_ASSIGN(value.type, read_type(reader, key, where));
  value.element = value.type;
  if (value.type == GgufType::kArray) {
    FATHOM_ASSIGN(value.element, read_type(reader, key, where));
    if (value.element == GgufType::kArray)
      return Error::unsupported("{}: key {}: an array of arrays", where, key);
    FATHOM_ASSIGN(value.count, reader.scalar<uint64_t>(key));
  }
  const uint64_t start = reader.position();
  const uint64_t element_bytes =
      value.element == GgufType::kString ? 8 : static_cast<uint64_t>(scalar_bytes(value.element));
  if (value.count > reader.remaining() / element_bytes)
    return Error::bad_pack("{}: truncated: key {} has {} elements of at least {} bytes, {} bytes are left",
                           where, key, value.count, element_bytes, reader.remaining());
  if (value.element == GgufType::kString) {
    for (uint64_t i = 0; i < value.count; ++i) FATHOM_TRY(reader.string(key));
  } else {
    FATHOM_TRY(reader.take(value.count * element_bytes, key));
  }
  value.bytes = reader.since(start);
  return value;
}

Result<void> read_keys(Reader& reader, uint64_t count, GgufHeader& header, const std::string& where) {
  if (count > reader.remaining() / kMinKeyBytes)
    return Error::bad_pack("{}: {} keys cannot fit the {} bytes that are left", where, count,
                           reader.remaining());
  for (uint64_t i = 0; i < count; ++i) {
    FATHOM_ASSIGN(const std::string_view key, reader.string("a key's name"));
    if (key.empty()) return Error::bad_pack("{}: key {} has an empty name", where, i);
    FATHOM_ASSIGN(const GgufValue value, read_value(reader, key, where));
    if (!header.keys.add(key, value)) return Error::bad_pack("{}: key {} is there twice", where, key);
  }
  return {};
}

Result<TensorEntry> read_record(Reader& reader, const std::string& where) {
  TensorEntry tensor;
  FATHOM_ASSIGN(const std::string_view name, reader.string("a tensor's name"));
  if (name.empty())
    return Error::bad_pack("{}: a tensor with an empty name at byte {}", where, reader.position());
  tensor.name = std::string(name);
  FATHOM_ASSIGN(const uint32_t rank, reader.scalar<uint32_t>(name));
  if (rank > kMaxRank)
    return Error::bad_pack("{}: tensor {}: {} dimensions, expected at most {}", where, name, rank, kMaxRank);
  tensor.shape.resize(rank);
  for (uint32_t axis = 0; axis < rank; ++axis) {
    FATHOM_ASSIGN(const uint64_t size, reader.scalar<uint64_t>(name));
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Error::bad_pack("{}: tensor {}: dimension {} is {}", where, name, axis, size);
    tensor.shape[rank - 1 - axis] = static_cast<int64_t>(size);
  }
  FATHOM_ASSIGN(const uint32_t type, reader.scalar<uint32_t>(name));
  FATHOM_ASSIGN(tensor.offset_bytes, reader.scalar<uint64_t>(name));
  tensor.type = dtype_from_gguf_id(type);
  tensor.type_name = gguf_type_name(type);
  return tensor;
}

// Sizes, alignment and absolute offsets of the records.
Result<void> check_record(TensorEntry& tensor, const GgufHeader& header, const std::string& where) {
  if (tensor.offset_bytes % header.alignment_bytes != 0)
    return Error::bad_pack("{}: tensor {}: offset {} is not a multiple of the alignment {}", where,
                           tensor.name, tensor.offset_bytes, header.alignment_bytes);
  if (__builtin_add_overflow(tensor.offset_bytes, header.data_start_bytes, &tensor.offset_bytes))
    return Error::bad_pack("{}: tensor {}: offset beyond 64 bits", where, tensor.name);
  if (!element_count(tensor.shape))
    return Error::bad_pack("{}: tensor {}: shape {} has too many elements", where, tensor.name,
                           shape_text(tensor.shape));
  if (!tensor.type) return {};
  const std::optional<uint64_t> size = tensor_bytes(*tensor.type, tensor.shape);
  if (!size)
    return Error::bad_pack("{}: tensor {}: rows of {} are not whole blocks of {}", where, tensor.name,
                           shape_text(tensor.shape), tensor.type_name);
  tensor.size_bytes = *size;
  return {};
}

Result<void> read_alignment(GgufHeader& header, const std::string& where) {
  if (!header.keys.has("general.alignment")) return {};
  FATHOM_ASSIGN(const int64_t alignment, header.keys.integer("general.alignment", 1, kMaxAlignment));
  if (!std::has_single_bit(static_cast<uint64_t>(alignment)))
    return Error::bad_pack("{}: general.alignment is {}, expected a power of two", where, alignment);
  header.alignment_bytes = static_cast<uint64_t>(alignment);
  return {};
}

}  // namespace

Result<GgufHeader> parse_gguf(std::span<const std::byte> bytes, const std::string& where,
                              Problems* problems) {
  Reader reader(bytes, where);
  GgufHeader header;
  header.keys = GgufKeys(where);
  FATHOM_ASSIGN(const uint32_t magic, reader.scalar<uint32_t>("the magic"));
  if (magic != kMagic)
    return Error::bad_pack("{}: begins with {:#010x}, expected GGUF ({:#010x})", where, magic, kMagic);
  FATHOM_ASSIGN(header.version, reader.scalar<uint32_t>("the version"));
  if (header.version != 2 && header.version != 3)
    return Error::unsupported("{}: GGUF version {}{}, expected 2 or 3", where, header.version,
                              (header.version & 0xFFFFu) == 0 ? " (big-endian?)" : "");
  FATHOM_ASSIGN(const uint64_t tensor_count, reader.scalar<uint64_t>("the tensor count"));
  FATHOM_ASSIGN(const uint64_t key_count, reader.scalar<uint64_t>("the key count"));
  FATHOM_TRY(read_keys(reader, key_count, header, where));
  FATHOM_TRY(read_alignment(header, where));
  if (tensor_count > reader.remaining() / kMinTensorBytes)
    return Error::bad_pack("{}: {} tensors cannot fit the {} bytes that are left", where, tensor_count,
                           reader.remaining());
  header.tensors.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    FATHOM_ASSIGN(TensorEntry tensor, read_record(reader, where));
    header.tensors.push_back(std::move(tensor));
  }
  const uint64_t mask = header.alignment_bytes - 1;
  header.data_start_bytes = (reader.position() + mask) & ~mask;
  for (TensorEntry& tensor : header.tensors) {
    const Result<void> checked = check_record(tensor, header, where);
    if (!checked.ok()) FATHOM_TRY(report_problem(problems, checked.error()));
  }
  FATHOM_TRY(place_tensors(header.tensors, bytes, where, problems));
  return header;
}

namespace {

// "PREFIX-00001-of-00003.gguf" -> "PREFIX"; empty if the name is not that of shard `number` of `count`.
std::string split_prefix(const std::string& path, int64_t number, int64_t count) {
  const std::string suffix = fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
  return path.ends_with(suffix) ? path.substr(0, path.size() - suffix.size()) : std::string();
}

Result<void> open_shards(const std::string& path, GgufFile& file, Problems* problems) {
  FATHOM_ASSIGN(const int64_t count, file.keys.integer("split.count", 1, 99999));
  if (count == 1) return {};
  FATHOM_ASSIGN(const int64_t first, file.keys.integer("split.no", 0, count - 1));
  if (first != 0)
    return Error::invalid("{}: shard {} of {}; open the first, *-00001-of-{:05}.gguf", path, first + 1, count,
                          count);
  const std::string prefix = split_prefix(path, 0, count);
  if (prefix.empty())
    return Error::bad_pack("{}: split.count is {}, expected the name *-00001-of-{:05}.gguf", path, count,
                           count);
  for (int64_t number = 1; number < count; ++number) {
    const std::string shard = fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number + 1, count);
    if (!file_exists(shard)) {
      FATHOM_TRY(report_problem(problems, Error::not_found("{}: missing shard {}", path, shard)));
      continue;
    }
    FATHOM_ASSIGN(MappedFile mapped, MappedFile::open(shard));
    FATHOM_ASSIGN(GgufHeader header, parse_gguf(mapped.bytes(), shard, problems));
    FATHOM_ASSIGN(const int64_t no, header.keys.integer("split.no", 0, std::numeric_limits<uint16_t>::max()));
    FATHOM_ASSIGN(const int64_t total,
                  header.keys.integer("split.count", 0, std::numeric_limits<uint16_t>::max()));
    if (no != number || total != count)
      FATHOM_TRY(report_problem(problems, Error::bad_pack("{}: split.no {} of {}, expected {} of {}", shard,
                                                          no, total, number, count)));
    append_file(file.store, std::move(mapped), std::move(header.tensors));
  }
  if (!file.keys.has("split.tensors.count")) return {};
  FATHOM_ASSIGN(const int64_t tensors,
                file.keys.integer("split.tensors.count", 0, std::numeric_limits<int64_t>::max()));
  if (static_cast<uint64_t>(tensors) == file.store.tensors.size()) return {};
  return report_problem(problems, Error::bad_pack("{}: split.tensors.count is {}, the shards hold {}", path,
                                                  tensors, file.store.tensors.size()));
}

}  // namespace

Result<GgufFile> open_gguf(const std::string& path, Problems* problems) {
  FATHOM_ASSIGN(MappedFile mapped, MappedFile::open(path));
  FATHOM_ASSIGN(GgufHeader header, parse_gguf(mapped.bytes(), path, problems));
  GgufFile file;
  file.keys = std::move(header.keys);
  append_file(file.store, std::move(mapped), std::move(header.tensors));
  if (file.keys.has("split.count")) FATHOM_TRY(open_shards(path, file, problems));
  FATHOM_TRY(index_tensors(file.store, problems));
  return file;
}

}  // namespace fathom
