#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float_types.h"
#include "cpu/kv_rows.h"
#include "cpu/top_k.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kPanelKeys = 64;
constexpr int64_t kTaskKeys = 512;
constexpr int64_t kGroupRows = 8;            // rows that share decoded keys
constexpr int kGroupCols = 32;               // columns of a key that share a scale
static_assert(kTaskKeys % kTopKRun == 0);

// The keys that compete in a row, as a list: all visible ones, or those of its allowed blocks. Blocks ascend
// and only the last can be cut off by `visible`, so place i of the list follows from i.
struct KeyList {
  const int32_t* blocks;  // null: every key
  int64_t block_size;
  int64_t count;
  int64_t key(int64_t i) const {
    if (blocks == nullptr) return i;
    const auto place = static_cast<uint32_t>(i), size = static_cast<uint32_t>(block_size);
    return blocks[place / size] * block_size + place % size;
  }
};

KeyList all_keys(const IndexSelectArgs& args, int64_t row) {
  return {.blocks = nullptr, .block_size = 1, .count = args.row[row].visible};
}

KeyList competing_keys(const IndexSelectArgs& args, int64_t row) {
  if (args.allowed_blocks == nullptr) return all_keys(args, row);
  const int32_t* blocks = args.allowed_blocks + row * args.max_blocks;
  int64_t count = 0;
  for (int slot = 0; slot < args.max_blocks && blocks[slot] >= 0; ++slot) {
    const int64_t begin = int64_t{blocks[slot]} * args.block_size;
    count += std::clamp<int64_t>(args.row[row].visible - begin, 0, args.block_size);
  }
  return {.blocks = blocks, .block_size = args.block_size, .count = count};
}

// Scores every key, or only those that compete when nothing else is asked for.
KeyList scored_keys(const IndexSelectArgs& args, int64_t row) {
  return args.scores == nullptr && args.candidate_blocks == nullptr ? competing_keys(args, row)
                                                                    : all_keys(args, row);
}

// Rows [begin, end) of a call, whose scores are held at once.
struct Batch {
  const IndexSelectArgs& args;
  int64_t begin = 0, end = 0;
  int64_t total = 0, most = 0;       // places of all rows, and of the row with most
  int64_t groups = 0;                // of rows that are scored together
  float** scores = nullptr;          // [rows] each [places]
  float** block_scores = nullptr;    // [rows] each [blocks]: the best of each block, for candidates
  int32_t* group_first = nullptr;    // [groups + 1]
  int32_t* counts = nullptr;         // [rows] places of a row's list
  int32_t* is_fp4 = nullptr;         // [rows] whether `queries` holds the row
  int32_t* best_at = nullptr;        // [rows] where in `best` those of a row begin, and behind them of its blocks
  int32_t* best = nullptr;           // of best_of_runs
  Fp4Query* queries = nullptr;       // group after group of rows, each [key_dim / 32, rows, heads]

  int64_t rows() const { return end - begin; }
  int64_t blocks(int64_t row) const {
    return (args.row[row].visible + args.block_size - 1) / args.block_size;
  }
  /// What scored_keys says, counted once.
  KeyList scored(int64_t row) const {
    const bool all = args.scores != nullptr || args.candidate_blocks != nullptr || args.allowed_blocks == nullptr;
    return {.blocks = all ? nullptr : args.allowed_blocks + row * args.max_blocks,
            .block_size = all ? 1 : args.block_size,
            .count = counts[row - begin]};
  }
  int32_t* best_of(int64_t row) const { return best + best_at[row - begin]; }
  int32_t* block_best_of(int64_t row) const {
    return best_of(row) + runs(counts[row - begin], args.top_k);
  }
  static int64_t runs(int64_t count, int64_t size) {
    const int64_t run = top_k_run(count, size);
    return run == 1 ? 0 : (count + run - 1) / run;
  }
};

// A query that is quantised as the keys are, in bytes; false if it is not: it is then multiplied in float32.
bool pack_query(const float* query, int64_t stride, int key_dim, Fp4Query* out) {
  for (int first = 0; first < key_dim; first += kGroupCols, query += kGroupCols, out += stride) {
    float largest = 0;
    for (int k = 0; k < kGroupCols; ++k) largest = std::max(largest, std::fabs(query[k]));
    const float scale = largest == 0 ? 1.0f : power_of_two_ceiling(largest / 6);
    const float factor = 2 / scale;
    int8_t codes[kGroupCols];
    bool is_exact = true;
    out->start = 0;
    for (int k = 0; k < kGroupCols; ++k) {
      const float halves = query[k] * factor;
      const int code = std::fabs(halves) <= 12 ? static_cast<int>(halves) : 0;
      is_exact &= static_cast<float>(code) == halves;
      codes[k / 8 * 8 + k % 2 * 4 + k % 8 / 2] = static_cast<int8_t>(code);
      out->start -= 12 * code;
    }
    if (!is_exact) return false;
    std::memcpy(out->codes, codes, sizeof codes);
    out->scale = scale / 4;
  }
  return true;
}

// Similarities of `rows` rows from `first` on with up to 64 keys, [rows * heads, 64].
void multiply_keys(const Kernels& kernels, Scratch& scratch, const IndexSelectArgs& args, int64_t first,
                   int64_t rows, const std::byte* const* keys, int64_t count, float* similarity) {
  const int64_t stride = (args.key_dim + 31) / 32 * 32 + 16;
  float* panel = scratch.panel.get(kPanelKeys * stride);
  const float** queries = scratch.in.get(rows * args.heads);
  float** results = scratch.out.get(rows * args.heads);
  for (int64_t m = 0; m < rows * args.heads; ++m) {
    queries[m] = args.query + (first * args.heads + m) * args.key_dim;
    results[m] = similarity + m * kPanelKeys;
  }
  for (int64_t i = 0; i < count; ++i) {
    float* key = panel + i * stride;
    decode_cache_row(kernels, args.key_format, keys[i], args.key_dim, key);
    std::fill(key + args.key_dim, key + stride, 0.0f);
  }
  const Panel view = {.data = panel, .rows = count, .stride = stride, .cols = args.key_dim};
  const DotRows dots = {.in = queries, .out = results, .rows = rows * args.heads};
  kernels.dot_panel(&view, &dots);
}

// The same for the rows of a group: in bytes where all or some of them allow it.
void multiply_keys(const Kernels& kernels, Scratch& scratch, const Batch& batch, int64_t first, int64_t rows,
                   const std::byte* const* keys, int64_t count, float* similarity) {
  const IndexSelectArgs& args = batch.args;
  const int32_t* is_fp4 = batch.is_fp4 + (first - batch.begin);
  const int fp4_rows = static_cast<int>(std::count(is_fp4, is_fp4 + rows, 1));
  if (fp4_rows == 0) return multiply_keys(kernels, scratch, args, first, rows, keys, count, similarity);
  const int groups = args.key_dim / kGroupCols;
  const Fp4Query* queries = batch.queries + (first - batch.begin) * groups * args.heads;
  const auto* packed = reinterpret_cast<const uint8_t* const*>(keys);
  const int64_t stride = rows * args.heads;
  if (fp4_rows == rows) return kernels.fp4_dots(packed, count, queries, stride, groups, stride, similarity);
  for (int64_t r = 0; r < rows; ++r) {
    float* out = similarity + r * args.heads * kPanelKeys;
    if (is_fp4[r])
      kernels.fp4_dots(packed, count, queries + r * args.heads, stride, groups, args.heads, out);
    else
      multiply_keys(kernels, scratch, args, first + r, 1, keys, count, out);
  }
}

// Places [begin, begin + kTaskKeys) of the lists of rows [first, first + rows), which are equal where they
// overlap.
void score_keys(const Kernels& kernels, Scratch& scratch, const Batch& batch, int64_t first, int64_t rows,
                int64_t begin) {
  const IndexSelectArgs& args = batch.args;
  const int64_t key_bytes = kv_row_bytes(args.key_format, args.key_dim);
  const bool official = args.numerics == Numerics::kOfficial;
  float* similarity = scratch.values.get(rows * args.heads * kPanelKeys);
  float* head_weights = scratch.more_values.get(rows * args.heads);
  for (int64_t m = 0; m < rows * args.heads; ++m) {
    const float weight = args.head_weights[first * args.heads + m] * args.head_weight_scale;
    head_weights[m] = official ? round_to_bf16(weight) : weight;
  }
  KeyList longest = batch.scored(first);
  for (int64_t r = 1; r < rows; ++r)
    if (const KeyList list = batch.scored(first + r); list.count > longest.count) longest = list;
  const int64_t end = std::min(begin + kTaskKeys, longest.count);
  for (int64_t place = begin; place < end; place += kPanelKeys) {
    const int64_t count = std::min(kPanelKeys, end - place);
    const std::byte* keys[kPanelKeys];
    for (int64_t i = 0; i < count; ++i) keys[i] = args.row[first].keys + longest.key(place + i) * key_bytes;
    multiply_keys(kernels, scratch, batch, first, rows, keys, count, similarity);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row_count = std::min(count, batch.scored(first + r).count - place);
      if (row_count > 0)
        kernels.combine_heads(similarity + r * args.heads * kPanelKeys, kPanelKeys,
                              head_weights + r * args.heads, args.heads, official,
                              batch.scores[first + r - batch.begin] + place, row_count);
    }
  }
  for (int64_t row = first; row < first + rows; ++row) {
    const int64_t places = batch.counts[row - batch.begin];
    const int64_t run = top_k_run(places, args.top_k);
    if (run > 1 && begin < places)
      best_of_runs(batch.scores[row - batch.begin] + begin, std::min(kTaskKeys, places - begin), run,
                   batch.best_of(row) + begin / run);
  }
}

// The best score of each of a row's blocks from `first` on.
void score_blocks(const Batch& batch, int64_t row, int64_t first, int64_t most) {
  const IndexSelectArgs& args = batch.args;
  const int64_t blocks = batch.blocks(row);
  const int64_t end = std::min(first + most, blocks);
  const float* scores = batch.scores[row - batch.begin];
  float* out = batch.block_scores[row - batch.begin];
  for (int64_t block = first; block < end; ++block) {
    const int64_t block_end = std::min<int64_t>((block + 1) * args.block_size, args.row[row].visible);
    // The newest block stays, whatever its score.
    out[block] = block + 1 == blocks
                     ? std::numeric_limits<float>::infinity()
                     : *std::max_element(scores + block * args.block_size, scores + block_end);
  }
  const int64_t run = top_k_run(blocks, args.max_blocks);
  if (run > 1 && first < end) best_of_runs(out + first, end - first, run, batch.block_best_of(row) + first / run);
}

void select_row(const Batch& batch, Scratch& scratch, int64_t row) {
  const IndexSelectArgs& args = batch.args;
  const float* scores = batch.scores[row - batch.begin];
  const KeyList scored = batch.scored(row);
  if (args.scores != nullptr) {
    float* out = args.scores + row * args.score_stride;
    std::fill(std::copy(scores, scores + scored.count, out), out + args.score_stride,
              -std::numeric_limits<float>::infinity());
  }
  if (args.candidate_blocks != nullptr)
    top_k(scratch, batch.block_scores[row - batch.begin], batch.blocks(row), batch.block_best_of(row),
          args.max_blocks, args.candidate_blocks + row * args.max_blocks);
  const bool is_all = scored.blocks == nullptr && args.allowed_blocks != nullptr;  // more than compete
  const KeyList competing = is_all ? competing_keys(args, row) : scored;
  const int32_t* best = batch.best_of(row);
  if (is_all) {
    float* chosen = scratch.values.get(competing.count);
    for (int64_t i = 0; i < competing.count; ++i) chosen[i] = scores[competing.key(i)];
    const int64_t run = top_k_run(competing.count, args.top_k);
    int32_t* chosen_best = scratch.more_numbers.get(Batch::runs(competing.count, args.top_k));
    if (run > 1) best_of_runs(chosen, competing.count, run, chosen_best);
    scores = chosen;
    best = chosen_best;
  }
  int32_t* selected = args.selected + row * args.top_k;
  top_k(scratch, scores, competing.count, best, args.top_k, selected);
  for (int slot = 0; slot < args.top_k && selected[slot] >= 0; ++slot)
    selected[slot] = static_cast<int32_t>(competing.key(selected[slot]));
}

// Rows that may be scored together: neighbours with the same cache and the whole of it to score.
int64_t group_end(const IndexSelectArgs& args, int64_t first, int64_t end) {
  if (args.allowed_blocks != nullptr) return first + 1;
  int64_t row = first + 1;
  while (row < std::min(end, first + kGroupRows) && args.row[row].keys == args.row[first].keys) ++row;
  return row;
}

// Lays out what the batch needs.
void lay_out(const Context& context, Batch& batch) {
  const IndexSelectArgs& args = batch.args;
  const int64_t rows = batch.rows();
  const bool with_candidates = args.candidate_blocks != nullptr;
  batch.scores = context.outputs->get(2 * rows);
  batch.block_scores = batch.scores + rows;
  batch.group_first = context.numbers->get(4 * rows + 1);
  batch.is_fp4 = batch.group_first + rows + 1;
  batch.best_at = batch.is_fp4 + rows;
  batch.counts = batch.best_at + rows;
  int64_t block_total = 0, best_total = 0;
  for (int64_t row = batch.begin; row < batch.end; ++row) {
    const int64_t count = scored_keys(args, row).count;
    batch.total += count;
    batch.most = std::max(batch.most, count);
    batch.counts[row - batch.begin] = static_cast<int32_t>(count);
    batch.best_at[row - batch.begin] = static_cast<int32_t>(best_total);
    best_total += Batch::runs(count, args.top_k);
    if (!with_candidates) continue;
    block_total += batch.blocks(row);
    best_total += Batch::runs(batch.blocks(row), args.max_blocks);
  }
  float* floats = context.floats->get(batch.total);
  float* block_floats = context.more_floats->get(block_total);
  batch.best = context.more_numbers->get(best_total);
  for (int64_t row = batch.begin; row < batch.end; ++row) {
    batch.scores[row - batch.begin] = floats;
    batch.block_scores[row - batch.begin] = block_floats;
    floats += batch.counts[row - batch.begin];
    if (with_candidates) block_floats += batch.blocks(row);
  }
  for (int64_t row = batch.begin; row < batch.end; row = group_end(args, row, batch.end))
    batch.group_first[batch.groups++] = static_cast<int32_t>(row);
  batch.group_first[batch.groups] = static_cast<int32_t>(batch.end);
}

void pack_queries(const Context& context, Batch& batch) {
  const IndexSelectArgs& args = batch.args;
  std::fill(batch.is_fp4, batch.is_fp4 + batch.rows(), 0);
  if (args.key_format != KvFormat::kFp4Group32 || context.kernels->fp4_dots == nullptr) return;
  const int64_t row_queries = int64_t{args.heads} * (args.key_dim / kGroupCols);
  batch.queries = context.queries->get(batch.rows() * row_queries);
  run_tasks(context, batch.groups, batch.rows() * args.heads * args.key_dim, [&](int64_t group, int) {
    const int64_t first = batch.group_first[group], end = batch.group_first[group + 1];
    const int64_t stride = (end - first) * args.heads;
    for (int64_t row = first; row < end; ++row) {
      Fp4Query* out = batch.queries + (first - batch.begin) * row_queries + (row - first) * args.heads;
      bool is_fp4 = true;
      for (int head = 0; head < args.heads && is_fp4; ++head)
        is_fp4 = pack_query(args.query + (row * args.heads + head) * args.key_dim, stride, args.key_dim,
                            out + head);
      batch.is_fp4[row - batch.begin] = is_fp4;
    }
  });
}

void select_batch(const Context& context, const IndexSelectArgs& args, int64_t begin, int64_t end) {
  Batch batch{.args = args, .begin = begin, .end = end};
  lay_out(context, batch);
  pack_queries(context, batch);
  const int64_t chunks = (batch.most + kTaskKeys - 1) / kTaskKeys;
  run_tasks(context, batch.groups * chunks, batch.total * args.heads * args.key_dim,
            [&](int64_t task, int thread) {
              const int64_t first = batch.group_first[task / chunks];
              score_keys(*context.kernels, context.scratch_of(thread), batch, first,
                         batch.group_first[task / chunks + 1] - first, task % chunks * kTaskKeys);
            });
  if (args.candidate_blocks != nullptr) {
    constexpr int64_t kTaskBlocks = 1024;
    static_assert(kTaskBlocks % kTopKRun == 0);
    int64_t most = 0;
    for (int64_t row = begin; row < end; ++row) most = std::max(most, batch.blocks(row));
    const int64_t block_chunks = (most + kTaskBlocks - 1) / kTaskBlocks;
    run_tasks(context, batch.rows() * block_chunks, 2 * batch.total, [&](int64_t task, int) {
      score_blocks(batch, begin + task / block_chunks, task % block_chunks * kTaskBlocks, kTaskBlocks);
    });
  }
  run_rows(context, batch.rows(), batch.most, [&](int64_t row, int thread) {
    select_row(batch, context.scratch_of(thread), begin + row);
  });
}

}  // namespace

void index_select(const Context& context, const IndexSelectArgs& args) {
  for (int64_t begin = 0; begin < args.rows;) {
    int64_t end = begin;
    int64_t total = 0;
    do {
      total += scored_keys(args, end).count;
      ++end;
    } while (end < args.rows && total + scored_keys(args, end).count <= kIndexBatchScores);
    select_batch(context, args, begin, end);
    begin = end;
  }
}

}  // namespace fathom::cpu
