// The machine's own limits, measured in the run that is compared with them: the best of several short tries,
// because other work may share the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fathom::bench {

/// Bytes that are far more than the last cache holds, for what is to come from memory.
int64_t uncached_bytes();
/// Bytes a second that `threads` threads read from memory, out of uncached_bytes(). Measured once for each
/// number of threads.
double read_bandwidth(int threads);

/// Kinds of arithmetic that kernels may use.
enum class Rate { kFmaAvx2, kFmaAvx512, kBf16Dot, kInt8Dot, kBf16Amx, kInt8Amx };
const char* rate_name(Rate rate);
/// Operations a second (a multiplication and an addition are two) of `threads` threads with everything in
/// registers. 0 where the machine lacks the instructions. Measured once for each pair.
double peak_rate(Rate rate, int threads);

/// Threads this process may use.
int usable_threads();
/// "AMD EPYC" and the like.
std::string cpu_model();
/// Whether there are AMX tile instructions and the system lets this process use them.
bool has_amx();

}  // namespace fathom::bench
