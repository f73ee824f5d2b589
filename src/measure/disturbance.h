// Whether something else used the machine while a stage was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "measure/process_files.h"
#include "measure/result.h"

namespace fathom::measure {

/// What is still no disturbance.
struct DisturbanceLimits {
  double other_cpu_share = 0.05;  // CPU time of other processes, of all cores' time
  double other_cpu_s_min = 1;     // less than this is nothing, however short the stage
  int64_t swap_growth_bytes = 16 << 20;
  double clock_step_s = 0.1;      // of the clocks against each other
  bool allows_other_gpu_users = false;
};

struct ClockReading {
  double monotonic_s = 0, boottime_s = 0, realtime_s = 0;
};
ClockReading read_clocks();

struct GpuUser {
  int32_t pid = 0;
  std::string name;
};
/// Of `nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader`.
std::vector<GpuUser> parse_gpu_users(const std::string& csv);

/// At one moment.
struct DisturbanceSample {
  ClockReading clocks;
  std::vector<ProcessStat> processes;
  SystemUsage system;
  std::vector<GpuUser> gpu_users;
  int64_t cores = 0;  // 0: unknown
};
/// `root` as in read_environment(); GPUs are asked about only on this machine itself.
DisturbanceSample sample_disturbance(const std::string& root = "");

struct OtherProcess {
  int32_t pid = 0;
  std::string name;
  double cpu_s = 0;
};

struct Disturbance {
  bool is_disturbed = false;
  double duration_s = 0;
  double other_cpu_s = 0;           // of all others
  std::vector<OtherProcess> top;    // the five that used most
  std::optional<int64_t> swap_growth_bytes;
  double suspended_s = 0;           // the machine slept
  double clock_step_s = 0;          // somebody set the clock
  std::vector<GpuUser> other_gpu_users;
  std::vector<std::string> lines;   // for people: what is beyond a limit first, marked "beyond the limit"
};

/// Between two samples, the trees below `own` left out: this program and the servers that it measures. A process
/// that came in between counts from its beginning; one that ended in between is seen through a parent that waited
/// for it, or not at all.
Disturbance disturbance_between(const DisturbanceSample& before, const DisturbanceSample& after,
                                const std::vector<int32_t>& own, const DisturbanceLimits& limits,
                                int64_t ticks_per_s = 100);

}  // namespace fathom::measure
