#include "cpu/select.h"

#include <algorithm>
#include <string>

#include "cpu/kernels.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace fathom {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kAvx512, CpuIsa::kAvx2,
                            CpuIsa::kNeonDot, CpuIsa::kNeon, CpuIsa::kPortable};

bool is_available(CpuIsa isa) {
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks whether the system saves the wide registers.
  __builtin_cpu_init();
  if (isa == CpuIsa::kAvx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  if (isa == CpuIsa::kAvx512)
    return is_available(CpuIsa::kAvx2) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
  if (isa == CpuIsa::kNeon) return true;  // part of every 64-bit ARM processor
#if defined(__APPLE__)
  if (isa == CpuIsa::kNeonDot) return true;
#elif defined(__linux__)
  if (isa == CpuIsa::kNeonDot) return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
#endif
  return isa == CpuIsa::kPortable;
}

}  // namespace

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAuto: return "auto";
    case CpuIsa::kPortable: return "portable";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx512: return "avx512";
    case CpuIsa::kNeon: return "neon";
    case CpuIsa::kNeonDot: return "neon_dot";
  }
  return "unknown";
}

Result<CpuIsa> parse_cpu_isa(std::string_view name) {
  if (name == cpu_isa_name(CpuIsa::kAuto)) return CpuIsa::kAuto;
  for (CpuIsa isa : kAll)
    if (cpu_isa_name(isa) == name) return isa;
  return Error::invalid(
      "cpu instruction set: found \"{}\", expected auto, avx512, avx2, neon_dot, neon or portable", name);
}

std::vector<CpuIsa> available_cpu_isas() {
  std::vector<CpuIsa> available;
  std::copy_if(std::begin(kAll), std::end(kAll), std::back_inserter(available), is_available);
  return available;
}

namespace cpu {

Result<const Kernels*> select_kernels(CpuIsa isa) {
  const std::vector<CpuIsa> available = available_cpu_isas();
  if (isa == CpuIsa::kAuto) isa = available.front();
  if (std::find(available.begin(), available.end(), isa) == available.end()) {
    std::string names;
    for (CpuIsa one : available) names += fmt::format("{}{}", names.empty() ? "" : ", ", cpu_isa_name(one));
    return Error::unsupported("cpu instruction set: {} asked for, this machine has {}", cpu_isa_name(isa),
                              names);
  }
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512) return avx512_kernels();
  if (isa == CpuIsa::kAvx2) return avx2_kernels();
#elif defined(__aarch64__)
  if (isa == CpuIsa::kNeonDot) return neon_dot_kernels();
  if (isa == CpuIsa::kNeon) return neon_kernels();
#endif
  return portable_kernels();
}

}  // namespace cpu
}  // namespace fathom
