// Which instruction set the kernels use: chosen once, when the backend is made.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

enum class CpuIsa : uint8_t { kAuto, kPortable, kAvx2, kAvx512, kAmx, kNeon, kNeonDot };

/// "auto", "amx", "avx512", "avx2", "neon_dot" (NEON with the dot product extension), "neon" or "portable".
Result<CpuIsa> parse_cpu_isa(std::string_view name);
std::string_view cpu_isa_name(CpuIsa isa);

/// What this build and this machine can run, best first; kPortable is always the last.
std::vector<CpuIsa> available_cpu_isas();

namespace cpu {
struct Kernels;
/// The kernels of `isa`; kAuto takes the best. kUnsupported if the machine or the build lacks it.
Result<const Kernels*> select_kernels(CpuIsa isa);
}  // namespace cpu

}  // namespace fathom
