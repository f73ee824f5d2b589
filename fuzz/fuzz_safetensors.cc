// Any bytes as a safetensors file: parsing must end in a result or an error, and every view must lie inside.
#include <cstdlib>

#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto inside = [&](const TensorEntry& tensor) {
    return tensor.data == nullptr ||
           (tensor.data >= bytes.data() && tensor.size_bytes <= size &&
            static_cast<size_t>(tensor.data - bytes.data()) <= size - tensor.size_bytes);
  };
  if (const auto header = parse_safetensors(bytes, "input"); header.ok()) {
    for (const TensorEntry& tensor : header->tensors) {
      if (tensor.data == nullptr || !inside(tensor)) std::abort();
    }
  }
  Problems problems;
  if (const auto header = parse_safetensors(bytes, "input", &problems); header.ok()) {
    for (const TensorEntry& tensor : header->tensors) {
      if (!inside(tensor)) std::abort();
    }
  }
  return 0;
}
