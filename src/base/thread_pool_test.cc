#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace fathom {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      std::atomic<int> bad_threads{0};
      pool.run(count, [&](int64_t index, int thread) {
        calls[static_cast<size_t>(index)]++;
        if (thread < 0 || thread >= threads) bad_threads++;
      });
      for (const auto& call : calls) ASSERT_EQ(call.load(), 1);
      EXPECT_EQ(bad_threads.load(), 0);
    }
  }
}

// What tasks wrote is visible after run(); a thread's own slot is never shared within a run.
TEST(ThreadPool, ManyShortRuns) {
  ThreadPool pool(3);
  int64_t sums[3] = {};
  for (int run = 0; run < 2000; ++run)
    pool.run(4, [&](int64_t index, int thread) { sums[thread] += index; });
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 2000 * 6);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(4);
  for (int run = 0; run < 3; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the spinning
    std::atomic<int> calls{0};
    pool.run(16, [&](int64_t, int) { calls++; });
    EXPECT_EQ(calls.load(), 16);
  }
}

TEST(ThreadPool, ZeroMeansTheCoresOfThisProcess) { EXPECT_GE(ThreadPool(0).thread_count(), 1); }

TEST(ThreadPool, EndsWithoutEverRunning) {
  for (int round = 0; round < 20; ++round) ThreadPool pool(4);
}

}  // namespace
}  // namespace fathom
