// GGUF version 2 and 3: a header of typed keys, tensor records, aligned data; one file or a split set.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "format/tensor_file.h"

namespace fathom {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};
std::string_view gguf_value_type_name(GgufType type);

/// A value as it lies in the file: nothing is copied, so a list of 129,280 tokens costs no memory.
struct GgufValue {
  GgufType type = GgufType::kU8;     // kArray: see element
  GgufType element = GgufType::kU8;  // element type of an array
  uint64_t count = 1;                // elements of an array
  std::span<const std::byte> bytes;  // the value, or the elements one after the other (strings with lengths)
};

/// Keys of a GGUF, by name. Views live as long as the bytes they were parsed from. The getters' errors name
/// key, expected and found type; a missing key is kNotFound. `where` in errors is the file's path.
class GgufKeys {
 public:
  explicit GgufKeys(std::string where = {}) : where_(std::move(where)) {}
  /// False if the key is already there.
  bool add(std::string_view key, GgufValue value) { return values_.emplace(key, value).second; }

  bool has(std::string_view key) const { return values_.contains(key); }
  const GgufValue* find(std::string_view key) const;
  const std::unordered_map<std::string_view, GgufValue>& all() const { return values_; }
  const std::string& where() const { return where_; }

  Result<std::string_view> string(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  /// Any integer type that holds a value in [low, high].
  Result<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  /// F32, F64 or any integer.
  Result<double> number(std::string_view key) const;
  /// Arrays of any integer type, of F32/F64 or integers, of strings.
  Result<std::vector<int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> numbers(std::string_view key) const;
  Result<std::vector<std::string_view>> strings(std::string_view key) const;

 private:
  Result<const GgufValue*> value(std::string_view key) const;
  Result<const GgufValue*> array(std::string_view key, std::string_view expected) const;
  Error mismatch(std::string_view key, std::string_view expected, const GgufValue& found) const;

  std::string where_;
  std::unordered_map<std::string_view, GgufValue> values_;
};

struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment_bytes = 32;
  uint64_t data_start_bytes = 0;
  GgufKeys keys;
  std::vector<TensorEntry> tensors;  // placed in the bytes they were parsed from
};

/// Parses and checks one file given as bytes. Only header and records are read.
Result<GgufHeader> parse_gguf(std::span<const std::byte> bytes, const std::string& where,
                              Problems* problems = nullptr);

/// An open GGUF. `keys` are those of the first shard.
struct GgufFile {
  TensorFiles store;
  GgufKeys keys;
};

/// Opens a .gguf; of a split set (PREFIX-00001-of-00003.gguf) the first shard, the others are found beside
/// it.
Result<GgufFile> open_gguf(const std::string& path, Problems* problems = nullptr);

}  // namespace fathom
