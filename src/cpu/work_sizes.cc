#include "cpu/work_sizes.h"

#include <algorithm>

#include "cpu/matmul.h"
#include "cpu/top_k.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kPlaces = 64;     // keys that attention and the indexer decode at once
constexpr int64_t kGroupRows = 8;   // rows that the indexer scores together
constexpr int64_t kPad = 32 + 16;   // columns of a panel beyond the matrix's, at most
constexpr int64_t kExpertOutputs = 32;

// The largest answer for any encoding. Which ones a pack has is not known here, and they differ little.
template <class Function>
int64_t for_encodings(const Kernels& kernels, int64_t cols, Function&& function) {
  int64_t most = 0;
  if (kernels.bf16_row_bytes == nullptr) return most;
  for (int encoding = 0; encoding <= kEncodingAffine; ++encoding)
    for (const int rows_a_scale : {1, 32}) {
      EncodedMatrix matrix = {};
      matrix.encoding = static_cast<Encoding>(encoding);
      matrix.cols = cols;
      matrix.scale_row_shift = rows_a_scale == 32 ? 5 : 0;
      matrix.bits = 8;
      matrix.group = 64;
      if (kernels.bf16_row_bytes(&matrix) > 0) most = std::max(most, function(matrix));
    }
  return most;
}

int64_t prepared_row_bytes(const Kernels& kernels, int64_t cols) {
  return for_encodings(kernels, cols, [&](const EncodedMatrix& m) { return kernels.bf16_row_bytes(&m); });
}

// Where a task decodes weight rows, packs rows into a tile, or keeps tiles.
int64_t unit_bytes(const Kernels& kernels, int64_t cols, int64_t rows) {
  return for_encodings(kernels, cols, [&](const EncodedMatrix& m) {
    int64_t most = kTileRows * kernels.bf16_row_bytes(&m);
    if (kernels.bf16_panel_row_bytes != nullptr)
      most = std::max(most, kPanelRows * kernels.bf16_panel_row_bytes(&m));
    if (kernels.bf16_work_bytes != nullptr)
      for (const int64_t count : {std::min(rows, kTileRows), std::min(rows, kernels.bf16_block_rows)})
        most = std::max(most, kernels.bf16_work_bytes(&m, kernels.bf16_block_weights, count));
    return most;
  });
}

int64_t whole_tiles(const Kernels& kernels, int64_t rows) {
  return kernels.bf16_pack == nullptr ? rows : (rows + kTileRows - 1) / kTileRows * kTileRows;
}

template <class... Counts>
int64_t largest(Counts... counts) {
  return std::max({static_cast<int64_t>(counts)...});
}

void add_products(const Kernels& kernels, const WorkShape& s, WorkSizes& sizes) {
  const int64_t widest = std::max(s.widest_input, s.streams * s.dim);
  sizes.panel = largest(sizes.panel, kPanelRows * (widest + kPad));
  sizes.rows = largest(sizes.rows, s.rows);
  sizes.units = largest(sizes.units, unit_bytes(kernels, s.widest_input, s.rows));
  const int64_t grouped = s.output_groups == 0 ? 0 : int64_t{s.heads} * s.head_dim / s.output_groups;
  const int64_t rows = whole_tiles(kernels, s.rows);
  sizes.prepared = largest(sizes.prepared, rows * prepared_row_bytes(kernels, s.widest_input),
                           rows * s.output_groups * prepared_row_bytes(kernels, grouped));
  // Projections of hyper-connections.
  sizes.floats = largest(sizes.floats, s.rows * (2 + s.streams) * s.streams);
}

void add_experts(const Kernels& kernels, const WorkShape& s, WorkSizes& sizes) {
  const int64_t places = s.rows * s.experts_per_token;
  const int64_t choices = places + s.rows;
  sizes.floats = largest(sizes.floats, choices * s.inter);
  sizes.more_floats = largest(sizes.more_floats, choices * s.dim);
  sizes.numbers = largest(sizes.numbers, 3 * (s.experts + 2) + 3 * choices);
  sizes.values = largest(sizes.values, std::min(s.rows, activation_block_rows(s.dim)) * kExpertOutputs);
  if (kernels.bf16_is_tiled != nullptr)
    sizes.values = largest(sizes.values, std::min(s.rows, kernels.bf16_block_rows) *
                                             std::min<int64_t>(s.inter, kernels.bf16_block_weights));
  sizes.prepared = largest(sizes.prepared, s.rows * prepared_row_bytes(kernels, s.dim),
                           places * prepared_row_bytes(kernels, s.inter));
  sizes.more_prepared = largest(sizes.more_prepared, s.rows * prepared_row_bytes(kernels, s.dim),
                                s.rows * prepared_row_bytes(kernels, s.inter));
}

void add_attention(const WorkShape& s, WorkSizes& sizes) {
  sizes.panel = largest(sizes.panel, kPlaces * (s.head_dim + kPad));
  sizes.values = largest(sizes.values, kPlaces * s.heads);
  sizes.more_values = largest(sizes.more_values, 3 * s.heads);
  sizes.rows = largest(sizes.rows, s.heads);
}

void add_index(const WorkShape& s, WorkSizes& sizes) {
  const int64_t lanes = kGroupRows * s.index_heads;
  sizes.panel = largest(sizes.panel, kPlaces * (s.index_dim + kPad));
  sizes.values = largest(sizes.values, lanes * kPlaces);
  sizes.more_values = largest(sizes.more_values, lanes);
  sizes.rows = largest(sizes.rows, lanes);
  sizes.order = largest(sizes.order, 4 * s.top_k, 4 * s.candidate_blocks);
  // Runs of scores are few: their number is at most the larger of these for any count of scores.
  const auto runs = [](int64_t count, int64_t size) { return std::max(8 * size, count / kTopKRun + 1); };
  const int64_t seen_blocks = s.candidate_block == 0 ? 0 : s.context_tokens / s.candidate_block + 1;
  sizes.thread_numbers =
      largest(sizes.thread_numbers, runs(s.context_tokens, s.top_k), runs(seen_blocks, s.candidate_blocks));
  const int64_t scores =
      std::min(s.rows * s.context_tokens, std::max(kIndexBatchScores, s.context_tokens));
  const int64_t blocks = s.candidate_block == 0 ? 0 : scores / s.candidate_block + s.rows;
  sizes.floats = largest(sizes.floats, scores);
  sizes.more_floats = largest(sizes.more_floats, blocks);
  sizes.outputs = largest(sizes.outputs, 2 * s.rows);
  sizes.numbers = largest(sizes.numbers, 4 * s.rows + 1);
  // A run has two scores or more.
  sizes.more_numbers = largest(sizes.more_numbers,
                               std::min(scores / 2, s.rows * runs(s.context_tokens, s.top_k)) +
                                   std::min(blocks / 2, s.rows * runs(seen_blocks, s.candidate_blocks)));
  sizes.queries = largest(sizes.queries, s.rows * s.index_heads * ((s.index_dim + 31) / 32));
}

}  // namespace

int64_t WorkSizes::bytes(int threads) const {
  constexpr int64_t kFloat = sizeof(float), kNumber = sizeof(int32_t), kPointer = sizeof(void*);
  const int64_t shared = (floats + more_floats) * kFloat + (numbers + more_numbers) * kNumber +
                         outputs * kPointer + queries * static_cast<int64_t>(sizeof(Fp4Query)) + prepared +
                         more_prepared;
  const int64_t own = (panel + values + more_values) * kFloat + 5 * rows * kPointer +
                      order * static_cast<int64_t>(sizeof(uint64_t)) + 2 * thread_numbers * kNumber + units;
  return shared + threads * own;
}

bool Scratch::reserve(const WorkSizes& sizes) {
  return panel.reserve(sizes.panel) && values.reserve(sizes.values) && more_values.reserve(sizes.more_values) &&
         in.reserve(sizes.rows) && task_out.reserve(sizes.rows) && row_out.reserve(sizes.rows) &&
         out.reserve(sizes.rows) && prepared.reserve(sizes.rows) && order.reserve(sizes.order) &&
         numbers.reserve(sizes.thread_numbers) && more_numbers.reserve(sizes.thread_numbers) &&
         units.reserve(sizes.units);
}

int64_t Scratch::size_bytes() const {
  return panel.size_bytes() + values.size_bytes() + more_values.size_bytes() + in.size_bytes() +
         task_out.size_bytes() + row_out.size_bytes() + out.size_bytes() + prepared.size_bytes() +
         order.size_bytes() + numbers.size_bytes() + more_numbers.size_bytes() + units.size_bytes();
}

WorkSizes work_sizes(const Kernels& kernels, const WorkShape& shape) {
  WorkSizes sizes;
  add_products(kernels, shape, sizes);
  add_experts(kernels, shape, sizes);
  add_attention(shape, sizes);
  if (shape.index_heads > 0) add_index(shape, sizes);
  return sizes;
}

}  // namespace fathom::cpu
