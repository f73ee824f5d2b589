#include "cpu/select.h"

#include <algorithm>
#include <string>

#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace fathom {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kAmx,     CpuIsa::kAvx512, CpuIsa::kAvx2,
                            CpuIsa::kNeonDot, CpuIsa::kNeon,   CpuIsa::kPortable};

#if defined(__x86_64__)
// Asks the system, once, to save this process's tile registers; before that their first use is a fault.
bool has_amx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7, edx
  constexpr long kRequestPermission = 0x1023, kTileData = 18;   // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool has = [] {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0 && (d & kAmxTile) != 0 &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}
#endif

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
  if (isa == CpuIsa::kAmx) return is_available(CpuIsa::kAvx512) && has_amx();
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
    case CpuIsa::kAmx: return "amx";
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
      "cpu instruction set: found \"{}\", expected auto, amx, avx512, avx2, neon_dot, neon or portable", name);
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
  if (isa == CpuIsa::kAmx) return amx_kernels();
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
