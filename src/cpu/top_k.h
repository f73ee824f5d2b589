// The best of a list of scores.
#pragma once

#include "cpu/context.h"

namespace fathom::cpu {

/// How many neighbouring scores are looked at together when the `size` best of `count` are chosen; 1: each alone.
/// It divides kTopKRun.
constexpr int64_t kTopKRun = 64;
int64_t top_k_run(int64_t count, int64_t size);

/// best[i] stands for the greatest of scores [i * run, (i + 1) * run).
void best_of_runs(const float* scores, int64_t count, int64_t run, int32_t* best);

/// Places of the `size` best of scores [0, count), ascending, then -1. Ties go to the lower place. `best` is that
/// of best_of_runs with top_k_run(count, size), and is not read where that is 1.
void top_k(Scratch& scratch, const float* scores, int64_t count, const int32_t* best, int64_t size, int32_t* out);

}  // namespace fathom::cpu
