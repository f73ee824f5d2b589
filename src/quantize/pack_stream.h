// Makes the rows of a planned pack window by window and hands them to a PackWriter: memory stays bounded
// whatever the size of a tensor, and bytes do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/progress.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "quantize/pack_plan.h"
#include "quantize/pack_writer.h"

namespace fathom {

/// Where the rows of a window go: row r of the window at values + r * value_stride, its scales at
/// scales + (r / unit.scale_rows()) * scale_stride. `scales` is null where the encoding has none apart.
struct RowTarget {
  std::byte* values = nullptr;
  int64_t value_stride = 0;
  std::byte* scales = nullptr;
  int64_t scale_stride = 0;

  RowTarget from(int64_t row, int64_t scale_rows) const {
    return {values + row * value_stride, value_stride,
            scales == nullptr ? nullptr : scales + row / scale_rows * scale_stride, scale_stride};
  }
};

/// Gives the bytes of units. begin() and prepare() are called by one thread; fill() by many at once.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Matrix `index` of a unit (an expert of a bank, else 0) comes next.
  virtual Result<void> begin(const PlannedUnit& unit, int64_t index) = 0;
  /// Rows [row, row + count) come next.
  virtual Result<void> prepare(int64_t /*row*/, int64_t /*count*/) { return {}; }
  /// Rows [row, row + count) of those prepared; `row` is a multiple of 32.
  virtual Result<void> fill(int64_t row, int64_t count, const RowTarget& out) const = 0;
  /// All bytes of a unit of kind kCopy.
  virtual Result<std::span<const std::byte>> copy(const PlannedUnit& unit) = 0;
};

/// Writes every unit that the writer does not have yet. The error is that of the first row that failed.
/// Progress counts bytes of output. Does not commit.
Result<void> stream_pack(const PackPlan& plan, RowSource& source, PackWriter& writer, ThreadPool& pool,
                         std::string_view stage, const ProgressFn& progress);

}  // namespace fathom
