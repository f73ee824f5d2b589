// Weights a second and core that the encoders write, of normally distributed rows with an importance for each
// column. The row of 16,384 float32 stays in cache: encoders are bound by arithmetic, not by memory.
#include "quantize/encode.h"

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "tensor/weight.h"

namespace fathom {
namespace {

constexpr int64_t kCols = 16384;

struct Input {
  std::vector<float> values = std::vector<float>(kCols);
  std::vector<float> importance = std::vector<float>(kCols);

  Input() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& value : values) value = 0.02f * normal(random);
    for (float& weight : importance) weight = normal(random) * normal(random);
    for (float& weight : importance) weight *= weight;
  }
};
const Input& input() {
  static const Input made;
  return made;
}

void row(benchmark::State& state, DType type) {
  std::vector<std::byte> out(static_cast<size_t>(row_bytes_of(type, kCols)));
  for (auto _ : state) {
    encode_row(type, input().values, input().importance, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * kCols);
}

void fp8_tiles(benchmark::State& state) {
  std::vector<std::byte> codes(kCols), scales(kCols / 1024);
  for (auto _ : state) {
    encode_fp8_tiles({.values = input().values.data(), .rows = 32, .cols = kCols / 32}, codes.data(),
                     scales.data());
    benchmark::DoNotOptimize(codes.data());
  }
  state.SetItemsProcessed(state.iterations() * kCols);
}
BENCHMARK(fp8_tiles);

void affine(benchmark::State& state) {
  const int bits = static_cast<int>(state.range(0));
  std::vector<std::byte> codes(static_cast<size_t>(kCols / 8 * bits)), scales(kCols / 32), biases(kCols / 32);
  for (auto _ : state) {
    encode_affine_row(input().values, input().importance,
                      {.codes = codes.data(), .scales = scales.data(), .biases = biases.data(),
                       .scale_type = DType::kBF16, .bits = bits, .group = 64});
    benchmark::DoNotOptimize(codes.data());
  }
  state.SetItemsProcessed(state.iterations() * kCols);
}
BENCHMARK(affine)->ArgName("bits")->Arg(2)->Arg(4)->Arg(8);

void repack_fp4(benchmark::State& state) {
  std::vector<std::byte> codes(kCols / 2), scales(kCols / 32), blocks(kCols / 32 * 17);
  encode_fp4_row(input().values, {}, codes.data(), scales.data());
  for (auto _ : state) {
    repack_fp4_as_mxfp4(codes.data(), scales.data(), kCols, blocks.data());
    benchmark::DoNotOptimize(blocks.data());
  }
  state.SetItemsProcessed(state.iterations() * kCols);
}
BENCHMARK(repack_fp4);

const bool kRegistered = [] {
  for (const DType type :
       {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
        DType::kQ6_K, DType::kIQ2_XXS, DType::kIQ3_XXS, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4})
    benchmark::RegisterBenchmark(("row/" + std::string(dtype_name(type))).c_str(), row, type);
  return true;
}();

}  // namespace
}  // namespace fathom

BENCHMARK_MAIN();
