// What the context costs a decoded token of the released shape: attention of one layer (128 window rows and 512
// selected ones, 64 heads of 512), and everything that depends on the context in all layers, as a share of
// the time in which the token's weights can be read from memory. The memory's rate is measured in the same run.
#include <benchmark/benchmark.h>

#include "context_data.h"
#include "limits.h"

namespace {

using namespace fathom;
using namespace fathom::bench;
using Role = IndexData::Role;

// Arguments: compressed rows attended to (0: a layer with its window alone), threads.
void attention(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const bool with_selection = state.range(0) != 0;
  const auto backend = backend_of(threads);
  AttentionData data(64 << 10);
  const double seconds =
      best_seconds(state, [&] { backend->sparse_attention(data.args(with_selection)); });
  const double operations = 4.0 * kHeads * kHeadDim * (kWindow + (with_selection ? kTopK : 0));
  state.counters["best_us"] = seconds * 1e6;
  state.counters["GF/s"] = operations / seconds / 1e9;
  state.counters["fraction"] = operations / seconds / peak_rate(Rate::kFmaAvx2, threads);
}

// Arguments: tokens of context, threads. 40 layers: two with a window alone; four sources of keys, three of them
// with a row for two tokens; four more that choose among the last source's candidates.
void token(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(1));
  const int64_t context = state.range(0);
  const auto backend = backend_of(threads);
  std::vector<IndexData> sources;
  for (int source = 0; source < 4; ++source)
    sources.emplace_back(*backend, source < 3 ? context / 2 : context);
  std::vector<AttentionData> layers;
  for (int layer = 0; layer < 40; ++layer) layers.emplace_back(4096);
  double selecting = 0, best_selecting = 1e9;
  const double seconds = best_seconds(state, [&] {
    const auto begin = std::chrono::steady_clock::now();
    for (int source = 0; source < 4; ++source)
      backend->index_select(
          sources[static_cast<size_t>(source)].args(source < 3 ? Role::kPlain : Role::kBuildsCandidates));
    for (int again = 0; again < 4; ++again) backend->index_select(sources[3].args(Role::kUsesCandidates));
    selecting = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best_selecting = std::min(best_selecting, selecting);
    for (size_t layer = 0; layer < layers.size(); ++layer)
      backend->sparse_attention(layers[layer].args(layer >= 2));
  });
  state.counters["best_ms"] = seconds * 1e3;
  state.counters["select_ms"] = best_selecting * 1e3;
  state.counters["limit_GB/s"] = read_bandwidth(threads) / 1e9;
  state.counters["of_q2_token"] = seconds / (kQ2TokenBytes / read_bandwidth(threads));
  state.counters["of_official"] = seconds / (kOfficialTokenBytes / read_bandwidth(threads));
}

void token_arguments(benchmark::internal::Benchmark* benchmark) {
  for (int threads = 1; threads <= usable_threads(); threads *= 2)
    for (int64_t context : {8, 32, 128, 1024}) benchmark->Args({context << 10, threads});
}
void attention_arguments(benchmark::internal::Benchmark* benchmark) {
  for (int threads = 1; threads <= usable_threads(); threads *= 2)
    for (int selected : {0, kTopK}) benchmark->Args({selected, threads});
}
BENCHMARK(attention)->Apply(attention_arguments)->ArgNames({"selected", "threads"})->UseRealTime();
BENCHMARK(token)->Apply(token_arguments)->ArgNames({"context", "threads"})->UseRealTime()->MinTime(1);

}  // namespace

BENCHMARK_MAIN();
