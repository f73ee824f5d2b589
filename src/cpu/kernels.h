// The inner loops that need vector instructions: one table of functions for each instruction set.
//
// Kernel-safe: plain structs and declarations only, so that files compiled with instruction set flags may
// include it (docs/rooms.md). The bodies are in cpu/generic/, written once over a small vector vocabulary;
// avx2/, avx512/ and portable.cc each compile them with theirs.
//
// Order of summation. Every dot product is one accumulator of the vector's lanes that walks the columns in
// order with fused multiply-adds (portable: multiply, then add), then one fixed tree over the lanes. A tile
// runs several accumulators side by side and never splits one. So a result depends on its row and its
// weights, not on how many rows or threads there are; it differs between instruction sets.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace fathom::cpu {

// Encodings that the kernels read directly; every other one is decoded by tensor/weight.h first.
enum Encoding {
  kEncodingF32,
  kEncodingF16,
  kEncodingBf16,
  kEncodingFp8,    // e4m3, E8M0 for 32 columns. NaN codes read as +-480: a pack with them is broken
  kEncodingFp4,    // e2m1 pairs, even column low, E8M0 for 32 columns
  kEncodingMxfp4,  // 17-byte blocks: E8M0, then 16 bytes, column c low and column 16 + c high
  kEncodingQ8_0,   // 34-byte blocks: f16 scale, then 32 signed bytes
  kEncodingQ2K,    // GGUF blocks of 256 columns, as in tensor/formats/k_quants.h
  kEncodingQ4K,
};

struct EncodedMatrix {
  enum Encoding encoding;
  const uint8_t* data;  // row r at data + r * row_bytes
  int64_t row_bytes;
  const uint8_t* scales;  // scales of row r at scales + (r >> scale_row_shift) * scale_row_bytes
  int64_t scale_row_bytes;
  int scale_row_shift;
  int64_t cols;
};

// Activation rows and where their results go: result of weight row w and row m at out[m][w].
struct DotRows {
  const float* const* in;  // [rows] each [cols]
  float* const* out;       // [rows]
  int64_t rows;
};

// Decoded weight rows. Columns [cols, stride) of a row are zero; stride is at least cols rounded up to 32.
struct Panel {
  const float* data;  // [rows, stride]
  int64_t rows;
  int64_t stride;
  int64_t cols;
};

struct Kernels {
  const char* name;
  // Most activation rows for which dot_encoded beats decoding to a panel.
  int fused_rows;

  // Decodes `count` rows to a panel, zeros in [cols, stride) included.
  void (*decode)(const struct EncodedMatrix* matrix, int64_t row, int64_t count, float* panel,
                 int64_t stride);
  // The same results to the bit, without and with a panel in between.
  void (*dot_encoded)(const struct EncodedMatrix* matrix, int64_t row, int64_t count,
                      const struct DotRows* rows);
  void (*dot_panel)(const struct Panel* panel, const struct DotRows* rows);

  // Cache rows: codes, then scales (tensor/quantize.h). width is a multiple of 32, for q4c of 16.
  void (*decode_q8)(const uint8_t* packed, float* out, int64_t width);
  void (*decode_q4k)(const uint8_t* packed, float* out, int64_t width);
  void (*decode_q4c)(const uint8_t* packed, float* out, int64_t width);
  // Equal to fake_quantize_q8 to the bit. width is a multiple of 32.
  void (*fake_quantize_q8)(const float* in, float* out, int64_t width);

  void (*round_to_bf16)(float* data, int64_t count);
  float (*sum_of_squares)(const float* in, int64_t count);
  // Sum of a * b * c.
  float (*dot3)(const float* a, const float* b, const float* c, int64_t count);
  // out = weight * (in * factor)
  void (*scale_by)(const float* in, const float* weight, float factor, float* out, int64_t count);
  // out = sum over j of factors[j] * in[j * count ...], in order of j, without fused multiply-adds.
  void (*mix)(const float* in, const float* factors, int terms, float* out, int64_t count);
  // streams[k] = post[k] * in + sum over j of comb[j * n + k] * streams[j]; n <= 8.
  void (*mix_back)(const float* in, const float* post, const float* comb, int n, float* streams,
                   int64_t count);
  // x += factor * value
  void (*add_scaled)(float* x, float factor, const float* value, int64_t count);
  // a = factor * (silu(min(gate, limit)) * clamp(up, -limit, limit)), in `gate`.
  void (*gated_product)(float* gate, const float* up, float factor, float limit, int64_t count);

  // One block of the running softmax of one head. `scores` [64], -inf in absent places, become
  // exp(score * scale - maximum), rounded to bfloat16 if `is_rounded`; `denominator` sums the unrounded ones.
  // Updates `maximum` and returns the factor for what was summed before. exp is at most 2 units in the last
  // place off, and the same code for every place.
  float (*softmax_block)(float* scores, float scale, int is_rounded, float* maximum, float* denominator);
  // sum[h] = sum[h] * correction[h] + sum over i of weights[h * 64 + i] * values[i * value_stride ...],
  // i in [0, count) in order; sum is [heads, width].
  void (*weighted_values)(const float* values, int64_t value_stride, int count, const float* weights,
                          const float* correction, int heads, float* sum, int64_t width);
  // scores[j] = sum over h of relu(similarity[h * stride + j]) * head_weights[h], rounded to bfloat16 at
  // every step if `is_rounded`. A zero score is +0.
  void (*combine_heads)(const float* similarity, int64_t stride, const float* head_weights, int heads,
                        int is_rounded, float* scores, int64_t count);
};

/// Null where this build has none. Whether the machine has the instructions is for cpu/select.h to say.
const struct Kernels* portable_kernels(void);
const struct Kernels* avx2_kernels(void);
const struct Kernels* avx512_kernels(void);

}  // namespace fathom::cpu
