#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fathom {
namespace {

Error system_error(const char* action, const std::string& path) {
  const int error = errno;
  const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error::make(code, "{}: cannot {}: {}", path, action, std::strerror(error));
}

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

Result<int> open_for_reading(const std::string& path, struct stat& status) {
  // Without O_NONBLOCK opening a pipe would wait for a writer; for regular files it means nothing.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return system_error("open", path);
  if (::fstat(descriptor, &status) != 0) {
    Error error = system_error("stat", path);
    ::close(descriptor);
    return error;
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return Error::invalid("{}: not a regular file", path);
  }
  return descriptor;
}

}  // namespace

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  struct stat status {};
  FATHOM_ASSIGN(const int raw, open_for_reading(path, status));
  const Descriptor descriptor{raw};
  const size_t size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(path, nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.value, 0);
  if (data == MAP_FAILED) return system_error("map", path);
  return MappedFile(path, static_cast<const std::byte*>(data), size);
}

RandomAccessFile::RandomAccessFile(std::string path, int descriptor, uint64_t size_bytes)
    : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<RandomAccessFile> RandomAccessFile::open(const std::string& path) {
  struct stat status {};
  FATHOM_ASSIGN(const int descriptor, open_for_reading(path, status));
  return RandomAccessFile(path, descriptor, static_cast<uint64_t>(status.st_size));
}

Result<void> RandomAccessFile::read_at(uint64_t offset_bytes, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done,
                                static_cast<off_t>(offset_bytes + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read", path_);
    if (got == 0)
      return Error::io("{}: expected {} bytes at offset {}, the file ends after {} of them", path_,
                       out.size(), offset_bytes, done);
    done += static_cast<size_t>(got);
  }
  return {};
}

void RandomAccessFile::advise_random() const {
  (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
}

Result<FileInfo> file_info(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return system_error("stat", path);
  return FileInfo{.size_bytes = static_cast<uint64_t>(status.st_size),
                  .allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512,
                  .is_directory = S_ISDIR(status.st_mode)};
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit_bytes) {
  FATHOM_ASSIGN(const RandomAccessFile file, RandomAccessFile::open(path));
  if (file.size_bytes() > limit_bytes)
    return Error::invalid("{}: {} bytes, expected at most {}", path, file.size_bytes(), limit_bytes);
  std::string text(file.size_bytes(), '\0');
  FATHOM_TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<void> write_file_atomically(const std::string& path,
                                   std::span<const std::span<const std::byte>> parts, uint32_t mode) {
  // Renaming would put a file in the place of a device or a pipe.
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return Error::io("{}: not a regular file", path);
  // Two threads may write the same path: each needs a name of its own.
  static std::atomic<uint32_t> writes{0};
  const std::string temporary = fmt::format("{}.tmp-{}-{}", path, ::getpid(), writes.fetch_add(1));
  Descriptor descriptor{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)};
  if (descriptor.value < 0) return system_error("create", temporary);
  const auto fail = [&](const char* action) {
    Error error = system_error(action, temporary);
    ::unlink(temporary.c_str());
    return error;
  };
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      const ssize_t wrote = ::write(descriptor.value, part.data(), part.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return fail("write");
      part = part.subspan(static_cast<size_t>(wrote));
    }
  }
  if (::fsync(descriptor.value) != 0) return fail("sync");
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail("rename");
  return {};
}

}  // namespace fathom
