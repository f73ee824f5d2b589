// Files: read-only maps, positioned reads, and writes that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

/// A whole file mapped read-only. Movable, not copyable; views into bytes() live as long as it.
/// Safe to read from any thread. Pages come from the page cache on first touch.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A file read by position (pread). read_at() may be called from any thread at once.
class RandomAccessFile {
 public:
  static Result<RandomAccessFile> open(const std::string& path);
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  /// Fills `out` from `offset_bytes`; a short file is an error naming path, offset and length.
  Result<void> read_at(uint64_t offset_bytes, std::span<std::byte> out) const;
  /// Tells the system that reads will be scattered, so read-ahead is of no use.
  void advise_random() const;
  uint64_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }

 private:
  RandomAccessFile(std::string path, int descriptor, uint64_t size_bytes);
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_bytes_ = 0;
};

struct FileInfo {
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // less than size_bytes for a sparse file
  bool is_directory = false;
};
Result<FileInfo> file_info(const std::string& path);
bool file_exists(const std::string& path);

/// Reads a small text file whole; refuses files above `limit_bytes`.
Result<std::string> read_text_file(const std::string& path, uint64_t limit_bytes);

/// Writes `parts` one after the other to a temporary name beside `path`, syncs, and renames. On failure
/// nothing is left behind and an existing `path` is untouched. A process that is killed leaves the temporary
/// file: PATH.tmp-PID-NUMBER. `mode`: the new file's permissions, less the umask.
Result<void> write_file_atomically(const std::string& path,
                                   std::span<const std::span<const std::byte>> parts, uint32_t mode = 0644);

}  // namespace fathom
