#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float_types.h"
#include "ops/kv_format.h"
#include "ops/reference/backend.h"

namespace fathom::reference {
namespace {

constexpr int kBlock = 64;

// One row's list of keys, decoded: `window` places for the window, then the selection. Absent places are
// marked; they take part in the blocking only.
struct KeyList {
  std::vector<float> keys;  // [places, head_dim]
  std::vector<bool> present;
};

KeyList gather_keys(const SparseAttentionArgs& args, int64_t row) {
  const AttentionRow& where = args.row[row];
  const int places = args.window + (args.selected != nullptr ? args.top_k : 0);
  KeyList list{.keys = std::vector<float>(static_cast<size_t>(places) * static_cast<size_t>(args.head_dim)),
               .present = std::vector<bool>(static_cast<size_t>(places), false)};
  const auto put = [&](int place, KvFormat format, const std::byte* base, int64_t index) {
    decode_kv_row(format, base + index * kv_row_bytes(format, args.head_dim), args.head_dim,
                  list.keys.data() + static_cast<int64_t>(place) * args.head_dim);
    list.present[static_cast<size_t>(place)] = true;
  };
  for (int32_t p = where.window_begin; p <= where.position; ++p) {
    if (p >= where.fresh_begin)
      put(p - where.window_begin, args.window_format, where.fresh, p - where.fresh_begin);
    else
      put(p - where.window_begin, args.window_format, where.ring, p % where.ring_slots);
  }
  if (args.selected != nullptr)
    for (int slot = 0; slot < args.top_k; ++slot)
      if (const int32_t j = args.selected[row * args.top_k + slot]; j >= 0)
        put(args.window + slot, args.compressed_format, where.compressed, j);
  return list;
}

void attend(const SparseAttentionArgs& args, const KeyList& list, const float* query, float sink, float* out) {
  const bool official = args.numerics == Numerics::kOfficial;
  const int places = static_cast<int>(list.present.size());
  std::vector<float> sum(static_cast<size_t>(args.head_dim), 0.0f);
  float running_max = -1e30f;
  float denominator = 0;
  for (int begin = 0; begin < places; begin += kBlock) {
    const int end = std::min(begin + kBlock, places);
    float score[kBlock];
    float block_max = running_max;
    for (int place = begin; place < end; ++place) {
      if (!list.present[static_cast<size_t>(place)]) continue;
      score[place - begin] =
          dot(query, list.keys.data() + static_cast<int64_t>(place) * args.head_dim, args.head_dim) * args.scale;
      block_max = std::max(block_max, score[place - begin]);
    }
    const float correction = std::exp(running_max - block_max);
    denominator *= correction;
    for (float& value : sum) value *= correction;
    for (int place = begin; place < end; ++place) {
      if (!list.present[static_cast<size_t>(place)]) continue;
      const float probability = std::exp(score[place - begin] - block_max);
      denominator += probability;
      // The value product takes a bfloat16 probability; the denominator does not.
      const float weight = official ? round_to_bf16(probability) : probability;
      const float* value = list.keys.data() + static_cast<int64_t>(place) * args.head_dim;
      for (int k = 0; k < args.head_dim; ++k) sum[static_cast<size_t>(k)] += weight * value[k];
    }
    running_max = block_max;
  }
  denominator += std::exp(sink - running_max);
  for (int k = 0; k < args.head_dim; ++k) {
    const float value = sum[static_cast<size_t>(k)] / denominator;
    out[k] = official ? round_to_bf16(value) : value;
  }
}

}  // namespace

void ReferenceBackend::sparse_attention(const SparseAttentionArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const KeyList list = gather_keys(args, row);
    for (int head = 0; head < args.heads; ++head) {
      const int64_t offset = (row * args.heads + head) * args.head_dim;
      attend(args, list, args.query + offset, args.sinks[head], args.out + offset);
    }
  }
}

}  // namespace fathom::reference
