#include "ops/kv_format.h"

#include <cstring>

#include "base/check.h"
#include "tensor/quantize.h"

namespace fathom {

int64_t kv_row_bytes(KvFormat format, int64_t width) {
  switch (format) {
    case KvFormat::kF32: return width * 4;
    case KvFormat::kFp8Group32: return q8_row_bytes(width);
    case KvFormat::kFp4Group32: return q4k_row_bytes(width);
    case KvFormat::kFp4Group16: return q4c_row_bytes(width);
  }
  FATHOM_CHECK(false, "cache format {}", static_cast<int>(format));
}

void encode_kv_row(KvFormat format, const float* in, int64_t width, std::byte* out) {
  uint8_t* packed = reinterpret_cast<uint8_t*>(out);
  switch (format) {
    case KvFormat::kF32: std::memcpy(out, in, static_cast<size_t>(width) * 4); return;
    case KvFormat::kFp8Group32: encode_q8_row(in, packed, width); return;
    case KvFormat::kFp4Group32: encode_q4k_row(in, packed, width); return;
    case KvFormat::kFp4Group16: encode_q4c_row(in, packed, width); return;
  }
}

void decode_kv_row(KvFormat format, const std::byte* in, int64_t width, float* out) {
  const uint8_t* packed = reinterpret_cast<const uint8_t*>(in);
  switch (format) {
    case KvFormat::kF32: std::memcpy(out, in, static_cast<size_t>(width) * 4); return;
    case KvFormat::kFp8Group32: decode_q8_row(packed, out, width); return;
    case KvFormat::kFp4Group32: decode_q4k_row(packed, out, width); return;
    case KvFormat::kFp4Group16: decode_q4c_row(packed, out, width); return;
  }
}

void fake_quantize_kv_row(KvFormat format, float* data, int64_t width) {
  switch (format) {
    case KvFormat::kF32: return;
    case KvFormat::kFp8Group32: fake_quantize_q8(data, data, width); return;
    case KvFormat::kFp4Group32: fake_quantize_q4k(data, data, width); return;
    case KvFormat::kFp4Group16: fake_quantize_q4c(data, data, width); return;
  }
}

}  // namespace fathom
