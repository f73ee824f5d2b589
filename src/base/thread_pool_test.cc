#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace fathom {
namespace {

TEST(ThreadPool, EveryTaskRunsOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      std::atomic<int> bad_threads{0};
      pool.run(tasks, [&](int64_t index, int thread) {
        ++runs[static_cast<size_t>(index)];
        if (thread < 0 || thread >= threads) ++bad_threads;
      });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
      EXPECT_EQ(bad_threads, 0);
    }
  }
}

// Runs that follow at once: a worker late for one run must not disturb the next.
TEST(ThreadPool, RunsFollowOneAnother) {
  ThreadPool pool(4);
  for (int64_t run = 0; run < 3000; ++run) {
    const int64_t tasks = 2 + run % 5;
    std::atomic<int64_t> sum{0};
    pool.run(tasks, [&](int64_t index, int) { sum += index + run; });
    ASSERT_EQ(sum, tasks * (tasks - 1) / 2 + tasks * run);
  }
}

// A thread's scratch is its own for the length of a task.
TEST(ThreadPool, ThreadNumbersAreNotSharedAtOneTime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  pool.run(2000, [&](int64_t, int thread) {
    if (inside[static_cast<size_t>(thread)]++ != 0) ++clashes;
    --inside[static_cast<size_t>(thread)];
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadPool, ManyTasksRunOnceEach) {
  ThreadPool pool(3);
  for (const int64_t count : {1, 2, 11, 12, 13, 1000, 100'000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    pool.run(count, [&](int64_t index, int) { runs[static_cast<size_t>(index)].fetch_add(1); });
    EXPECT_TRUE(std::ranges::all_of(runs, [](const auto& times) { return times.load() == 1; })) << count;
  }
}

TEST(ThreadPool, PinnedThreadsStayOnTheirCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  ThreadPool pool(CPU_COUNT(&allowed));
  ASSERT_TRUE(pool.pin().ok());
  std::vector<std::atomic<int>> cores(static_cast<size_t>(pool.thread_count()));
  pool.run(10'000, [&](int64_t, int thread) {
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) cores[static_cast<size_t>(thread)] = CPU_COUNT(&mine);
  });
  for (size_t worker = 1; worker < cores.size(); ++worker) EXPECT_LE(cores[worker], 1);  // 0: had no task
  EXPECT_EQ(cores[0], CPU_COUNT(&allowed));

  ThreadPool many(CPU_COUNT(&allowed) + 1);
  const auto refused = many.pin();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(fmt::format("cannot pin {} threads", many.thread_count())),
            std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace fathom
