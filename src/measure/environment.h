// What a machine is and how it is used, out of /proc, /sys and /etc.
#pragma once

#include <string>

#include "measure/result.h"

namespace fathom::measure {

/// `root` is put before every path: "" for this machine, a folder of a test otherwise. With "", nvidia-smi is
/// asked too, if it is there, for a few seconds at most.
Environment read_environment(const std::string& root = "");
SystemUsage read_system_usage(const std::string& root = "");

/// "NVIDIA H200, 143771 MiB, driver 550.1" of the lines of
/// `nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader`; equal GPUs are counted.
std::string gpu_text(const std::string& csv);

}  // namespace fathom::measure
