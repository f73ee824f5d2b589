#include "measure/environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "measure/test_folder.h"

namespace fathom::measure {
namespace {

std::string more(const Environment& environment, const std::string& name) {
  for (const auto& [key, value] : environment.more)
    if (key == name) return value;
  return "";
}

TEST(Environment, ReadsAMachine) {
  TestFolder folder;
  folder.write("sys/class/dmi/id/sys_vendor", "Example Inc.\n");
  folder.write("sys/class/dmi/id/product_name", "Station 5\n");
  folder.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu avx2\n\n"
                               "processor\t: 1\nmodel name\t: Fast CPU @ 3 GHz\nflags\t\t: fpu avx2\n");
  folder.write("proc/meminfo", "MemTotal:       2048 kB\nMemAvailable: 512 kB\n");
  folder.write("etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  folder.write("proc/sys/kernel/ostype", "Linux\n");
  folder.write("proc/sys/kernel/osrelease", "6.1.0\n");
  folder.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  folder.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
  folder.write("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n");
  folder.write("sys/firmware/acpi/platform_profile", "balanced\n");
  folder.write("sys/class/power_supply/BAT0/type", "Battery\n");
  folder.write("sys/class/power_supply/BAT0/capacity", "63\n");
  folder.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  folder.write("proc/loadavg", "0.10 0.20 0.30 1/100 5\n");
  folder.write("proc/sys/vm/swappiness", "60\n");
  const Environment environment = read_environment(folder.root());
  EXPECT_EQ(environment.machine, "Example Inc. Station 5");
  EXPECT_EQ(environment.cpu, "Fast CPU @ 3 GHz");
  EXPECT_EQ(environment.cores, 2);
  EXPECT_EQ(environment.memory_bytes, 2048 * 1024);
  EXPECT_EQ(environment.os, "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(environment.kernel, "Linux 6.1.0");
  EXPECT_EQ(environment.power, "governor performance (2), powersave (1), profile balanced, battery 63 %");
  EXPECT_EQ(environment.gpu, "");
  EXPECT_EQ(more(environment, "transparent_hugepages"), "madvise");
  EXPECT_EQ(more(environment, "load_average"), "0.10 0.20 0.30 1/100 5");
  EXPECT_EQ(more(environment, "swappiness"), "60");
  EXPECT_EQ(more(environment, "virtualisation"), "");
}

TEST(Environment, SeesMainsAndVirtualMachines) {
  TestFolder folder;
  folder.write("sys/class/power_supply/AC/type", "Mains\n");
  folder.write("sys/class/power_supply/AC/online", "1\n");
  folder.write("sys/class/power_supply/BAT0/type", "Battery\n");
  folder.write("sys/class/dmi/id/sys_vendor", "QEMU\n");
  EXPECT_EQ(read_environment(folder.root()).power, "mains");
  EXPECT_EQ(more(read_environment(folder.root()), "virtualisation"), "QEMU");
  folder.write("sys/class/dmi/id/sys_vendor", "Someone\n");
  EXPECT_EQ(more(read_environment(folder.root()), "virtualisation"), "");
  folder.write("proc/cpuinfo", "processor : 0\nflags : fpu hypervisor sse\n");
  EXPECT_EQ(more(read_environment(folder.root()), "virtualisation"), "a virtual machine");
}

TEST(Environment, ReadsAnArmBoard) {
  TestFolder folder;
  folder.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n");
  folder.write("proc/device-tree/model", std::string("Small Board 4\0", 14));
  const Environment environment = read_environment(folder.root());
  EXPECT_EQ(environment.cpu, "implementer 0x41 part 0xd0b");
  EXPECT_EQ(environment.machine, "Small Board 4");
  EXPECT_EQ(environment.cores, 1);
}

TEST(Environment, LeavesEmptyWhatIsNotThere) {
  TestFolder folder;
  const Environment environment = read_environment(folder.root());
  EXPECT_EQ(environment.machine + environment.cpu + environment.gpu + environment.os + environment.kernel +
                environment.power, "");
  EXPECT_FALSE(environment.cores || environment.memory_bytes);
  EXPECT_TRUE(environment.more.empty());
  const SystemUsage usage = read_system_usage(folder.root());
  EXPECT_FALSE(usage.swap_used_bytes || usage.swapped_in_bytes || usage.swapped_out_bytes ||
               usage.memory_available_bytes || usage.disk_read_bytes || usage.disk_written_bytes);
}

TEST(Environment, ReadsThisMachine) {
  const Environment environment = read_environment();
  EXPECT_GT(environment.cores.value_or(0), 0);
  EXPECT_GT(environment.memory_bytes.value_or(0), 0);
  EXPECT_TRUE(environment.kernel.starts_with("Linux ")) << environment.kernel;
}

TEST(Environment, CountsGpus) {
  EXPECT_EQ(gpu_text("NVIDIA H200, 143771 MiB, 550.1\n"), "NVIDIA H200, 143771 MiB, driver 550.1");
  EXPECT_EQ(gpu_text("A, 1 MiB, 5\nA, 1 MiB, 5\n"), "A, 1 MiB, driver 5 (2)");
  EXPECT_EQ(gpu_text("A, 1 MiB, 5\nB, 2 MiB, 5\nA, 1 MiB, 5\n"), "A, 1 MiB, driver 5 (2), B, 2 MiB, driver 5 (1)");
  EXPECT_EQ(gpu_text("\n"), "");
}

TEST(SystemUsage, CountsSwapMemoryAndWholeDisks) {
  TestFolder folder;
  folder.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 512 kB\nSwapTotal: 1000 kB\nSwapFree: 400 kB\n");
  folder.write("proc/vmstat", "pgpgin 5\npswpin 3\npswpout 7\n");
  folder.write("proc/diskstats", " 259 0 nvme0n1 10 0 100 5 20 0 200 6 0 0 0\n"
                                 " 259 1 nvme0n1p1 9 0 90 5 19 0 190 6 0 0 0\n"
                                 "   8 0 sda 1 0 1 0 2 0 2 0 0 0 0\n"
                                 "   7 0 loop0 1 0 1000 0 2 0 2000 0 0 0 0\n"
                                 " 253 0 dm-0 1 0 1000 0 2 0 2000 0 0 0 0\n");
  for (const char* name : {"nvme0n1", "sda", "loop0", "dm-0"})
    folder.write(std::string("sys/block/") + name + "/size", "1\n");
  const SystemUsage usage = read_system_usage(folder.root());
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  EXPECT_EQ(usage.swap_used_bytes, 600 * 1024);
  EXPECT_EQ(usage.swapped_in_bytes, 3 * page_bytes);
  EXPECT_EQ(usage.swapped_out_bytes, 7 * page_bytes);
  EXPECT_EQ(usage.memory_available_bytes, 512 * 1024);
  EXPECT_EQ(usage.disk_read_bytes, 101 * 512);
  EXPECT_EQ(usage.disk_written_bytes, 202 * 512);
}

}  // namespace
}  // namespace fathom::measure
