// Memory of a backend, owned.
#pragma once

#include <utility>

#include "base/result.h"
#include "ops/backend.h"

namespace fathom {

/// Releases its memory with itself; the backend must live longer.
class Buffer {
 public:
  Buffer() = default;
  static Result<Buffer> make(Backend& backend, int64_t bytes, std::string_view purpose) {
    Buffer buffer;
    if (bytes == 0) return buffer;
    buffer.data_ = backend.allocate(static_cast<size_t>(bytes));
    if (buffer.data_ == nullptr) return Error::no_memory("cannot allocate {} bytes for {}", bytes, purpose);
    buffer.backend_ = &backend;
    buffer.bytes_ = bytes;
    return buffer;
  }
  Buffer(Buffer&& other) noexcept
      : backend_(std::exchange(other.backend_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) backend_->release(data_);
  }

  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t size_bytes() const { return bytes_; }

 private:
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace fathom
