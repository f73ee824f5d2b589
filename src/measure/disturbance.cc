#include "measure/disturbance.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <sstream>

#include "measure/child_process.h"
#include "measure/environment.h"

namespace fathom::measure {
namespace {

constexpr size_t kTop = 5;
constexpr std::chrono::seconds kNvidiaLimit{5};

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::set<int32_t> own_processes(const DisturbanceSample& sample, const std::vector<int32_t>& own) {
  std::set<int32_t> all;
  for (const int32_t root : own) all.merge(process_tree(sample.processes, root));
  return all;
}

/// Used between the samples by everything that is not ours, most first.
std::vector<OtherProcess> others(const DisturbanceSample& before, const DisturbanceSample& after,
                                 const std::vector<int32_t>& own, int64_t ticks_per_s) {
  std::set<int32_t> ours = own_processes(before, own);
  ours.merge(own_processes(after, own));
  std::map<int32_t, const ProcessStat*> earlier;
  for (const ProcessStat& process : before.processes) earlier[process.pid] = &process;
  // The same number may be another process by now.
  std::map<int32_t, int64_t> known;      // ticks that a process had
  std::map<int32_t, int64_t> handed_on;  // ticks that an ended process had, now those of its parent
  for (const ProcessStat& process : after.processes)
    if (const auto at = earlier.find(process.pid);
        at != earlier.end() && at->second->started_ticks == process.started_ticks)
      known[process.pid] = at->second->cpu_ticks + at->second->children_cpu_ticks;
  for (const ProcessStat& process : before.processes)
    if (!known.contains(process.pid)) handed_on[process.parent] += process.cpu_ticks + process.children_cpu_ticks;
  std::vector<OtherProcess> found;
  for (const ProcessStat& process : after.processes) {
    if (ours.contains(process.pid)) continue;
    int64_t ticks = process.cpu_ticks + process.children_cpu_ticks;
    if (const auto at = known.find(process.pid); at != known.end()) ticks -= at->second + handed_on[process.pid];
    if (ticks > 0)
      found.push_back({process.pid, process.name, static_cast<double>(ticks) / static_cast<double>(ticks_per_s)});
  }
  std::sort(found.begin(), found.end(), [](const OtherProcess& a, const OtherProcess& b) {
    return a.cpu_s != b.cpu_s ? a.cpu_s > b.cpu_s : a.pid < b.pid;
  });
  return found;
}

std::string mib(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

/// Puts a line among the others; what is beyond a limit comes first and disturbs.
void tell(Disturbance& disturbance, bool is_beyond, std::string line) {
  auto& lines = disturbance.lines;
  if (!is_beyond) {
    lines.push_back(std::move(line));
    return;
  }
  const auto place = std::find_if(lines.begin(), lines.end(), [](const std::string& other) {
    return !other.ends_with("beyond the limit");
  });
  lines.insert(place, std::move(line) + ": beyond the limit");
  disturbance.is_disturbed = true;
}

void judge_cpu(Disturbance& disturbance, int64_t cores, const DisturbanceLimits& limits) {
  if (disturbance.top.empty()) return;
  const double all_s = disturbance.duration_s * static_cast<double>(std::max<int64_t>(cores, 1));
  const double share = all_s > 0 ? disturbance.other_cpu_s / all_s : 0;
  std::string names;
  for (const OtherProcess& other : disturbance.top)
    names += fmt::format("{}{} ({}) {:.2f} s", names.empty() ? "" : ", ", other.name, other.pid, other.cpu_s);
  tell(disturbance, share > limits.other_cpu_share && disturbance.other_cpu_s >= limits.other_cpu_s_min,
       fmt::format("other processes used {:.2f} CPU s in {:.2f} s, {:.1f} % of the machine: {}",
                   disturbance.other_cpu_s, disturbance.duration_s, share * 100, names));
}

}  // namespace

ClockReading read_clocks() {
  return {seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_BOOTTIME), seconds_of(CLOCK_REALTIME)};
}

std::vector<GpuUser> parse_gpu_users(const std::string& csv) {
  std::vector<GpuUser> users;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    GpuUser user;
    const auto [end, code] = std::from_chars(line.data(), line.data() + line.size(), user.pid);
    if (code != std::errc()) continue;
    user.name = line.substr(static_cast<size_t>(end - line.data()));
    user.name.erase(0, user.name.find_first_not_of(", "));
    users.push_back(std::move(user));
  }
  return users;
}

DisturbanceSample sample_disturbance(const std::string& root) {
  DisturbanceSample sample;
  sample.clocks = read_clocks();
  sample.processes = list_processes(root + "/proc");
  sample.system = read_system_usage(root);
  if (root.empty()) {
    sample.cores = ::sysconf(_SC_NPROCESSORS_ONLN);
    if (const auto csv = output_of(
            {"nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"}, kNvidiaLimit))
      sample.gpu_users = parse_gpu_users(*csv);
  }
  return sample;
}

Disturbance disturbance_between(const DisturbanceSample& before, const DisturbanceSample& after,
                                const std::vector<int32_t>& own, const DisturbanceLimits& limits,
                                int64_t ticks_per_s) {
  Disturbance disturbance;
  const double monotonic_s = after.clocks.monotonic_s - before.clocks.monotonic_s;
  const double boottime_s = after.clocks.boottime_s - before.clocks.boottime_s;
  const double realtime_s = after.clocks.realtime_s - before.clocks.realtime_s;
  disturbance.duration_s = monotonic_s;
  disturbance.suspended_s = boottime_s - monotonic_s;
  disturbance.clock_step_s = realtime_s - boottime_s;
  disturbance.top = others(before, after, own, ticks_per_s);
  for (const OtherProcess& other : disturbance.top) disturbance.other_cpu_s += other.cpu_s;
  if (disturbance.top.size() > kTop) disturbance.top.resize(kTop);
  judge_cpu(disturbance, after.cores, limits);

  if (before.system.swap_used_bytes && after.system.swap_used_bytes) {
    const int64_t growth = *after.system.swap_used_bytes - *before.system.swap_used_bytes;
    disturbance.swap_growth_bytes = growth;
    if (growth > 0) tell(disturbance, growth > limits.swap_growth_bytes, "swap grew by " + mib(growth));
  }
  if (std::abs(disturbance.suspended_s) > limits.clock_step_s)
    tell(disturbance, true, fmt::format("the machine was suspended for {:.3f} s", disturbance.suspended_s));
  if (std::abs(disturbance.clock_step_s) > limits.clock_step_s)
    tell(disturbance, true, fmt::format("the clock was set by {:+.3f} s", disturbance.clock_step_s));
  std::set<int32_t> ours = own_processes(before, own);
  ours.merge(own_processes(after, own));
  for (const auto* users : {&before.gpu_users, &after.gpu_users}) {
    for (const GpuUser& user : *users) {
      const auto is_same = [&](const GpuUser& other) { return other.pid == user.pid; };
      auto& found = disturbance.other_gpu_users;
      if (ours.contains(user.pid) || std::any_of(found.begin(), found.end(), is_same)) continue;
      found.push_back(user);
      tell(disturbance, !limits.allows_other_gpu_users,
           fmt::format("another process uses a GPU: {} ({})", user.name, user.pid));
    }
  }
  return disturbance;
}

}  // namespace fathom::measure
