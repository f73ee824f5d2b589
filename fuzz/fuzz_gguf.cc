// Any bytes as a GGUF: parsing must end in a result or an error, every view must lie inside, and every getter
// must answer for every key.
#include <cstdlib>

#include "format/gguf.h"

namespace {

void ask_every_getter(const fathom::GgufKeys& keys) {
  size_t letters = 0;
  for (const auto& [key, value] : keys.all()) {
    (void)keys.boolean(key);
    (void)keys.integer(key, 0, 100);
    (void)keys.number(key);
    (void)keys.integers(key);
    (void)keys.numbers(key);
    if (const auto text = keys.string(key); text.ok()) letters += text->size();
    if (const auto list = keys.strings(key); list.ok()) {
      for (const std::string_view text : *list) letters += text.size();
    }
  }
  [[maybe_unused]] static volatile size_t sink;
  sink = letters;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  Problems problems;
  for (Problems* collect : {static_cast<Problems*>(nullptr), &problems}) {
    const auto header = parse_gguf(bytes, "input", collect);
    if (!header.ok()) continue;
    ask_every_getter(header->keys);
    for (const TensorEntry& tensor : header->tensors) {
      if (tensor.data == nullptr && collect != nullptr) continue;
      if (tensor.data < bytes.data() || tensor.size_bytes > size ||
          static_cast<size_t>(tensor.data - bytes.data()) > size - tensor.size_bytes)
        std::abort();
    }
  }
  return 0;
}
