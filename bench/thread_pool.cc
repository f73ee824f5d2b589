// What it costs to hand tasks to threads that are awake, and to threads that have gone to sleep.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "base/thread_pool.h"
#include "limits.h"

namespace {

using fathom::ThreadPool;

// Arguments: threads, tasks (empty ones), microseconds of rest before the run.
void run(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const auto nothing = [](int64_t, int) {};
  double best = 1e9, total = 0;
  for (auto _ : state) {
    if (state.range(2) > 0) std::this_thread::sleep_for(std::chrono::microseconds(state.range(2)));
    const auto begin = std::chrono::steady_clock::now();
    pool.run(state.range(1), nothing);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
    state.SetIterationTime(seconds);
  }
  state.counters["best_us"] = best * 1e6;
  state.counters["mean_us"] = total * 1e6 / static_cast<double>(state.iterations());
}

void arguments(benchmark::internal::Benchmark* benchmark) {
  for (int threads = 1; threads <= fathom::bench::usable_threads(); threads *= 2)
    for (int tasks : {threads, 64, 4096})
      for (int rest : {0, 2000}) benchmark->Args({threads, tasks, rest});
}
BENCHMARK(run)->Apply(arguments)->ArgNames({"threads", "tasks", "rest_us"})->UseManualTime()->Iterations(500);

}  // namespace

BENCHMARK_MAIN();
