#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "base/check.h"

namespace fathom {
namespace {

// Cores that this process may use, ascending; empty if the system does not tell.
std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

int usable_core_count() {
  const auto count = static_cast<int>(usable_cores().size());
  return count > 0 ? count : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // `yield` does nothing on most processors; this waits some tens of cycles
#endif
}

// About 20 us of spinning before a worker sleeps: longer than the gaps between the operations of one
// step, much shorter than the time between two requests.
constexpr int kSpinsBeforeSleep = 2000;

}  // namespace

// A run ends when its tasks have, not when every worker has looked at it: a worker that the system has put
// aside, or that wakes late, holds nobody up. It takes part in whatever run it finds.
// Each counter has a cache line of its own, and of many tasks several are claimed at once: with 16 threads, what
// a claim costs is the way of its line from core to core.
struct ThreadPool::State {
  static constexpr size_t kLine = 64;
  alignas(kLine) std::atomic<uint32_t> generation{0};  // counts runs; workers sleep on it
  alignas(kLine) std::atomic<int32_t> unclaimed{0};
  alignas(kLine) std::atomic<int32_t> unfinished{0};
  // Of the current run. Read only between claiming a task and finishing it, when the run cannot end.
  alignas(kLine) int32_t task_count = 0;
  const FunctionRef<void(int64_t, int)>* task = nullptr;
  int32_t claims = 1;  // pieces that what is left should be in: four a thread. Set before the workers start
  std::atomic<bool> stop{false};
  std::vector<std::jthread> workers;  // last: they end before what they use goes

  void work(int thread) {
    for (int32_t left = unclaimed.load(std::memory_order_acquire); left > 0;) {
      // Claims shrink towards the end, so that all threads finish together.
      const int32_t count = std::max(1, left / claims);
      if (!unclaimed.compare_exchange_weak(left, left - count, std::memory_order_acq_rel,
                                           std::memory_order_acquire))
        continue;
      for (int32_t index = task_count - left; index < task_count - left + count; ++index) (*task)(index, thread);
      if (unfinished.fetch_sub(count, std::memory_order_acq_rel) == count) unfinished.notify_one();
      left = unclaimed.load(std::memory_order_acquire);
    }
  }

  void loop(int thread) {
    uint32_t seen = 0;
    for (;;) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpinsBeforeSleep) pause_core();
        else generation.wait(seen, std::memory_order_acquire);
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      work(thread);
    }
  }

  void wake_workers() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }
};

ThreadPool::ThreadPool(int thread_count) : state_(std::make_unique<State>()) {
  FATHOM_CHECK(thread_count >= 0);
  if (thread_count == 0) thread_count = usable_core_count();
  state_->claims = 4 * thread_count;
  for (int thread = 1; thread < thread_count; ++thread)
    state_->workers.emplace_back([state = state_.get(), thread] { state->loop(thread); });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->wake_workers();
}

Result<void> ThreadPool::pin() {
  const std::vector<int> cores = usable_cores();
  if (static_cast<int>(cores.size()) < thread_count())
    return Error::invalid("cannot pin {} threads: this process may use {} core{}", thread_count(), cores.size(),
                          cores.size() == 1 ? "" : "s");
  for (size_t worker = 0; worker < state_->workers.size(); ++worker) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[worker + 1], &set);
    const int code = pthread_setaffinity_np(state_->workers[worker].native_handle(), sizeof set, &set);
    if (code != 0)
      return Error::invalid("cannot pin a thread to core {}: {}", cores[worker + 1], std::strerror(code));
  }
  return {};
}

int ThreadPool::thread_count() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(int64_t task_count, FunctionRef<void(int64_t, int)> task) {
  State& state = *state_;
  if (task_count <= 0) return;
  if (task_count == 1 || state.workers.empty()) {
    for (int64_t index = 0; index < task_count; ++index) task(index, 0);
    return;
  }
  FATHOM_CHECK(task_count <= std::numeric_limits<int32_t>::max(), "{} tasks", task_count);
  state.task_count = static_cast<int32_t>(task_count);
  state.task = &task;
  state.unfinished.store(state.task_count, std::memory_order_relaxed);
  state.unclaimed.store(state.task_count, std::memory_order_release);
  state.wake_workers();
  state.work(0);
  int spins = 0;
  for (int32_t left; (left = state.unfinished.load(std::memory_order_acquire)) != 0;) {
    if (++spins < kSpinsBeforeSleep) pause_core();
    else state.unfinished.wait(left, std::memory_order_acquire);
  }
}

}  // namespace fathom
