#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kv_rows.h"

namespace fathom::cpu {
namespace {

constexpr int kPlaces = 64;  // of the definition's blocks

// Decodes the keys of places [begin, begin + 64) that are present, side by side; returns how many.
int gather_keys(const Kernels& kernels, const SparseAttentionArgs& args, int64_t row, int begin, float* keys,
                int64_t stride) {
  const AttentionRow& where = args.row[row];
  const int places = args.window + (args.selected != nullptr ? args.top_k : 0);
  const int64_t window_bytes = kv_row_bytes(args.window_format, args.head_dim);
  const int64_t compressed_bytes = kv_row_bytes(args.compressed_format, args.head_dim);
  int count = 0;
  for (int place = begin; place < std::min(begin + kPlaces, places); ++place) {
    float* key = keys + count * stride;
    if (place < args.window) {
      const int32_t p = where.window_begin + place;
      if (p > where.position) continue;
      const std::byte* in = p >= where.fresh_begin ? where.fresh + (p - where.fresh_begin) * window_bytes
                                                   : where.ring + p % where.ring_slots * window_bytes;
      decode_cache_row(kernels, args.window_format, in, args.head_dim, key);
    } else {
      const int32_t j = args.selected[row * args.top_k + place - args.window];
      if (j < 0) continue;
      decode_cache_row(kernels, args.compressed_format, where.compressed + j * compressed_bytes,
                       args.head_dim, key);
    }
    std::fill(key + args.head_dim, key + stride, 0.0f);
    ++count;
  }
  return count;
}

void divide(float* values, int64_t count, float divisor) {
  constexpr int64_t kTogether = 8;  // a loop of known length becomes vector instructions
  int64_t k = 0;
  for (; k + kTogether <= count; k += kTogether)
    for (int64_t i = 0; i < kTogether; ++i) values[k + i] /= divisor;
  for (; k < count; ++k) values[k] /= divisor;
}

// Heads [first_head, first_head + heads) of one row. They share the decoded keys, which are the values too.
void attend(const Kernels& kernels, Scratch& scratch, const SparseAttentionArgs& args, int64_t row,
            int first_head, int heads) {
  const bool official = args.numerics == Numerics::kOfficial;
  const int64_t width = args.head_dim;
  const int64_t stride = (width + 31) / 32 * 32 + 16;
  const int places = args.window + (args.selected != nullptr ? args.top_k : 0);
  float* keys = scratch.panel.get(kPlaces * stride);
  float* scores = scratch.values.get(int64_t{kPlaces} * heads);
  float* state = scratch.more_values.get(3 * heads);
  float* maximum = state;
  float* denominator = state + heads;
  float* correction = state + 2 * heads;
  const float** queries = scratch.in.get(heads);
  float** results = scratch.out.get(heads);
  float* sum = args.out + (row * args.heads + first_head) * width;
  std::fill(sum, sum + heads * width, 0.0f);
  for (int head = 0; head < heads; ++head) {
    queries[head] = args.query + (row * args.heads + first_head + head) * width;
    results[head] = scores + head * kPlaces;
    maximum[head] = -1e30f;
    denominator[head] = 0;
  }
  for (int begin = 0; begin < places; begin += kPlaces) {
    const int count = gather_keys(kernels, args, row, begin, keys, stride);
    if (count == 0) continue;
    std::fill(scores, scores + kPlaces * heads, -std::numeric_limits<float>::infinity());
    const Panel panel = {.data = keys, .rows = count, .stride = stride, .cols = width};
    const DotRows dots = {.in = queries, .out = results, .rows = heads};
    kernels.dot_panel(&panel, &dots);
    for (int head = 0; head < heads; ++head)
      correction[head] =
          kernels.softmax_block(results[head], args.scale, official, maximum + head, denominator + head);
    kernels.weighted_values(keys, stride, count, scores, correction, heads, sum, width);
  }
  for (int head = 0; head < heads; ++head) {
    const float total = denominator[head] + std::exp(args.sinks[first_head + head] - maximum[head]);
    divide(sum + head * width, width, total);
  }
  if (official) kernels.round_to_bf16(sum, heads * width);
}

}  // namespace

// A task is some heads of one row: all of them when there are rows enough, so that keys are decoded once.
void sparse_attention(const Context& context, const SparseAttentionArgs& args) {
  if (args.rows == 0) return;
  const int64_t wanted = args.rows >= context.thread_count() ? 1 : context.thread_count() / args.rows;
  const int64_t groups = std::min<int64_t>(args.heads, wanted);
  const int64_t places = args.window + (args.selected != nullptr ? args.top_k : 0);
  run_tasks(context, args.rows * groups, args.rows * args.heads * args.head_dim * places,
            [&](int64_t task, int thread) {
              const int64_t row = task / groups;
              const int64_t group = task % groups;
              const int first = static_cast<int>(args.heads * group / groups);
              const int last = static_cast<int>(args.heads * (group + 1) / groups);
              attend(*context.kernels, context.scratch_of(thread), args, row, first, last - first);
            });
}

}  // namespace fathom::cpu
