#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/float_types.h"
#include "ops/kv_format.h"
#include "ops/reference/backend.h"

namespace fathom::reference {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The best `count` of `order` by score, ties to the lower index, returned in ascending index.
std::vector<int32_t> best(std::vector<int32_t> order, const std::vector<float>& score, size_t count) {
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float of_a = orderable(score[static_cast<size_t>(a)]), of_b = orderable(score[static_cast<size_t>(b)]);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  if (order.size() > count) order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

void write_padded(const std::vector<int32_t>& values, int32_t* out, int size) {
  std::fill(std::copy(values.begin(), values.end(), out), out + size, -1);
}

std::vector<float> key_scores(const IndexSelectArgs& args, int64_t row) {
  const IndexRow& where = args.row[row];
  const int64_t key_bytes = kv_row_bytes(args.key_format, args.key_dim);
  const bool official = args.numerics == Numerics::kOfficial;
  std::vector<float> key(static_cast<size_t>(args.key_dim));
  std::vector<float> scores(static_cast<size_t>(where.visible));
  std::vector<float> head_weights(static_cast<size_t>(args.heads));
  for (int head = 0; head < args.heads; ++head) {
    const float weight = args.head_weights[row * args.heads + head] * args.head_weight_scale;
    head_weights[static_cast<size_t>(head)] = official ? round_to_bf16(weight) : weight;
  }
  for (int32_t j = 0; j < where.visible; ++j) {
    decode_kv_row(args.key_format, where.keys + j * key_bytes, args.key_dim, key.data());
    float sum = 0;
    for (int head = 0; head < args.heads; ++head) {
      float similarity = dot(args.query + (row * args.heads + head) * args.key_dim, key.data(), args.key_dim);
      if (official) similarity = round_to_bf16(similarity);
      const float product = std::max(similarity, 0.0f) * head_weights[static_cast<size_t>(head)];
      sum += official ? round_to_bf16(product) : product;
    }
    scores[static_cast<size_t>(j)] = official ? round_to_bf16(sum) : sum;
  }
  return scores;
}

// A block's score is its best visible key's; the newest block always stays, whatever its score.
std::vector<int32_t> candidate_blocks(const std::vector<float>& scores, int block_size, int max_blocks) {
  const int32_t visible = static_cast<int32_t>(scores.size());
  const int32_t blocks = (visible + block_size - 1) / block_size;
  std::vector<float> block_scores(static_cast<size_t>(blocks), kMinusInfinity);
  for (int32_t j = 0; j < visible; ++j) {
    float& score = block_scores[static_cast<size_t>(j / block_size)];
    score = std::max(score, scores[static_cast<size_t>(j)]);
  }
  if (blocks > 0) block_scores.back() = std::numeric_limits<float>::infinity();
  std::vector<int32_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  return best(std::move(order), block_scores, static_cast<size_t>(max_blocks));
}

}  // namespace

void ReferenceBackend::index_select(const IndexSelectArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const std::vector<float> scores = key_scores(args, row);
    const int32_t visible = args.row[row].visible;
    if (args.scores != nullptr) {
      float* out = args.scores + row * args.score_stride;
      std::fill(std::copy(scores.begin(), scores.end(), out), out + args.score_stride, kMinusInfinity);
    }
    if (args.candidate_blocks != nullptr)
      write_padded(candidate_blocks(scores, args.block_size, args.max_blocks),
                   args.candidate_blocks + row * args.max_blocks, args.max_blocks);
    std::vector<int32_t> order;
    if (args.allowed_blocks == nullptr) {
      order.resize(static_cast<size_t>(visible));
      std::iota(order.begin(), order.end(), 0);
    } else {
      const int32_t* blocks = args.allowed_blocks + row * args.max_blocks;
      for (int slot = 0; slot < args.max_blocks && blocks[slot] >= 0; ++slot)
        for (int32_t j = blocks[slot] * args.block_size;
             j < std::min((blocks[slot] + 1) * args.block_size, visible); ++j)
          order.push_back(j);
    }
    write_padded(best(std::move(order), scores, static_cast<size_t>(args.top_k)),
                 args.selected + row * args.top_k, args.top_k);
  }
}

}  // namespace fathom::reference
