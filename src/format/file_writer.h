// A file written in order under a temporary name and renamed at the end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace fathom {

/// Until commit() succeeds `path` is untouched; a writer destroyed before leaves nothing behind.
class FileWriter {
 public:
  static Result<FileWriter> create(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  Result<void> append(std::span<const std::byte> bytes);
  /// Appends zeros up to a multiple of `alignment_bytes`.
  Result<void> pad_to(uint64_t alignment_bytes);
  Result<void> commit();
  uint64_t position() const { return position_; }
  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, std::string temporary, int descriptor);
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  uint64_t position_ = 0;
};

}  // namespace fathom
