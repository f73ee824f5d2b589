// Rotation, caches, selection and attention. Conventions: ops/ops.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/numerics.h"

namespace fathom {

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

}  // namespace fathom
