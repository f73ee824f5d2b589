// The three quantisers of activations and caches. docs/formats/blocks.md, "Activation and cache rows", holds
// their definition; they round to nearest, ties to even, and work on any finite float32.
//
// A packed row is all codes, then all scales. `count` is a multiple of the group. decode(encode(x)) equals
// fake_quantize(x) to the bit, including the sign of zeros. `in` and `out` may be the same array. A value
// whose nearest grid point is 2^128 becomes infinite (only above 2^127.8). Any thread may call.
#pragma once

#include <cstdint>

namespace fathom {

// Q8: e4m3 codes, one E8M0 scale for 32. Inputs of FP8 and FP4 matrices; rows of the attention window.
constexpr int kQ8Group = 32;
constexpr int64_t q8_row_bytes(int64_t count) { return count + count / kQ8Group; }
void fake_quantize_q8(const float* in, float* out, int64_t count);
void encode_q8_row(const float* in, uint8_t* packed, int64_t count);
void decode_q8_row(const uint8_t* packed, float* out, int64_t count);

// Q4k: e2m1 codes, even element in the low nibble, one E8M0 scale for 32. Index keys and queries.
constexpr int kQ4kGroup = 32;
constexpr int64_t q4k_row_bytes(int64_t count) { return count / 2 + count / kQ4kGroup; }
void fake_quantize_q4k(const float* in, float* out, int64_t count);
void encode_q4k_row(const float* in, uint8_t* packed, int64_t count);
void decode_q4k_row(const uint8_t* packed, float* out, int64_t count);

// Q4c: e2m1 codes as above, one e4m3 scale for 16. Compressed key-value rows.
constexpr int kQ4cGroup = 16;
constexpr int64_t q4c_row_bytes(int64_t count) { return count / 2 + count / kQ4cGroup; }
void fake_quantize_q4c(const float* in, float* out, int64_t count);
void encode_q4c_row(const float* in, uint8_t* packed, int64_t count);
void decode_q4c_row(const uint8_t* packed, float* out, int64_t count);

}  // namespace fathom
