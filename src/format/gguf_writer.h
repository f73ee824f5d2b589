// Writes a GGUF version 3 file: keys, records, then data tensor after tensor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/file_writer.h"
#include "format/gguf.h"
#include "tensor/dtype.h"

namespace fathom {

/// Order of calls: add_* in any order, begin(), write() once a tensor in the order they were added, finish().
/// A key added twice is written twice; readers refuse that.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t alignment_bytes = 32);

  void add_string(std::string_view key, std::string_view value);
  void add_bool(std::string_view key, bool value);
  void add_f32(std::string_view key, float value);
  void add_u16(std::string_view key, uint16_t value);
  void add_u32(std::string_view key, uint32_t value);
  void add_i32(std::string_view key, int32_t value);
  void add_strings(std::string_view key, const std::vector<std::string>& values);
  void add_f32s(std::string_view key, const std::vector<float>& values);
  void add_i32s(std::string_view key, const std::vector<int32_t>& values);
  void add_u32s(std::string_view key, const std::vector<uint32_t>& values);
  void add_u64s(std::string_view key, const std::vector<uint64_t>& values);
  /// `shape` outermost first, as in TensorEntry.
  void add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape);

  /// Keys and records up to where data begins, for who writes data at its place: each tensor begins at a
  /// multiple of the alignment behind the one before it. `where` names the file in errors.
  Result<std::string> header(const std::string& where) const;

  Result<void> begin(const std::string& path);
  /// The whole bytes of the next tensor.
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> finish();

 private:
  struct Record {
    std::string name;
    DType type;
    std::vector<int64_t> shape;
  };
  void add_key(std::string_view key, GgufType type);
  template <class T>
  void add_array(std::string_view key, GgufType element, const std::vector<T>& values);
  void put(const void* data, size_t bytes);
  void put_string(std::string_view text);

  uint64_t alignment_bytes_;
  uint64_t key_count_ = 0;
  std::string keys_;
  std::vector<Record> records_;
  size_t next_ = 0;
  std::optional<FileWriter> file_;
};

}  // namespace fathom
