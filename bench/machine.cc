// The limits that the other benchmarks are compared with.
#include <fmt/format.h>

#include "limits.h"

int main() {
  using namespace fathom::bench;
  const int threads = usable_threads();
  fmt::print("processor: {}, {} threads, AMX tiles: {}\n", cpu_model(), threads, has_amx() ? "yes" : "no");
  fmt::print("{:28}", "limit");
  for (int count = 1; count <= threads; count *= 2) fmt::print(" {:>12} thr", count);
  fmt::print("\n{:28}", "memory read, GB/s");
  for (int count = 1; count <= threads; count *= 2) fmt::print(" {:>16.1f}", read_bandwidth(count) / 1e9);
  for (Rate rate : {Rate::kFmaAvx2, Rate::kFmaAvx512, Rate::kBf16Dot, Rate::kInt8Dot, Rate::kBf16Amx,
                    Rate::kInt8Amx}) {
    fmt::print("\n{:28}", fmt::format("{}, GF/s", rate_name(rate)));
    for (int count = 1; count <= threads; count *= 2) fmt::print(" {:>16.1f}", peak_rate(rate, count) / 1e9);
  }
  fmt::print("\n");
}
