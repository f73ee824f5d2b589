#include <algorithm>
#include <limits>

#include "base/float_types.h"
#include "cpu/kv_rows.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kPanelKeys = 64;
constexpr int64_t kTaskKeys = 512;
constexpr int64_t kGroupRows = 8;            // rows that share decoded keys
constexpr int64_t kBatchScores = 4'000'000;  // 16 MB of scores at a time

// The keys that compete in a row, as a list: all visible ones, or those of its allowed blocks. Blocks ascend
// and only the last can be cut off by `visible`, so place i of the list follows from i.
struct KeyList {
  const int32_t* blocks;  // null: every key
  int64_t block_size;
  int64_t count;
  int64_t key(int64_t i) const {
    return blocks == nullptr ? i : blocks[i / block_size] * block_size + i % block_size;
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

// Places [begin, begin + kTaskKeys) of the lists of rows [first, first + rows), which are equal where they
// overlap. scores[r] is the list of row first + r.
void score_keys(const Kernels& kernels, Scratch& scratch, const IndexSelectArgs& args, int64_t first,
                int64_t rows, int64_t begin, float* const* scores) {
  const int64_t stride = (args.key_dim + 31) / 32 * 32 + 16;
  const int64_t key_bytes = kv_row_bytes(args.key_format, args.key_dim);
  const bool official = args.numerics == Numerics::kOfficial;
  float* panel = scratch.panel.get(kPanelKeys * stride);
  float* similarity = scratch.values.get(rows * args.heads * kPanelKeys);
  float* head_weights = scratch.more_values.get(rows * args.heads);
  const float** queries = scratch.in.get(rows * args.heads);
  float** results = scratch.out.get(rows * args.heads);
  for (int64_t m = 0; m < rows * args.heads; ++m) {
    queries[m] = args.query + (first * args.heads + m) * args.key_dim;
    results[m] = similarity + m * kPanelKeys;
    const float weight = args.head_weights[first * args.heads + m] * args.head_weight_scale;
    head_weights[m] = official ? round_to_bf16(weight) : weight;
  }
  KeyList longest = scored_keys(args, first);
  for (int64_t r = 1; r < rows; ++r)
    if (const KeyList list = scored_keys(args, first + r); list.count > longest.count) longest = list;
  const int64_t end = std::min(begin + kTaskKeys, longest.count);
  for (int64_t place = begin; place < end; place += kPanelKeys) {
    const int64_t count = std::min(kPanelKeys, end - place);
    for (int64_t i = 0; i < count; ++i) {
      float* key = panel + i * stride;
      decode_cache_row(kernels, args.key_format, args.row[first].keys + longest.key(place + i) * key_bytes,
                       args.key_dim, key);
      std::fill(key + args.key_dim, key + stride, 0.0f);
    }
    const Panel keys = {.data = panel, .rows = count, .stride = stride, .cols = args.key_dim};
    const DotRows dots = {.in = queries, .out = results, .rows = rows * args.heads};
    kernels.dot_panel(&keys, &dots);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row_count = std::min(count, scored_keys(args, first + r).count - place);
      if (row_count > 0)
        kernels.combine_heads(similarity + r * args.heads * kPanelKeys, kPanelKeys,
                              head_weights + r * args.heads, args.heads, official, scores[r] + place,
                              row_count);
    }
  }
}

// Greater means better: the score's order first, then the lower index.
uint64_t rank_of(float score, int64_t index) {
  const uint32_t bits = bits_of_float(score);
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(index));
}

// The best `size` of order[0, count), written as ascending indices, then -1.
void write_best(uint64_t* order, int64_t count, int64_t size, int32_t* out) {
  const int64_t kept = std::min(count, size);
  if (kept < count) std::nth_element(order, order + kept, order + count, std::greater<>());
  for (int64_t slot = 0; slot < kept; ++slot)
    out[slot] = static_cast<int32_t>(~static_cast<uint32_t>(order[slot]));
  std::sort(out, out + kept);
  std::fill(out + kept, out + size, -1);
}

void write_candidates(const IndexSelectArgs& args, Scratch& scratch, int64_t row, const float* scores) {
  const int64_t visible = args.row[row].visible;
  const int64_t blocks = (visible + args.block_size - 1) / args.block_size;
  uint64_t* order = scratch.order.get(blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    const float* begin = scores + block * args.block_size;
    const float best = *std::max_element(begin, scores + std::min((block + 1) * args.block_size, visible));
    // The newest block stays, whatever its score.
    order[block] = rank_of(block + 1 == blocks ? std::numeric_limits<float>::infinity() : best, block);
  }
  write_best(order, blocks, args.max_blocks, args.candidate_blocks + row * args.max_blocks);
}

void select_row(const IndexSelectArgs& args, Scratch& scratch, int64_t row, const float* scores) {
  const KeyList scored = scored_keys(args, row);
  if (args.scores != nullptr) {
    float* out = args.scores + row * args.score_stride;
    std::fill(std::copy(scores, scores + scored.count, out), out + args.score_stride,
              -std::numeric_limits<float>::infinity());
  }
  if (args.candidate_blocks != nullptr) write_candidates(args, scratch, row, scores);
  const KeyList competing = competing_keys(args, row);
  const bool is_full = scored.blocks == nullptr;
  uint64_t* order = scratch.order.get(competing.count);
  for (int64_t i = 0; i < competing.count; ++i) {
    const int64_t key = competing.key(i);
    order[i] = rank_of(scores[is_full ? key : i], key);
  }
  write_best(order, competing.count, args.top_k, args.selected + row * args.top_k);
}

// Rows that may be scored together: neighbours with the same cache and the whole of it to score.
int64_t group_end(const IndexSelectArgs& args, int64_t first, int64_t end) {
  if (args.allowed_blocks != nullptr) return first + 1;
  int64_t row = first + 1;
  while (row < std::min(end, first + kGroupRows) && args.row[row].keys == args.row[first].keys) ++row;
  return row;
}

void select_batch(const Context& context, const IndexSelectArgs& args, int64_t begin, int64_t end,
                  int64_t total) {
  float* floats = context.floats->get(total);
  float** scores = context.outputs->get(end - begin);
  int32_t* group_first = context.numbers->get(end - begin + 1);
  int64_t most = 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t count = scored_keys(args, row).count;
    scores[row - begin] = floats;
    floats += count;
    most = std::max(most, count);
  }
  int64_t groups = 0;
  for (int64_t row = begin; row < end; row = group_end(args, row, end))
    group_first[groups++] = static_cast<int32_t>(row);
  group_first[groups] = static_cast<int32_t>(end);

  const int64_t chunks = (most + kTaskKeys - 1) / kTaskKeys;
  run_tasks(context, groups * chunks, total * args.heads * args.key_dim, [&](int64_t task, int thread) {
    const int64_t first = group_first[task / chunks];
    score_keys(*context.kernels, context.scratch_of(thread), args, first,
               group_first[task / chunks + 1] - first, task % chunks * kTaskKeys, scores + (first - begin));
  });
  constexpr int64_t kSelectWork = 10;
  run_rows(context, end - begin, kSelectWork * total / (end - begin), [&](int64_t row, int thread) {
    select_row(args, context.scratch_of(thread), begin + row, scores[row]);
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
    } while (end < args.rows && total + scored_keys(args, end).count <= kBatchScores);
    select_batch(context, args, begin, end, total);
    begin = end;
  }
}

}  // namespace fathom::cpu
