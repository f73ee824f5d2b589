#include "cpu/testing.h"

namespace fathom::cpu_testing {
namespace {

struct Experts {
  std::vector<TestWeight> storage;
  std::vector<ExpertWeights> routed;
  ExpertWeights shared;

  // Scales bring activations back to the size of one, so that the clamps are reached now and then.
  Experts(int count, int64_t dim, int64_t inter, DType routed_type, DType shared_type) {
    storage.reserve(static_cast<size_t>(3 * count + 3));
    const auto add = [&](DType type, int64_t rows, int64_t cols) {
      storage.push_back(make_weight(type, rows, cols, static_cast<uint32_t>(storage.size())));
      Random random(static_cast<uint32_t>(storage.size()));
      for (std::byte& scale : storage.back().scales)
        scale = std::byte{static_cast<uint8_t>(random.integer(type == DType::kFp4Row32 ? 121 : 114, 123))};
      return storage.back().matrix;
    };
    const auto expert = [&](DType type) {
      ExpertWeights weights;
      weights.gate = add(type, inter, dim);
      weights.up = add(type, inter, dim);
      weights.down = add(type, dim, inter);
      return weights;
    };
    for (int index = 0; index < count; ++index) routed.push_back(expert(routed_type));
    shared = expert(shared_type);
  }
};

void check_experts(const Experts& experts, int64_t dim, int64_t inter, bool quantize, Numerics numerics,
                   const Bound& bound) {
  constexpr int64_t kRows = 23;
  constexpr int kChosen = 3;
  Random random(20);
  const int count = static_cast<int>(experts.routed.size());
  const std::vector<float> in = random.bf16s(kRows * dim), shared_in = random.bf16s(kRows * dim);
  std::vector<float> weights = random.floats(kRows * kChosen);
  std::vector<int32_t> ids;
  // Expert 1 is never chosen; expert 0 by almost every row.
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<int32_t> chosen = {row == 7 ? 3 : 0};
    for (int id = 2 + static_cast<int>(row % 3); chosen.size() < kChosen; id += 2)
      if (id != chosen[0]) chosen.push_back(id % count);
    std::sort(chosen.begin(), chosen.end());
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  check_operation(
      "expert_ffn", kRows, dim,
      [&](Backend& backend, int64_t first, int64_t rows, float* out) {
        backend.expert_ffn({.in = in.data() + first * dim,
                            .shared_in = shared_in.data() + first * dim,
                            .ids = ids.data() + first * kChosen,
                            .weights = weights.data() + first * kChosen,
                            .routed = experts.routed.data(),
                            .shared = &experts.shared,
                            .rows = rows,
                            .experts = count,
                            .experts_per_token = kChosen,
                            .dim = dim,
                            .inter = inter,
                            .limit = 10.0f,
                            .quantize_routed = quantize,
                            .quantize_shared = quantize,
                            .out = out + first * dim,
                            .numerics = numerics});
      },
      bound);
}

TEST(CpuExperts, MatchTheDefinition) {
  const Experts plain(9, 96, 64, DType::kFp4Row32, DType::kFp8Tile32);
  check_experts(plain, 96, 64, false, Numerics::kExact, {.of_norm = 1e-5f});
  const Experts odd(9, 50, 41, DType::kBF16, DType::kF32);
  check_experts(odd, 50, 41, false, Numerics::kExact, {.of_norm = 1e-5f});
  const Experts blocks(9, 96, 64, DType::kQ8_0, DType::kMXFP4);
  check_experts(blocks, 96, 64, false, Numerics::kExact, {.of_norm = 1e-5f});
}

TEST(CpuExperts, MatchTheDefinitionWithQuantisers) {
  // A rounding that falls the other way in front of the e4m3 quantiser can move a product by 2^-4 of itself.
  const Experts experts(9, 96, 64, DType::kFp4Row32, DType::kFp8Tile32);
  check_experts(experts, 96, 64, true, Numerics::kOfficial, {.of_norm = 2e-2f, .flipped_share = 0.05f});
}

}  // namespace
}  // namespace fathom::cpu_testing
