#include "measure/disturbance.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "measure/test_folder.h"

namespace fathom::measure {
namespace {

/// Ten seconds on two cores: twenty CPU seconds.
struct Stage {
  DisturbanceSample before, after;
  Stage() {
    before.clocks = {100, 500, 9000};
    after.clocks = {110, 510, 9010};
    before.cores = after.cores = 2;
    before.system.swap_used_bytes = after.system.swap_used_bytes = 5 << 20;
  }
  Disturbance judge(const std::vector<int32_t>& own = {}, const DisturbanceLimits& limits = {}) const {
    return disturbance_between(before, after, own, limits);
  }
};

ProcessStat process(int32_t pid, int32_t parent, const char* name, int64_t ticks, int64_t children = 0,
                    int64_t started = 0) {
  return {.pid = pid,
          .parent = parent,
          .name = name,
          .state = 'S',
          .cpu_ticks = ticks,
          .children_cpu_ticks = children,
          .started_ticks = started};
}

TEST(Disturbance, AQuietMachineIsQuiet) {
  Stage stage;
  stage.before.processes = stage.after.processes = {process(1, 0, "init", 5000), process(9, 1, "idle", 7)};
  const Disturbance disturbance = stage.judge();
  EXPECT_FALSE(disturbance.is_disturbed);
  EXPECT_TRUE(disturbance.lines.empty());
  EXPECT_DOUBLE_EQ(disturbance.duration_s, 10);
  EXPECT_EQ(disturbance.other_cpu_s, 0);
  EXPECT_EQ(disturbance.swap_growth_bytes, 0);
}

TEST(Disturbance, CountsOthersAndNotOurs) {
  Stage stage;
  // 10 is this program, 11 its server, 12 the server's worker; 20 to 26 are others.
  stage.before.processes = {process(10, 1, "bench", 100), process(11, 10, "server", 100),
                            process(20, 1, "browser", 1000), process(21, 1, "cron", 50)};
  stage.after.processes = {
      process(10, 1, "bench", 900),    process(11, 10, "server", 1900), process(12, 11, "worker", 800),
      process(20, 1, "browser", 1120), process(21, 1, "cron", 55),      process(22, 1, "a", 3),
      process(23, 1, "b", 4),          process(24, 1, "c", 2),          process(25, 1, "d", 1)};
  const Disturbance disturbance = stage.judge({10});
  EXPECT_DOUBLE_EQ(disturbance.other_cpu_s, 1.35);
  ASSERT_EQ(disturbance.top.size(), 5u);
  EXPECT_EQ(disturbance.top[0].name, "browser");
  EXPECT_DOUBLE_EQ(disturbance.top[0].cpu_s, 1.2);
  EXPECT_EQ(disturbance.top[1].name, "cron");
  EXPECT_EQ(disturbance.top[4].name, "c");
  // 1.35 of 20 s are 6.75 %.
  EXPECT_TRUE(disturbance.is_disturbed);
  ASSERT_EQ(disturbance.lines.size(), 1u);
  EXPECT_EQ(
      disturbance.lines[0],
      "other processes used 1.35 CPU s in 10.00 s, 6.8 % of the machine: browser (20) 1.20 s, cron (21) 0.05 s, "
      "b (23) 0.04 s, a (22) 0.03 s, c (24) 0.02 s: beyond the limit");
  EXPECT_FALSE(stage.judge({10}, {.other_cpu_share = 0.07}).is_disturbed);
  EXPECT_FALSE(stage.judge({10}, {.other_cpu_s_min = 1.4}).is_disturbed);
  EXPECT_EQ(stage.judge({10}, {.other_cpu_share = 0.07}).lines.size(), 1u);
}

TEST(Disturbance, ANumberThatBecameAnotherProcessCountsFromItsBeginning) {
  Stage stage;
  stage.before.processes = {process(20, 1, "old", 1000, 0, 5)};
  stage.after.processes = {process(20, 1, "new", 300, 0, 77)};
  const Disturbance disturbance = stage.judge();
  EXPECT_DOUBLE_EQ(disturbance.other_cpu_s, 3);
  EXPECT_EQ(disturbance.top.at(0).name, "new");
}

TEST(Disturbance, WhatAnEndedChildUsedEarlierIsNotCounted) {
  Stage stage;
  stage.before.processes = {process(20, 1, "make", 10), process(21, 20, "compiler", 5000, 100)};
  // The child used 40 more and ended; its parent has all of it now.
  stage.after.processes = {process(20, 1, "make", 15, 5140)};
  EXPECT_DOUBLE_EQ(stage.judge().other_cpu_s, 0.45);
  // A parent that did not wait has none of it.
  stage.after.processes = {process(20, 1, "make", 15)};
  EXPECT_DOUBLE_EQ(stage.judge().other_cpu_s, 0);
}

TEST(Disturbance, SwapThatGrows) {
  Stage stage;
  stage.after.system.swap_used_bytes = *stage.before.system.swap_used_bytes + (3 << 20);
  EXPECT_FALSE(stage.judge().is_disturbed);
  EXPECT_EQ(stage.judge().lines, std::vector<std::string>{"swap grew by 3.0 MiB"});
  stage.after.system.swap_used_bytes = *stage.before.system.swap_used_bytes + (17 << 20);
  EXPECT_TRUE(stage.judge().is_disturbed);
  EXPECT_EQ(stage.judge().lines, std::vector<std::string>{"swap grew by 17.0 MiB: beyond the limit"});
  stage.after.system.swap_used_bytes = 0;
  EXPECT_FALSE(stage.judge().is_disturbed);
  EXPECT_EQ(stage.judge().swap_growth_bytes, -(5 << 20));
  stage.after.system.swap_used_bytes.reset();
  EXPECT_FALSE(stage.judge().swap_growth_bytes.has_value());
}

TEST(Disturbance, ClocksThatPartWays) {
  Stage stage;
  stage.after.clocks = {110, 545, 9045};
  EXPECT_EQ(stage.judge().lines,
            std::vector<std::string>{"the machine was suspended for 35.000 s: beyond the limit"});
  EXPECT_TRUE(stage.judge().is_disturbed);
  EXPECT_DOUBLE_EQ(stage.judge().clock_step_s, 0);
  stage.after.clocks = {110, 510, 9009};
  EXPECT_EQ(stage.judge().lines, std::vector<std::string>{"the clock was set by -1.000 s: beyond the limit"});
  stage.after.clocks = {110, 510.01, 9010.05};
  EXPECT_FALSE(stage.judge().is_disturbed);
}

TEST(Disturbance, OthersOnAGpu) {
  Stage stage;
  stage.before.processes = {process(10, 1, "bench", 1), process(11, 10, "server", 1)};
  stage.after.processes = stage.before.processes;
  stage.before.gpu_users = {{11, "server"}, {50, "trainer"}};
  stage.after.gpu_users = {{11, "server"}, {50, "trainer"}, {51, "game"}};
  const Disturbance disturbance = stage.judge({10});
  EXPECT_TRUE(disturbance.is_disturbed);
  EXPECT_EQ(disturbance.lines,
            (std::vector<std::string>{"another process uses a GPU: trainer (50): beyond the limit",
                                      "another process uses a GPU: game (51): beyond the limit"}));
  EXPECT_FALSE(stage.judge({10}, {.allows_other_gpu_users = true}).is_disturbed);
}

TEST(Disturbance, WhatIsBeyondALimitComesFirst) {
  Stage stage;
  stage.after.processes = {process(20, 1, "cron", 5)};
  stage.after.system.swap_used_bytes = *stage.before.system.swap_used_bytes + (100 << 20);
  const Disturbance disturbance = stage.judge();
  ASSERT_EQ(disturbance.lines.size(), 2u);
  EXPECT_EQ(disturbance.lines[0], "swap grew by 100.0 MiB: beyond the limit");
  EXPECT_TRUE(disturbance.lines[1].starts_with("other processes used 0.05 CPU s"));
}

TEST(Disturbance, ReadsGpuUsers) {
  const auto users = parse_gpu_users("123, /usr/bin/python3\nnot supported\n45, [Not Found]\n");
  ASSERT_EQ(users.size(), 2u);
  EXPECT_EQ(users[0].pid, 123);
  EXPECT_EQ(users[0].name, "/usr/bin/python3");
  EXPECT_EQ(users[1].pid, 45);
}

TEST(Disturbance, SamplesAFakeTree) {
  TestFolder folder;
  folder.process({.pid = 7, .parent = 1, .name = "x", .cpu_ticks = 12, .started_ticks = 3});
  folder.write("proc/self/stat", "no process");
  folder.write("proc/meminfo", "SwapTotal: 10 kB\nSwapFree: 4 kB\n");
  const DisturbanceSample sample = sample_disturbance(folder.root());
  ASSERT_EQ(sample.processes.size(), 1u);
  EXPECT_EQ(sample.processes[0].cpu_ticks, 12);
  EXPECT_EQ(sample.system.swap_used_bytes, 6 * 1024);
  EXPECT_EQ(sample.cores, 0);
}

TEST(Disturbance, SeesItselfOnThisMachine) {
  const int32_t self = ::getpid();
  const auto sample_self = [&] {
    DisturbanceSample sample = sample_disturbance();
    std::erase_if(sample.processes, [&](const ProcessStat& process) { return process.pid != self; });
    return sample;
  };
  const DisturbanceSample before = sample_self();
  ASSERT_EQ(before.processes.size(), 1u);
  DisturbanceSample after = before;
  // Until the kernel has counted a few ticks of this work.
  while (after.processes[0].cpu_ticks < before.processes[0].cpu_ticks + 5) after = sample_self();
  EXPECT_GE(disturbance_between(before, after, {}, {}, ::sysconf(_SC_CLK_TCK)).other_cpu_s, 0.05);
  EXPECT_EQ(disturbance_between(before, after, {self}, {}, ::sysconf(_SC_CLK_TCK)).other_cpu_s, 0);
}

}  // namespace
}  // namespace fathom::measure
