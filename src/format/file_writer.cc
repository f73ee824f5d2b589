#include "format/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace fathom {

FileWriter::FileWriter(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      position_(other.position_) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(position_, other.position_);
  return *this;
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return Error::io("{}: cannot create: {}", temporary, std::strerror(errno));
  return FileWriter(path, std::move(temporary), descriptor);
}

Result<void> FileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Error::io("{}: cannot write: {}", temporary_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    position_ += static_cast<uint64_t>(wrote);
  }
  return {};
}

Result<void> FileWriter::pad_to(uint64_t alignment_bytes) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  uint64_t missing = (alignment_bytes - position_ % alignment_bytes) % alignment_bytes;
  while (missing != 0) {
    const uint64_t piece = std::min<uint64_t>(missing, kZeros.size());
    FATHOM_TRY(append(std::span(kZeros).first(piece)));
    missing -= piece;
  }
  return {};
}

Result<void> FileWriter::commit() {
  if (::fsync(descriptor_) != 0) return Error::io("{}: cannot sync: {}", temporary_, std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return Error::io("{}: cannot rename to {}: {}", temporary_, path_, std::strerror(errno));
  ::close(std::exchange(descriptor_, -1));
  return {};
}

}  // namespace fathom
