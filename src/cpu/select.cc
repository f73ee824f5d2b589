#include "cpu/select.h"

#include <algorithm>
#include <string>

#include "cpu/kernels.h"

namespace fathom {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kAvx512, CpuIsa::kAvx2, CpuIsa::kPortable};

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
  }
  return "unknown";
}

Result<CpuIsa> parse_cpu_isa(std::string_view name) {
  for (CpuIsa isa : {CpuIsa::kAuto, CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512})
    if (cpu_isa_name(isa) == name) return isa;
  return Error::invalid("cpu instruction set: found \"{}\", expected auto, portable, avx2 or avx512", name);
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
#endif
  return portable_kernels();
}

}  // namespace cpu
}  // namespace fathom
