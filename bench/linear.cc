// Matrix products of the CPU backend as fractions of what the machine allows, measured in the same run: one
// row against the memory's read rate, many rows against the rate of products in bfloat16. bench_linear
// --benchmark_filter=decode
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "cpu/backend.h"
#include "limits.h"
#include "tensor/quantize.h"

namespace {

using namespace fathom;

struct Kind {
  const char* name;
  DType type;
  int bits = 0;
};
constexpr Kind kKinds[] = {{"fp8_tile32", DType::kFp8Tile32}, {"fp4_row32", DType::kFp4Row32},
                           {"mxfp4", DType::kMXFP4},          {"bf16", DType::kBF16},
                           {"f16", DType::kF16},              {"f32", DType::kF32},
                           {"q8_0", DType::kQ8_0},            {"q6_k", DType::kQ6_K},
                           {"q5_k", DType::kQ5_K},            {"q4_k", DType::kQ4_K},
                           {"q3_k", DType::kQ3_K},            {"q2_k", DType::kQ2_K},
                           {"iq4_nl", DType::kIQ4_NL},        {"iq4_xs", DType::kIQ4_XS},
                           {"iq3_s", DType::kIQ3_S},          {"iq3_xxs", DType::kIQ3_XXS},
                           {"iq2_s", DType::kIQ2_S},          {"iq2_xs", DType::kIQ2_XS},
                           {"iq2_xxs", DType::kIQ2_XXS},      {"iq1_m", DType::kIQ1_M},
                           {"iq1_s", DType::kIQ1_S},          {"affine8", DType::kAffine, 8},
                           {"affine6", DType::kAffine, 6},    {"affine5", DType::kAffine, 5},
                           {"affine4", DType::kAffine, 4},    {"affine3", DType::kAffine, 3},
                           {"affine2", DType::kAffine, 2}};

/// Bytes that make weights of any encoding, kept from one benchmark to the next: noise, below 0x3C so that every
/// encoding stays finite. MXFP4 has its scales among the codes.
std::byte* weight_data(size_t size, bool has_scales) {
  static std::unique_ptr<std::byte[]> bytes;
  static size_t filled = 0;
  static bool filled_with_scales = false;
  if (filled >= size && filled_with_scales == has_scales) return bytes.get();
  constexpr size_t kPiece = 17 << 16;
  std::minstd_rand random(1);
  std::vector<std::byte> piece(kPiece);
  for (size_t at = 0; at < kPiece; ++at)
    piece[at] = has_scales && at % 17 == 0 ? std::byte{120} : static_cast<std::byte>(random() % 0x3C);
  if (filled < size) bytes.reset(new std::byte[size]);
  filled = std::max(filled, size);
  filled_with_scales = has_scales;
  for (size_t at = 0; at < filled; at += kPiece)
    std::copy_n(piece.data(), std::min(kPiece, filled - at), bytes.get() + at);
  return bytes.get();
}

/// Matrices side by side, so many that none is still cached when its turn comes again.
struct Weights {
  std::vector<WeightMatrix> matrices;
  std::vector<std::byte> scales;

  Weights(const Kind& kind, int64_t rows, int64_t cols, int64_t least_bytes) {
    WeightMatrix one;
    one.type = kind.type;
    one.rows = rows;
    one.cols = cols;
    one.bits = static_cast<uint16_t>(kind.bits);
    one.group = 64;
    one.row_bytes = row_bytes_of(kind.type, cols, kind.bits);
    const bool affine = kind.type == DType::kAffine;
    if (affine) one.scale_type = DType::kBF16;
    one.scale_row_bytes = one.bias_row_bytes = affine ? cols / 64 * 2 : (cols + 31) / 32;
    const int64_t scale_bytes = rows * one.scale_row_bytes;
    const int64_t count = std::max<int64_t>(1, least_bytes / (rows * one.row_bytes));
    const std::byte* data =
        weight_data(static_cast<size_t>(count * rows * one.row_bytes), kind.type == DType::kMXFP4);
    scales.assign(static_cast<size_t>(count * scale_bytes), std::byte{affine ? uint8_t{0x3C} : uint8_t{120}});
    for (int64_t index = 0; index < count; ++index) {
      WeightMatrix matrix = one;
      matrix.data = data + index * rows * one.row_bytes;
      matrix.scales = matrix.biases = scales.data() + index * scale_bytes;
      matrices.push_back(matrix);
    }
  }
};

// Activations as the release's forward pass has them: bfloat16 numbers, for FP8 and FP4 weights FP8 ones.
std::vector<float> bf16_rows(const Kind& kind, int64_t count) {
  std::minstd_rand random(2);
  std::vector<float> rows(static_cast<size_t>(count));
  for (float& value : rows) value = round_to_bf16(static_cast<float>(random() % 2048) / 1024.0f - 1.0f);
  const bool is_released =
      kind.type == DType::kFp8Tile32 || kind.type == DType::kFp8Row32 || kind.type == DType::kFp4Row32;
  if (is_released) fake_quantize_q8(rows.data(), rows.data(), count);
  return rows;
}

CpuIsa isa = CpuIsa::kAuto;  // --isa=NAME

std::unique_ptr<Backend> backend_of(int64_t threads) {
  return std::move(make_cpu_backend({.thread_count = static_cast<int>(threads), .isa = isa})).value();
}

// Of products in bfloat16 with the best instructions that the kernels use.
double multiplication_limit(int threads) {
  const CpuIsa used = isa == CpuIsa::kAuto ? available_cpu_isas().front() : isa;
  return bench::peak_rate(used == CpuIsa::kAmx      ? bench::Rate::kBf16Amx
                          : used == CpuIsa::kAvx512 ? bench::Rate::kBf16Dot
                                                    : bench::Rate::kFmaAvx2,
                          threads);
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

// Arguments: kind, outputs, columns, threads. Every product takes another matrix.
void decode(benchmark::State& state) {
  const Kind& kind = kKinds[state.range(0)];
  const int threads = static_cast<int>(state.range(3));
  const Weights weights(kind, state.range(1), state.range(2), bench::uncached_bytes());
  const std::vector<float> in = bf16_rows(kind, state.range(2));
  std::vector<float> out(static_cast<size_t>(state.range(1)));
  const auto backend = backend_of(threads);
  size_t next = 0;
  const double seconds = best_seconds(state, [&] {
    backend->linear({.in = in.data(), .weight = &weights.matrices[next], .rows = 1, .out = out.data(),
                     .round_to_bf16 = true, .inputs_are_bf16 = true});
    next = (next + 1) % weights.matrices.size();
  });
  const double rate = static_cast<double>(weight_bytes(weights.matrices[0])) / seconds;
  state.SetLabel(kind.name);
  state.counters["GB/s"] = rate / 1e9;
  state.counters["limit"] = bench::read_bandwidth(threads) / 1e9;
  state.counters["fraction"] = rate / bench::read_bandwidth(threads);
}

// Arguments: kind, outputs, columns, rows, threads.
void prefill(benchmark::State& state) {
  const Kind& kind = kKinds[state.range(0)];
  const int64_t rows = state.range(3);
  const int threads = static_cast<int>(state.range(4));
  const Weights weights(kind, state.range(1), state.range(2), 1);
  const std::vector<float> in = bf16_rows(kind, rows * state.range(2));
  std::vector<float> out(static_cast<size_t>(rows * state.range(1)));
  const auto backend = backend_of(threads);
  const double seconds = best_seconds(state, [&] {
    backend->linear({.in = in.data(), .weight = &weights.matrices[0], .rows = rows, .out = out.data(),
                     .round_to_bf16 = true, .inputs_are_bf16 = true});
  });
  const double limit = multiplication_limit(threads);
  const double rate = 2.0 * static_cast<double>(rows * state.range(1) * state.range(2)) / seconds;
  state.SetLabel(kind.name);
  state.counters["GF/s"] = rate / 1e9;
  state.counters["limit"] = limit / 1e9;
  state.counters["fraction"] = rate / limit;
}

void decode_arguments(benchmark::internal::Benchmark* benchmark) {
  for (int64_t kind = 0; kind < std::ssize(kKinds); ++kind)
    for (int threads = 1; threads <= bench::usable_threads(); threads *= 2)
      benchmark->Args({kind, 5120, 5120, threads});
  // Projections of an expert: fp4, q2_k, iq2_xxs.
  for (int64_t kind : {1, 11, 18})
    for (bool is_down : {false, true})
      benchmark->Args({kind, is_down ? 5120 : 2304, is_down ? 2304 : 5120, bench::usable_threads()});
}
void prefill_arguments(benchmark::internal::Benchmark* benchmark) {
  for (int64_t kind = 0; kind < std::ssize(kKinds); ++kind)
    benchmark->Args({kind, 1024, 5120, 512, bench::usable_threads()});
  for (int64_t kind : {0, 1, 3})
    for (int64_t rows : {64, 2048}) benchmark->Args({kind, 512, 512, rows, bench::usable_threads()});
  // Short enough to meet a shared machine idle, as the limit does; by threads; and as long prompts are multiplied:
  // fp8, fp4, bf16, q4_k.
  for (int64_t kind : {0, 1, 3, 9}) {
    benchmark->Args({kind, 256, 5120, 512, 1});
    for (int threads = 1; threads < bench::usable_threads(); threads *= 2)
      benchmark->Args({kind, 1024, 5120, 512, threads});
    for (int64_t rows : {512, 2048}) benchmark->Args({kind, 5120, 5120, rows, bench::usable_threads()});
  }
}
BENCHMARK(decode)->Apply(decode_arguments)->UseRealTime()->MinTime(0.4);
BENCHMARK(prefill)->Apply(prefill_arguments)->UseRealTime()->MinTime(0.4);

}  // namespace

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  for (int index = 1; index < count; ++index) {
    const std::string_view argument = arguments[index];
    const Result<CpuIsa> named = parse_cpu_isa(argument.substr(argument.find('=') + 1));
    if (!argument.starts_with("--isa=") || !named.ok()) {
      fmt::print(stderr, "bench_linear: found {}, expected --isa=NAME or --benchmark_...\n", argument);
      return 2;
    }
    isa = named.value();
  }
  benchmark::RunSpecifiedBenchmarks();
}
