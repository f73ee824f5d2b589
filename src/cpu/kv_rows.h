// Decoding of cache rows with the kernels.
#pragma once

#include "cpu/context.h"

namespace fathom::cpu {

/// Row `in` of a cache as float32. Equal to decode_kv_row.
void decode_cache_row(const Kernels& kernels, KvFormat format, const std::byte* in, int64_t width,
                      float* out);

}  // namespace fathom::cpu
