// What /proc says of processes. Every function takes the folder, so that tests can bring their own.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "measure/target.h"

namespace fathom::measure {

/// The file's text up to a limit of some KiB; empty where it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);
/// Number that follows `name` and blanks at the beginning of a line: "VmRSS:     123 kB" is 123.
std::optional<int64_t> number_of_line(const std::string& text, const std::string& name);

struct ProcessStat {
  int32_t pid = 0, parent = 0;
  std::string name;
  char state = ' ';  // 'Z': ended, and nobody has asked yet
  int64_t cpu_ticks = 0;           // user and system
  int64_t children_cpu_ticks = 0;  // of children that ended and were waited for
  int64_t started_ticks = 0;       // since boot: tells apart two processes with one number
};
std::optional<ProcessStat> parse_process_stat(const std::string& text);
/// All processes that could be read.
std::vector<ProcessStat> list_processes(const std::string& proc);

/// `root` and everything that descends from it.
std::set<int32_t> process_tree(const std::vector<ProcessStat>& processes, int32_t root);

/// Of everything that descends from `root`, without itself: sums. The peak is a sum of peaks, which need not have
/// been at one time. Bytes and seconds include children that ended, where their parent waited for them. A member
/// is empty where no process tells it.
ProcessUsage usage_below(const std::string& proc, int32_t root);

}  // namespace fathom::measure
