#include "limits.h"

#include "cpu/select.h"
#include "limits_amx.h"

#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <thread>

namespace fathom::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds from the moment all threads are ready until all are done; best of `tries`.
double best_seconds(int threads, int tries, const std::function<void(int)>& work) {
  double best = 1e9;
  for (int attempt = 0; attempt < tries; ++attempt) {
    std::atomic<int> waiting{threads};
    const auto run = [&](int thread) {
      waiting.fetch_sub(1);
      while (waiting.load() > 0) {
      }
      work(thread);
    };
    Clock::time_point begin;
    {
      std::vector<std::jthread> others;
      for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
      while (waiting.load() > 1) {
      }
      begin = Clock::now();
      run(0);
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// Of one try: milliseconds even for many threads, so that their start does not count. A piece returns after the
// whole buffer.
constexpr int64_t kPieceBytes = int64_t{1} << 28;
constexpr int64_t kAccumulators = 12;              // more than latency times throughput of every kind
constexpr int64_t kSteps = 100'000;
constexpr int64_t kTileSteps = 10'000;

const char* read_buffer() {
  static const std::unique_ptr<char[]> buffer = [] {
    const auto size = static_cast<size_t>(uncached_bytes());
    std::unique_ptr<char[]> bytes(new char[size]);
    std::memset(bytes.get(), 1, size);
    return bytes;
  }();
  return buffer.get();
}

// Eight streams side by side, as a matrix product reads eight rows, so that the read-ahead of the processor
// is not the limit.
__attribute__((target("avx2"))) void read_range(const char* data, int64_t bytes) {
  constexpr int kStreams = 8;
  const int64_t part = bytes / kStreams / 64 * 64;
  __m256i sum = _mm256_setzero_si256();
  for (int64_t at = 0; at < part; at += 64) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const char* p = data + stream * part + at;
      _mm_prefetch(p + 1024, _MM_HINT_T0);
      sum = _mm256_xor_si256(sum, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
      sum = _mm256_xor_si256(sum, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)));
    }
  }
  asm volatile("" ::"x"(sum));
}

// Twelve independent chains of one instruction, each in a register of its own.
#define FATHOM_12(do) \
  do (0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)
#define FATHOM_ZERO(i) auto sum##i = x;
#define FATHOM_STEP(i) sum##i = FATHOM_INSTRUCTION(sum##i);
#define FATHOM_CHAINS(function, isa, zero)                                                         \
  __attribute__((target(isa))) void function() {                                                   \
    const auto x = zero;                                                                           \
    FATHOM_12(FATHOM_ZERO)                                                                         \
    for (int64_t at = 0; at < kSteps; ++at) {                                                      \
      FATHOM_12(FATHOM_STEP)                                                                       \
      asm volatile("" : "+v"(sum0), "+v"(sum1), "+v"(sum2), "+v"(sum3), "+v"(sum4), "+v"(sum5));   \
      asm volatile("" : "+v"(sum6), "+v"(sum7), "+v"(sum8), "+v"(sum9), "+v"(sum10), "+v"(sum11)); \
    }                                                                                              \
  }
#define FATHOM_INSTRUCTION(sum) _mm256_fmadd_ps(x, x, sum)
FATHOM_CHAINS(fma_avx2, "avx2,fma", _mm256_setzero_ps())
#undef FATHOM_INSTRUCTION
#define FATHOM_INSTRUCTION(sum) _mm512_fmadd_ps(x, x, sum)
FATHOM_CHAINS(fma_avx512, "avx512f", _mm512_setzero_ps())
#undef FATHOM_INSTRUCTION
#define FATHOM_INSTRUCTION(sum) _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)x)
FATHOM_CHAINS(dot_bf16, "avx512f,avx512bf16", _mm512_setzero_ps())
#undef FATHOM_INSTRUCTION
#define FATHOM_INSTRUCTION(sum) _mm512_dpbusd_epi32(sum, x, x)
FATHOM_CHAINS(dot_int8, "avx512f,avx512vnni", _mm512_setzero_si512())
#undef FATHOM_INSTRUCTION
#undef FATHOM_CHAINS
#undef FATHOM_STEP
#undef FATHOM_ZERO
#undef FATHOM_12

struct Kind {
  const char* name;
  int ops;  // of one instruction
  void (*chains)();
  bool (*is_available)();
  int64_t instructions = kSteps * kAccumulators;
};
void bf16_tiles() { multiply_bf16_tiles(kTileSteps); }
void int8_tiles() { multiply_int8_tiles(kTileSteps); }
constexpr int64_t kTileProducts = kTileSteps * kTileChains;

const Kind& kind_of(Rate rate) {
  static const Kind kinds[] = {
      {"AVX2 float32 FMA", 16, fma_avx2,
       [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
      {"AVX-512 float32 FMA", 32, fma_avx512, [] { return __builtin_cpu_supports("avx512f") != 0; }},
      {"AVX-512 bfloat16 dot", 64, dot_bf16, [] { return __builtin_cpu_supports("avx512bf16") != 0; }},
      {"AVX-512 int8 dot (VNNI)", 128, dot_int8, [] { return __builtin_cpu_supports("avx512vnni") != 0; }},
      {"AMX bfloat16", 2 * 16 * 16 * 32, bf16_tiles, has_amx, kTileProducts},
      {"AMX int8", 2 * 16 * 16 * 64, int8_tiles, has_amx, kTileProducts},
  };
  return kinds[static_cast<int>(rate)];
}

}  // namespace

int64_t uncached_bytes() {
  constexpr int64_t kGiB = int64_t{1} << 30, kLargeCache = 64 << 20;
  const bool cache_is_large = sysconf(_SC_LEVEL3_CACHE_SIZE) > kLargeCache;
  const int64_t free_bytes = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  static const int64_t bytes = cache_is_large && free_bytes > 8 * kGiB ? 2 * kGiB : kGiB;
  return bytes;
}

double read_bandwidth(int threads) {
  static std::map<int, double> measured;
  double& result = measured[threads];
  if (result == 0) {
    const int64_t part = kPieceBytes / threads;
    const char* piece = read_buffer();
    const char* end = piece + uncached_bytes();
    const auto next_piece = [&] { piece = piece + kPieceBytes < end ? piece + kPieceBytes : read_buffer(); };
    double seconds = 1e9;
    constexpr int64_t kPasses = 6;
    for (int64_t attempt = 0; attempt < kPasses * uncached_bytes() / kPieceBytes; ++attempt, next_piece())
      seconds = std::min(
          seconds, best_seconds(threads, 1, [&](int thread) { read_range(piece + thread * part, part); }));
    result = static_cast<double>(kPieceBytes) / seconds;
  }
  return result;
}

const char* rate_name(Rate rate) { return kind_of(rate).name; }

double peak_rate(Rate rate, int threads) {
  static std::map<std::pair<Rate, int>, double> measured;
  double& result = measured[{rate, threads}];
  const Kind& kind = kind_of(rate);
  if (result == 0 && kind.is_available()) {
    const double seconds = best_seconds(threads, 300, [&](int) { kind.chains(); });
    result = static_cast<double>(threads * kind.ops * kind.instructions) / seconds;
  }
  return result;
}

int usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

bool has_amx() { return available_cpu_isas().front() == CpuIsa::kAmx; }

}  // namespace fathom::bench
