// Scoring all index keys of a context for one decoded token, and choosing the best: the packed keys' bytes a
// second as a fraction of the memory's read rate, measured in the same run.
#include <benchmark/benchmark.h>

#include "context_data.h"
#include "limits.h"

namespace {

using namespace fathom;
using namespace fathom::bench;
using Role = IndexData::Role;

// Arguments: keys, role, threads. Caches take turns, so that none is still cached.
void select(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(2));
  const auto role = static_cast<Role>(state.range(1));
  const auto backend = backend_of(threads);
  const int64_t row_bytes = kv_row_bytes(KvFormat::kFp4Group32, kIndexDim);
  const int64_t caches = std::max<int64_t>(1, (int64_t{128} << 20) / (state.range(0) * row_bytes));
  std::vector<IndexData> data;
  for (int64_t cache = 0; cache < caches; ++cache) {
    data.emplace_back(*backend, state.range(0));
    if (role == Role::kUsesCandidates) backend->index_select(data.back().args(Role::kBuildsCandidates));
  }
  size_t next = 0;
  const double seconds = best_seconds(state, [&] {
    backend->index_select(data[next].args(role));
    next = (next + 1) % data.size();
  });
  const int64_t scored = role == Role::kUsesCandidates
                             ? std::min<int64_t>(state.range(0), kCandidateBlock * kCandidateBlocks)
                             : state.range(0);
  const double rate = static_cast<double>(scored * row_bytes) / seconds;
  state.counters["best_us"] = seconds * 1e6;
  state.counters["ns/key"] = seconds * 1e9 / static_cast<double>(scored);
  state.counters["GB/s"] = rate / 1e9;
  state.counters["fraction"] = rate / read_bandwidth(threads);
}

void arguments(benchmark::internal::Benchmark* benchmark) {
  for (int threads = 1; threads <= usable_threads(); threads *= 2)
    for (int64_t keys : {8, 32, 128, 1024})
      for (Role role : {Role::kPlain, Role::kBuildsCandidates, Role::kUsesCandidates})
        benchmark->Args({keys << 10, static_cast<int64_t>(role), threads});
}
BENCHMARK(select)->Apply(arguments)->ArgNames({"keys", "role", "threads"})->UseRealTime()->MinTime(0.2);

}  // namespace

BENCHMARK_MAIN();
