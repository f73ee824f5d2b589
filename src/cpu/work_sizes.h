// How much working memory the operations take for a model's steps.
#pragma once

#include "cpu/context.h"
#include "ops/work_shape.h"

namespace fathom::cpu {

/// Elements of each buffer. The operations' own requests, over all calls of a step; a test compares the two.
struct WorkSizes {
  // Shared.
  int64_t floats = 0, more_floats = 0, outputs = 0, numbers = 0, more_numbers = 0, queries = 0;
  int64_t prepared = 0, more_prepared = 0;
  // Of a thread.
  int64_t panel = 0, values = 0, more_values = 0, rows = 0, order = 0, thread_numbers = 0, units = 0;

  int64_t bytes(int threads) const;
};
WorkSizes work_sizes(const Kernels& kernels, const WorkShape& shape);

}  // namespace fathom::cpu
