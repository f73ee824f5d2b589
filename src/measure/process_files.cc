#include "measure/process_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <sstream>

namespace fathom::measure {
namespace {

constexpr size_t kSmallFileBytes = 256 << 10;

void add(std::optional<int64_t>& sum, std::optional<int64_t> value, int64_t factor = 1) {
  if (value) sum = sum.value_or(0) + *value * factor;
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  // Files of /proc and /sys tell no size.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t count = 0;
  while (text.size() < kSmallFileBytes && (count = ::read(file, buffer.data(), buffer.size())) > 0)
    text.append(buffer.data(), static_cast<size_t>(count));
  ::close(file);
  if (count < 0) return {};
  return text;
}

std::optional<int64_t> number_of_line(const std::string& text, const std::string& name) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const size_t begin = text.find_first_not_of(" \t:", at + name.size());
    if (begin == at + name.size() || begin == std::string::npos) continue;  // a longer name
    int64_t number = 0;
    const auto [end, code] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
    if (code == std::errc()) return number;
  }
  return {};
}

std::optional<ProcessStat> parse_process_stat(const std::string& text) {
  // A name may hold blanks and parentheses; the last one is the end of it.
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  ProcessStat stat;
  stat.name = text.substr(open + 1, close - open - 1);
  std::istringstream(text.substr(0, open)) >> stat.pid;
  std::istringstream rest(text.substr(close + 1));
  int64_t skipped = 0, user = 0, system = 0, children_user = 0, children_system = 0;
  rest >> stat.state >> stat.parent;
  for (int field = 5; field <= 13; ++field) rest >> skipped;
  rest >> user >> system >> children_user >> children_system;
  for (int field = 18; field <= 21; ++field) rest >> skipped;
  rest >> stat.started_ticks;
  if (!rest || stat.pid <= 0) return {};
  stat.cpu_ticks = user + system;
  stat.children_cpu_ticks = children_user + children_system;
  return stat;
}

std::vector<ProcessStat> list_processes(const std::string& proc) {
  std::vector<ProcessStat> processes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(proc, error)) {
    const std::string name = entry.path().filename().string();
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto text = read_small_file(entry.path().string() + "/stat"))
      if (auto stat = parse_process_stat(*text)) processes.push_back(std::move(*stat));
  }
  return processes;
}

std::set<int32_t> process_tree(const std::vector<ProcessStat>& processes, int32_t root) {
  std::set<int32_t> tree{root};
  for (bool grew = true; grew;) {
    grew = false;
    for (const ProcessStat& process : processes)
      if (tree.contains(process.parent) && tree.insert(process.pid).second) grew = true;
  }
  return tree;
}

ProcessUsage usage_below(const std::string& proc, int32_t root) {
  const std::vector<ProcessStat> processes = list_processes(proc);
  std::set<int32_t> tree = process_tree(processes, root);
  tree.erase(root);
  ProcessUsage usage;
  std::optional<int64_t> ticks;
  for (const ProcessStat& process : processes) {
    if (!tree.contains(process.pid) || process.state == 'Z') continue;
    const std::string folder = proc + "/" + std::to_string(process.pid);
    add(ticks, process.cpu_ticks + process.children_cpu_ticks);
    if (const auto status = read_small_file(folder + "/status")) {
      add(usage.resident_bytes, number_of_line(*status, "VmRSS"), 1024);
      add(usage.resident_peak_bytes, number_of_line(*status, "VmHWM"), 1024);
    }
    if (const auto io = read_small_file(folder + "/io")) {
      add(usage.read_bytes, number_of_line(*io, "read_bytes"));
      add(usage.written_bytes, number_of_line(*io, "write_bytes"));
    }
  }
  if (ticks) usage.cpu_s = static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return usage;
}

}  // namespace fathom::measure
