#include "cpu/kv_rows.h"

#include <cstring>

namespace fathom::cpu {

void decode_cache_row(const Kernels& kernels, KvFormat format, const std::byte* in, int64_t width,
                      float* out) {
  const uint8_t* packed = reinterpret_cast<const uint8_t*>(in);
  switch (format) {
    case KvFormat::kF32: std::memcpy(out, in, static_cast<size_t>(width) * sizeof(float)); return;
    case KvFormat::kFp8Group32: return kernels.decode_q8(packed, out, width);
    case KvFormat::kFp4Group32: return kernels.decode_q4k(packed, out, width);
    case KvFormat::kFp4Group16: return kernels.decode_q4c(packed, out, width);
  }
}

}  // namespace fathom::cpu
