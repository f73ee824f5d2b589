#include "base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"

namespace fathom {
namespace {

int usable_core_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// About 20 us of spinning before a worker sleeps: longer than the gaps between the operations of one
// step, much shorter than the time between two requests.
constexpr int kSpinsBeforeSleep = 2000;

}  // namespace

struct ThreadPool::State {
  std::atomic<uint32_t> generation{0};  // counts the loops; a change wakes the workers
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  int64_t task_count = 0;
  const FunctionRef<void(int64_t, int)>* task = nullptr;
  std::vector<std::jthread> workers;
  bool stop = false;

  void work(int thread) {
    for (;;) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= task_count) return;
      (*task)(index, thread);
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
      if (stop) return;
      work(thread);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_one();
    }
  }

  void release_workers() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }
};

ThreadPool::ThreadPool(int thread_count) : state_(std::make_unique<State>()) {
  FATHOM_CHECK(thread_count >= 0);
  if (thread_count == 0) thread_count = usable_core_count();
  for (int thread = 1; thread < thread_count; ++thread)
    state_->workers.emplace_back([state = state_.get(), thread] { state->loop(thread); });
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->release_workers();
}

int ThreadPool::thread_count() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(int64_t task_count, FunctionRef<void(int64_t, int)> task) {
  State& state = *state_;
  if (task_count <= 0) return;
  if (task_count == 1 || state.workers.empty()) {
    for (int64_t index = 0; index < task_count; ++index) task(index, 0);
    return;
  }
  state.task_count = task_count;
  state.task = &task;
  state.next.store(0, std::memory_order_relaxed);
  state.busy.store(static_cast<int>(state.workers.size()), std::memory_order_relaxed);
  state.release_workers();
  state.work(0);
  int spins = 0;
  for (int busy; (busy = state.busy.load(std::memory_order_acquire)) != 0;) {
    if (++spins < kSpinsBeforeSleep) pause_core();
    else state.busy.wait(busy, std::memory_order_acquire);
  }
}

}  // namespace fathom
