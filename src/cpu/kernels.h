// The inner loops that need vector instructions: one table of functions for each instruction set.
//
// Kernel-safe: plain structs and declarations only, so that files compiled with instruction set flags may
// include it (docs/rooms.md). The bodies are in cpu/generic/, written once over a small vector vocabulary;
// avx2/, avx512/, amx/, neon/ and portable.cc each compile them with theirs.
//
// Order of summation. Every float32 dot product is one accumulator of the vector's lanes that walks the
// columns in order with fused multiply-adds (portable: multiply, then add), then one fixed tree over the
// lanes. A tile runs several accumulators side by side and never splits one. So a result depends on its row
// and its weights, not on how many rows or threads there are; it differs between instruction sets.
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
  // Read only where `decodes` says so.
  kEncodingQ3K,
  kEncodingQ5K,
  kEncodingQ6K,
  kEncodingIq1S,
  kEncodingIq1M,
  kEncodingIq2Xxs,
  kEncodingIq2Xs,
  kEncodingIq2S,
  kEncodingIq3Xxs,
  kEncodingIq3S,
  kEncodingIq4Nl,
  kEncodingIq4Xs,
  kEncodingAffine,  // codes of `bits` bits, a scale and a bias for `group` columns
};
enum ScaleType { kScaleF32, kScaleF16, kScaleBf16 };

struct EncodedMatrix {
  enum Encoding encoding;
  const uint8_t* data;  // row r at data + r * row_bytes
  int64_t row_bytes;
  const uint8_t* scales;  // scales of row r at scales + (r >> scale_row_shift) * scale_row_bytes
  int64_t scale_row_bytes;
  int scale_row_shift;
  int64_t cols;
  // Affine.
  const uint8_t* biases;
  int64_t bias_row_bytes;
  int bits, group;
  enum ScaleType scale_type;
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

// Products in bfloat16: activation rows in the form that `bf16_prepare` gives them, for one encoding.
struct Bf16Rows {
  const uint8_t* const* in;  // [rows]; tiled: the tiles of rows 0, 16, ...
  float* const* out;         // [rows]
  int64_t rows;
  int is_tiled;   // whether every 16 rows stand as bf16_pack makes them
  uint8_t* work;  // bf16_work_bytes, 64-byte aligned, where the table has it
};
struct Bf16Panel {
  const uint8_t* data;  // [rows, row_bytes] from `bf16_decode`
  int64_t rows;
  int64_t row_bytes;
  enum Encoding encoding;
  int64_t cols;
};

// Grids of the IQ formats, entry after entry, and the eight signs of seven stored ones.
struct IqTables {
  const int8_t *iq2_xxs, *iq2_xs, *iq2_s, *iq3_xxs, *iq3_s, *iq1;
  const uint8_t* even_signs;
};
struct IqTables iq_tables(void);

// 32 columns of a query of the indexer, for keys in FP4. Codes count halves.
struct Fp4Query {
  int32_t codes[8];  // four signed bytes each: [2 d] columns 8 d + {0, 2, 4, 6}, [2 d + 1] 8 d + {1, 3, 5, 7}
  int32_t start;     // -12 times the sum of the codes: kernels add 12 to a key's, which makes them unsigned
  float scale;       // of a product of halves: a quarter of the query's scale
};

struct Kernels {
  const char* name;
  // Most activation rows for which dot_encoded beats decoding to a panel.
  int fused_rows;

  // Whether decode reads the encoding, and whether dot_encoded does.
  int (*decodes)(enum Encoding encoding);
  int (*is_fused)(enum Encoding encoding);
  // Decodes `count` rows to a panel, zeros in [cols, stride) included.
  void (*decode)(const struct EncodedMatrix* matrix, int64_t row, int64_t count, float* panel,
                 int64_t stride);
  // The same results to the bit, without and with a panel in between.
  void (*dot_encoded)(const struct EncodedMatrix* matrix, int64_t row, int64_t count,
                      const struct DotRows* rows);
  void (*dot_panel)(const struct Panel* panel, const struct DotRows* rows);

  // For activations that are bfloat16 numbers; null where the instruction set has no such product. All sums
  // are float32. Bytes of a prepared row, 0 if the encoding or the width is not for them.
  int64_t (*bf16_row_bytes)(const struct EncodedMatrix* matrix);
  void (*bf16_prepare)(const struct EncodedMatrix* matrix, const float* in, uint8_t* out);
  // Whether this path may be taken for a weight row: its scales leave bfloat16 exact.
  int (*bf16_row_is_exact)(const struct EncodedMatrix* matrix, int64_t row);
  // The same results to the bit, without (up to bf16_fused_rows rows) and with a panel in between.
  int64_t bf16_fused_rows;
  void (*bf16_dot)(const struct EncodedMatrix* matrix, int64_t row, int64_t count,
                   const struct Bf16Rows* rows);
  int64_t (*bf16_panel_row_bytes)(const struct EncodedMatrix* matrix);
  void (*bf16_decode)(const struct EncodedMatrix* matrix, int64_t row, int64_t count, struct Bf16Panel* panel,
                      uint8_t* data);
  void (*bf16_dot_panel)(const struct Bf16Panel* panel, const struct Bf16Rows* rows);
  // For instruction sets that multiply tiles, null elsewhere. Whether an encoding is multiplied so: it has no
  // panels then, and bf16_dot takes any number of rows.
  int (*bf16_is_tiled)(enum Encoding encoding);
  // For such encodings. Puts up to 16 prepared rows side by side, in as much memory as 16 rows take; the working
  // memory of bf16_dot; and the weight rows and activation rows that one call of it should take.
  void (*bf16_pack)(const uint8_t* const* rows, int64_t count, int64_t row_bytes, uint8_t* out);
  int64_t (*bf16_work_bytes)(const struct EncodedMatrix* matrix, int64_t count, int64_t rows);
  int64_t bf16_block_weights, bf16_block_rows;

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
  // out[q * 64 + j] = query q . key j for up to 64 keys in FP4 with a scale for 32 columns, `groups` of them; out
  // is written up to the next multiple of 16 keys. Query q of group g at queries[g * query_stride + q]. Group
  // by group, the integer dot product times the key's and the query's scale is added in float32. Null where
  // there is none.
  void (*fp4_dots)(const uint8_t* const* keys, int64_t count, const struct Fp4Query* queries,
                   int64_t query_stride, int groups, int64_t query_count, float* out);
};

/// Null where this build has none. Whether the machine has the instructions is for cpu/select.h to say.
const struct Kernels* portable_kernels(void);
const struct Kernels* avx2_kernels(void);
const struct Kernels* avx512_kernels(void);
const struct Kernels* amx_kernels(void);
const struct Kernels* neon_kernels(void);
const struct Kernels* neon_dot_kernels(void);

}  // namespace fathom::cpu
