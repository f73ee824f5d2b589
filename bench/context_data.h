// Caches of the released shape, filled with noise: what one decoded token reads of its context.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <random>
#include <vector>

#include "cpu/backend.h"
#include "ops/kv_format.h"

namespace fathom::bench {

constexpr int kHeads = 64, kHeadDim = 512, kWindow = 128, kTopK = 512;
constexpr int kIndexHeads = 32, kIndexDim = 128;
constexpr int kCandidateBlock = 8, kCandidateBlocks = 2048;
// Encoded weights that a decoded token reads of a pack with IQ2_XXS and Q2_K experts, and of the release.
constexpr double kQ2TokenBytes = 10.7e9, kOfficialTokenBytes = 13.0e9;

inline std::unique_ptr<Backend> backend_of(int64_t threads) {
  return std::move(make_cpu_backend({.thread_count = static_cast<int>(threads)})).value();
}

/// Rows of a cache: any code is a number (the largest of fp8 apart), scales are near one.
inline std::vector<std::byte> noise_rows(KvFormat format, int64_t rows, int64_t width) {
  const int64_t row_bytes = kv_row_bytes(format, width);
  const int64_t codes = format == KvFormat::kFp8Group32 ? width : width / 2;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes));
  std::minstd_rand random(1);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t at = 0; at < row_bytes; ++at) {
      const uint32_t draw = random() >> 8;
      const uint32_t code = format == KvFormat::kFp8Group32 ? (draw & 0x80) | (draw >> 8) % 0x60 : draw & 0xFF;
      const uint32_t scale = (format == KvFormat::kFp4Group16 ? 0x30 : 118) + draw % 5;
      bytes[static_cast<size_t>(row * row_bytes + at)] = static_cast<std::byte>(at < codes ? code : scale);
    }
  return bytes;
}

inline std::vector<float> noise(int64_t count, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 256) / 128.0f - 1.0f;
  return values;
}

/// Best seconds of the iterations: the only number to trust on a machine with other work.
template <class Function>
double best_seconds(benchmark::State& state, Function&& function) {
  double best = 1e9;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    function();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

/// Index keys of one cache, and a query for them.
struct IndexData {
  std::vector<std::byte> keys;
  std::vector<float> query, head_weights;
  IndexRow row;
  std::vector<int32_t> selected, blocks;

  IndexData(Backend& backend, int64_t count)
      : keys(noise_rows(KvFormat::kFp4Group32, count, kIndexDim)),
        query(noise(kIndexHeads * kIndexDim, 2)),
        head_weights(noise(kIndexHeads, 3)),
        row{.keys = keys.data(), .visible = static_cast<int32_t>(count)},
        selected(kTopK),
        blocks(kCandidateBlocks) {
    backend.fake_quantize(
        {.data = query.data(), .rows = kIndexHeads, .width = kIndexDim, .format = KvFormat::kFp4Group32});
  }
  enum class Role { kPlain, kBuildsCandidates, kUsesCandidates };
  IndexSelectArgs args(Role role) {
    return {.query = query.data(),
            .head_weights = head_weights.data(),
            .head_weight_scale = 1.0f / 64,
            .row = &row,
            .rows = 1,
            .heads = kIndexHeads,
            .key_dim = kIndexDim,
            .key_format = KvFormat::kFp4Group32,
            .top_k = kTopK,
            .selected = selected.data(),
            .block_size = kCandidateBlock,
            .max_blocks = kCandidateBlocks,
            .allowed_blocks = role == Role::kUsesCandidates ? blocks.data() : nullptr,
            .candidate_blocks = role == Role::kBuildsCandidates ? blocks.data() : nullptr,
            .scores = nullptr,
            .score_stride = 0,
            .numerics = Numerics::kOfficial};
  }
};

/// What attention of one token reads in one layer.
struct AttentionData {
  std::vector<std::byte> ring, compressed;
  std::vector<float> query, sinks, out;
  AttentionRow row;
  std::vector<int32_t> selected;

  explicit AttentionData(int64_t compressed_rows)
      : ring(noise_rows(KvFormat::kFp8Group32, kWindow, kHeadDim)),
        compressed(noise_rows(KvFormat::kFp4Group16, compressed_rows, kHeadDim)),
        query(noise(kHeads * kHeadDim, 2)),
        sinks(noise(kHeads, 3)),
        out(static_cast<size_t>(kHeads * kHeadDim)),
        row{.ring = ring.data(),
            .fresh = ring.data(),
            .compressed = compressed.data(),
            .ring_slots = kWindow,
            .fresh_begin = 100000,
            .window_begin = 100000 - kWindow + 1,
            .position = 100000},
        selected(kTopK) {
    for (int slot = 0; slot < kTopK; ++slot)
      selected[static_cast<size_t>(slot)] = static_cast<int32_t>(slot * compressed_rows / kTopK);
  }
  SparseAttentionArgs args(bool with_selection) {
    return {.query = query.data(),
            .row = &row,
            .selected = with_selection ? selected.data() : nullptr,
            .sinks = sinks.data(),
            .rows = 1,
            .heads = kHeads,
            .head_dim = kHeadDim,
            .window = kWindow,
            .top_k = kTopK,
            .scale = 0.0442f,
            .window_format = KvFormat::kFp8Group32,
            .compressed_format = KvFormat::kFp4Group16,
            .out = out.data(),
            .numerics = Numerics::kOfficial};
  }
};

}  // namespace fathom::bench
