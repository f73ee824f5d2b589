// How results are rounded and how rows of the caches are stored.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fathom {

enum class Numerics : uint8_t { kOfficial, kExact };

/// How a row of a cache is stored. Rows of all but kF32 start with the element codes, then the scales.
enum class KvFormat : uint8_t {
  kF32,
  kFp8Group32,  // window rows: e4m3 codes, E8M0 a group of 32
  kFp4Group32,  // index keys: e2m1 codes, E8M0 a group of 32
  kFp4Group16,  // compressed rows: e2m1 codes, e4m3 a group of 16
};
int64_t kv_row_bytes(KvFormat format, int64_t width);

}  // namespace fathom
