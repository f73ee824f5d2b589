// Rows of the caches: encoding, decoding, and the two at once.
#pragma once

#include "ops/ops.h"

namespace fathom {

/// `width` must be a multiple of the format's group. `out` holds kv_row_bytes(format, width) bytes.
void encode_kv_row(KvFormat format, const float* in, int64_t width, std::byte* out);
void decode_kv_row(KvFormat format, const std::byte* in, int64_t width, float* out);
/// Equal to encode then decode, to the bit.
void fake_quantize_kv_row(KvFormat format, float* data, int64_t width);

}  // namespace fathom
