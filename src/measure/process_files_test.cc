#include "measure/process_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "measure/test_folder.h"

namespace fathom::measure {
namespace {

TEST(ProcessFiles, ReadsAStatLineWhateverTheName) {
  const auto stat = parse_process_stat(
      "4242 (a) (b c) R 17 4242 4242 0 -1 4194304 100 0 0 0 250 50 30 20 20 0 1 0 98765 1000 200 "
      "18446744073709551615");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->pid, 4242);
  EXPECT_EQ(stat->name, "a) (b c");
  EXPECT_EQ(stat->state, 'R');
  EXPECT_EQ(stat->parent, 17);
  EXPECT_EQ(stat->cpu_ticks, 300);
  EXPECT_EQ(stat->children_cpu_ticks, 50);
  EXPECT_EQ(stat->started_ticks, 98765);
  for (const char* wrong : {"", "12", "12 (x", "12 (x) R 1 2", "x (y) z"})
    EXPECT_FALSE(parse_process_stat(wrong).has_value()) << wrong;
}

TEST(ProcessFiles, FindsNumbersOfLines) {
  const std::string text = "VmPeak:\t  900 kB\nVmRSS:\t  123 kB\nVmRSSx: 5\npswpin 77\nempty:\n";
  EXPECT_EQ(number_of_line(text, "VmRSS"), 123);
  EXPECT_EQ(number_of_line(text, "VmPeak"), 900);
  EXPECT_EQ(number_of_line(text, "pswpin"), 77);
  EXPECT_FALSE(number_of_line(text, "pswp").has_value());
  EXPECT_FALSE(number_of_line(text, "SS").has_value());
  EXPECT_FALSE(number_of_line(text, "empty").has_value());
}

TEST(ProcessFiles, SumsATreeWithoutItsRootAndWithoutOthers) {
  TestFolder folder;
  folder.process({.pid = 10, .parent = 1, .name = "root", .cpu_ticks = 1000});
  folder.process({.pid = 11, .parent = 10, .name = "server", .cpu_ticks = 200, .children_cpu_ticks = 40});
  folder.process({.pid = 12, .parent = 11, .name = "worker", .cpu_ticks = 60});
  folder.process({.pid = 13, .parent = 11, .name = "ended", .state = 'Z', .cpu_ticks = 9000});
  folder.process({.pid = 20, .parent = 1, .name = "other", .cpu_ticks = 5000});
  folder.write("proc/11/status", "Name:\tserver\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n");
  folder.write("proc/12/status", "Name:\tworker\nVmHWM:\t     500 kB\nVmRSS:\t     400 kB\n");
  folder.write("proc/20/status", "VmHWM: 9 kB\nVmRSS: 9 kB\n");
  folder.write("proc/11/io", "rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n");
  const ProcessUsage usage = usage_below(folder.path("proc"), 10);
  EXPECT_EQ(usage.resident_bytes, 2400 * 1024);
  EXPECT_EQ(usage.resident_peak_bytes, 3500 * 1024);
  EXPECT_EQ(usage.read_bytes, 4096);
  EXPECT_EQ(usage.written_bytes, 8192);
  EXPECT_DOUBLE_EQ(*usage.cpu_s, 300.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

TEST(ProcessFiles, LeavesEmptyWhatNobodyTells) {
  TestFolder folder;
  folder.process({.pid = 10, .parent = 1, .name = "root"});
  const ProcessUsage usage = usage_below(folder.path("proc"), 10);
  EXPECT_FALSE(usage.resident_bytes || usage.resident_peak_bytes || usage.read_bytes || usage.written_bytes);
  EXPECT_FALSE(usage.cpu_s.has_value());
  EXPECT_TRUE(list_processes(folder.path("nowhere")).empty());
}

}  // namespace
}  // namespace fathom::measure
