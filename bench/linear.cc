// Matrix products and experts of the CPU backend: bytes of weights and operations a second.
// bench_linear --benchmark_filter=fp8
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "cpu/backend.h"

namespace {

using fathom::DType;
using fathom::WeightMatrix;

struct Weight {
  WeightMatrix matrix;
  std::vector<std::byte> data, scales;

  Weight(DType type, int64_t rows, int64_t cols) {
    matrix.type = type;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.row_bytes = fathom::row_bytes_of(type, cols);
    data.resize(static_cast<size_t>(rows * matrix.row_bytes));
    std::minstd_rand random(1);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random() % 0x3C);
    matrix.data = data.data();
    matrix.scale_row_bytes = (cols + 31) / 32;
    scales.assign(static_cast<size_t>(rows * matrix.scale_row_bytes), std::byte{120});
    matrix.scales = scales.data();
  }
};

constexpr DType kTypes[] = {DType::kFp8Tile32, DType::kFp4Row32, DType::kBF16, DType::kF32,
                            DType::kQ8_0,      DType::kQ4_K,     DType::kQ2_K};

// Arguments: type, outputs, columns, rows, threads.
void linear(benchmark::State& state) {
  const Weight weight(kTypes[state.range(0)], state.range(1), state.range(2));
  const int64_t rows = state.range(3);
  std::vector<float> in(static_cast<size_t>(rows * weight.matrix.cols), 0.5f);
  std::vector<float> out(static_cast<size_t>(rows * weight.matrix.rows));
  auto made = fathom::make_cpu_backend({.thread_count = static_cast<int>(state.range(4))});
  fathom::Backend& backend = *made.value();
  for (auto _ : state)
    backend.linear(
        {.in = in.data(), .weight = &weight.matrix, .rows = rows, .out = out.data(), .round_to_bf16 = true});
  const double products = static_cast<double>(rows * weight.matrix.rows * weight.matrix.cols);
  state.SetLabel(std::string(fathom::dtype_name(weight.matrix.type)));
  state.SetBytesProcessed(state.iterations() * fathom::weight_bytes(weight.matrix));
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * products, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(linear)
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6}, {512}, {512}, {1, 2, 6, 128}, {1}})
    ->ArgsProduct({{0, 1}, {2304}, {5120}, {1, 6, 128}, {1, 2}})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
