// The operations of the forward pass: one parameter struct each.
//
// Tensors are float32, row-major and contiguous unless a comment says otherwise, in memory of the backend
// (Backend::allocate). "rows" are the rows of a step: whatever tokens are evaluated together, of one or many
// sequences. No operation mixes rows: the arithmetic of a row depends on that row, on the weights and on its
// own sequence's caches, never on how many other rows are there.
//
// With Numerics::kOfficial results are rounded to bfloat16 where the published model holds bfloat16 tensors
// (docs/model/backbone.md names every point); with kExact nothing is rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/weight.h"

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

struct EmbedTokensArgs {
  const WeightMatrix* table;  // [vocab, dim]
  const int32_t* tokens;      // [rows]
  int64_t rows;
  int stream_count;
  float* streams;  // [rows, stream_count, dim] out: the embedding, in every stream
};

// Coefficients of one sub-layer's hyper-connection; docs/model/backbone.md, "Coefficients of a sub-layer".
struct HyperMixArgs {
  const float* streams;     // [rows, n, dim]
  const WeightMatrix* fn;   // [(2 + n) * n, n * dim]
  const float* base;        // [(2 + n) * n]
  const float* scale;       // [3]
  int64_t rows;
  int stream_count;         // n
  int64_t dim;
  float norm_eps;
  float hyper_eps;
  int sinkhorn_iterations;
  float* pre;   // [rows, n] out
  float* post;  // [rows, n] out
  float* comb;  // [rows, n, n] out, source stream major
};

// out = sum over streams of pre[j] * streams[j].
struct HyperReadArgs {
  const float* streams;  // [rows, n, dim]
  const float* pre;      // [rows, n]
  int64_t rows;
  int stream_count;
  int64_t dim;
  float* out;  // [rows, dim] out
  Numerics numerics;
};

// streams[k] = post[k] * in + sum over j of comb[j, k] * streams[j], in place.
struct HyperWriteArgs {
  const float* in;    // [rows, dim]
  const float* post;  // [rows, n]
  const float* comb;  // [rows, n, n]
  int64_t rows;
  int stream_count;
  int64_t dim;
  float* streams;  // [rows, n, dim] in, out
  Numerics numerics;
};

struct RmsNormArgs {
  const float* in;      // [rows, width]
  const float* weight;  // [width]
  int64_t rows;
  int64_t width;
  float eps;
  float* out;  // [rows, width] out; may be `in`
  Numerics numerics;
};

// The quantiser in front of FP8 and FP4 matrices ("Q8" in docs/model/backbone.md): quantised and multiplied
// back, so that the values lie on the grid.
struct QuantizeActivationsArgs {
  const float* in;  // [rows, width]
  int64_t rows;
  int64_t width;  // a multiple of 32
  float* out;     // [rows, width] out; may be `in`
};

// out = in * weight^T.
struct LinearArgs {
  const float* in;  // [rows, weight->cols]
  const WeightMatrix* weight;
  int64_t rows;
  float* out;          // [rows, weight->rows] out
  bool round_to_bf16;  // the result is a bfloat16 tensor
};

// One matrix for each group of columns: the attention output projection of the first stage.
struct GroupedLinearArgs {
  const float* in;             // [rows, groups * weight->cols]
  const WeightMatrix* weight;  // [groups * out_per_group, cols]; group g owns consecutive rows
  int64_t rows;
  int groups;
  float* out;  // [rows, weight->rows] out
  bool round_to_bf16;
};

// cos and sin of fp32(position) * inverse_frequency, the product rounded to float32 first.
struct RopeAnglesArgs {
  const int32_t* positions;          // [rows]
  const float* inverse_frequencies;  // [pairs]
  int64_t rows;
  int pairs;
  float* cosines;  // [rows, pairs] out
  float* sines;    // [rows, pairs] out
};

// Rotates the last 2 * pairs values of every head, in place; neighbours (2i, 2i + 1) form a pair.
struct RopeArgs {
  float* data;           // [rows, heads, head_dim] in, out
  const float* cosines;  // [rows, pairs]
  const float* sines;    // [rows, pairs]
  int64_t rows;
  int heads;
  int head_dim;
  int pairs;
  bool inverse;
  Numerics numerics;
};

// Encodes rows into a cache.
struct StoreKvArgs {
  const float* in;  // [rows, width]
  int64_t rows;
  int64_t width;
  KvFormat format;
  std::byte* const* out;  // [rows] where each row goes, kv_row_bytes(format, width) bytes
};

// Quantise to a cache's grid and multiply back, in place: what a query goes through to match its keys.
struct FakeQuantizeArgs {
  float* data;  // [rows, width] in, out
  int64_t rows;
  int64_t width;
  KvFormat format;
};

// One row of two tokens: per channel, a softmax of the gates weighs the two values.
struct CompressPairArgs {
  const float* const* even_values;  // [rows] each [width]
  const float* const* even_gates;   // [rows] each [width]
  const float* const* odd_values;   // [rows] each [width]
  const float* const* odd_gates;    // [rows] each [width]
  int64_t rows;
  int64_t width;
  float* out;  // [rows, width] out
  Numerics numerics;
};

// Copies rows between scattered places; a null target skips its row. No source overlaps a target.
struct CopyRowsArgs {
  const void* const* from;  // [rows]
  void* const* to;          // [rows]
  int64_t rows;
  int64_t row_bytes;
};

// Where one row looks for index keys.
struct IndexRow {
  const std::byte* keys;  // key j at keys + j * key_row_bytes
  int32_t visible;        // keys [0, visible) may be selected
};

// Scores of all visible keys and the best of them; docs/model/backbone.md, "Indexer" and "Candidates".
// Score of a key = sum over heads of relu(query_h . key) * head_weight_h * head_weight_scale, the scaled
// weight being a bfloat16 in official numerics. Ties go to the lower index.
struct IndexSelectArgs {
  const float* query;         // [rows, heads, key_dim]
  const float* head_weights;  // [rows, heads]
  float head_weight_scale;
  const IndexRow* row;        // [rows]
  int64_t rows;
  int heads;
  int key_dim;
  KvFormat key_format;
  int top_k;
  int32_t* selected;  // [rows, top_k] out, ascending, then -1
  // Candidate blocks of `block_size` keys. Either may be null.
  int block_size;
  int max_blocks;
  const int32_t* allowed_blocks;  // [rows, max_blocks] ascending, then -1: only their keys compete
  int32_t* candidate_blocks;      // [rows, max_blocks] out: the best blocks; the newest one always
  float* scores;                  // null, or [rows, score_stride] out: -inf beyond visible (for checks)
  int64_t score_stride;
  Numerics numerics;
};

// Where one row finds keys (= values) of its window and of its compressed list.
struct AttentionRow {
  const std::byte* ring;   // window rows of earlier steps: position p in slot p mod ring_slots
  const std::byte* fresh;  // window rows of this step, from position fresh_begin on, consecutive
  const std::byte* compressed;
  int32_t ring_slots;
  int32_t fresh_begin;
  int32_t window_begin;  // first position seen
  int32_t position;      // last position seen: the row's own
};

// One softmax over window rows and selected compressed rows, with a sink in the denominator. The list is
// walked in blocks of 64: `window` places for the window (absent ones last), then the selection.
struct SparseAttentionArgs {
  const float* query;       // [rows, heads, head_dim]
  const AttentionRow* row;  // [rows]
  const int32_t* selected;  // [rows, top_k], -1 = absent; null if the layer has no compressed rows
  const float* sinks;       // [heads]
  int64_t rows;
  int heads;
  int head_dim;
  int window;
  int top_k;
  float scale;
  KvFormat window_format;
  KvFormat compressed_format;
  float* out;  // [rows, heads, head_dim] out
  Numerics numerics;
};

// The router: sqrt(softplus(logit)) scores, the best by score + bias, weights from the plain scores.
struct RouteArgs {
  const float* logits;       // [rows, experts]
  const float* bias;         // [experts]
  const float* image_bias;   // [experts], for rows inside an image; may be null
  const uint8_t* is_image;   // [rows]; may be null
  int64_t rows;
  int experts;
  int experts_per_token;
  float route_scale;
  int32_t* ids;    // [rows, experts_per_token] out, ascending
  float* weights;  // [rows, experts_per_token] out
};

struct ExpertWeights {
  WeightMatrix gate;  // w1 [inter, dim]
  WeightMatrix up;    // w3 [inter, dim]
  WeightMatrix down;  // w2 [dim, inter]
};

// out = sum over chosen experts, in ascending id, of down(weight * silu(min(gate, limit)) * clamp(up)),
// then the shared expert without a weight. `in` is quantised already where the weights ask for it.
struct ExpertFfnArgs {
  const float* in;            // [rows, dim] input of the routed experts
  const float* shared_in;     // [rows, dim] input of the shared expert
  const int32_t* ids;         // [rows, experts_per_token]
  const float* weights;       // [rows, experts_per_token]
  const ExpertWeights* routed;  // [experts]
  const ExpertWeights* shared;  // one
  int64_t rows;
  int experts;
  int experts_per_token;
  int64_t dim;
  int64_t inter;
  float limit;
  bool quantize_routed;  // the activations in front of `down` go through the activation quantiser
  bool quantize_shared;
  float* out;  // [rows, dim] out
  Numerics numerics;
};

// The Engram gate and write-back; docs/model/engram.md.
struct EngramWriteArgs {
  const float* key_value;    // [rows, (n + 1) * dim]: a key for each stream, then the shared value
  const float* gate_weight;  // [n, dim]: q_weight * k_weight
  const uint8_t* is_masked;  // [rows]: gate 0 (rows inside an image); may be null
  int64_t rows;
  int stream_count;
  int64_t dim;
  float norm_eps;
  float* streams;  // [rows, n, dim] in, out
  Numerics numerics;
};

}  // namespace fathom
