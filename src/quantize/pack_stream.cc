#include "quantize/pack_stream.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace fathom {
namespace {

constexpr int64_t kWindowBytes = int64_t{16} << 20;  // twice this is held: one being made, one being written
constexpr int64_t kTaskBytes = int64_t{256} << 10;
constexpr int64_t kRowStep = 32;  // rows of a tile

int64_t round_up(int64_t value) { return (value + kRowStep - 1) / kRowStep * kRowStep; }

// Rows that were made and are not written yet.
struct Window {
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  const PlannedUnit* unit = nullptr;
  size_t value_bytes = 0;
  size_t scale_bytes = 0;
  bool ends_unit = false;
};

class Streamer {
 public:
  Streamer(const PackPlan& plan, RowSource& source, PackWriter& writer, ThreadPool& pool,
           std::string_view stage, const ProgressFn& progress)
      : plan_(plan), source_(source), writer_(writer), pool_(pool), stage_(stage), progress_(progress) {}

  Result<void> run() {
    done_bytes_ = writer_.resumed_bytes();
    for (const PlannedUnit& unit : plan_.units)
      if (!unit.is_hole) total_bytes_ += plan_.unit_bytes(unit);
    for (const PlannedUnit& unit : plan_.units) {
      if (writer_.is_done(unit.values) && writer_.is_done(unit.scales)) continue;
      FATHOM_TRY(run_unit(unit));
    }
    return flush();
  }

 private:
  bool is_wanted(size_t stored) const { return !writer_.is_done(stored); }

  Result<void> run_unit(const PlannedUnit& unit) {
    if (unit.is_hole) {
      if (is_wanted(unit.values)) FATHOM_TRY(writer_.leave_hole(unit.values));
      if (unit.scales != unit.values && is_wanted(unit.scales)) FATHOM_TRY(writer_.leave_hole(unit.scales));
      return {};
    }
    if (unit.kind == PlannedUnit::Kind::kCopy) {
      FATHOM_TRY(flush());
      FATHOM_ASSIGN(const std::span<const std::byte> bytes, source_.copy(unit));
      FATHOM_TRY(writer_.append(unit.values, bytes));
      FATHOM_TRY(writer_.finish(unit.values));
      return advance(bytes.size());
    }
    for (int64_t index = 0; index < unit.matrices(); ++index) {
      FATHOM_TRY(source_.begin(unit, index));
      const int64_t row_bytes = unit.value_row_bytes() + unit.scale_row_bytes();
      const int64_t step = std::max(kRowStep, kWindowBytes / row_bytes / kRowStep * kRowStep);
      for (int64_t row = 0; row < unit.rows(); row += step)
        FATHOM_TRY(run_window(unit, row, std::min(step, unit.rows() - row), index + 1 == unit.matrices()));
    }
    return {};
  }

  // Makes a window while the one before it is hashed and written.
  Result<void> run_window(const PlannedUnit& unit, int64_t row, int64_t count, bool is_last_matrix) {
    FATHOM_TRY(source_.prepare(row, count));
    Window& window = windows_[current_];
    const RowTarget target = set_up(window, unit, count);
    window.ends_unit = is_last_matrix && row + count == unit.rows();
    const int64_t row_bytes = unit.value_row_bytes() + unit.scale_row_bytes();
    const int64_t task_rows = round_up(std::max<int64_t>(1, kTaskBytes / row_bytes));
    const int64_t tasks = (count + task_rows - 1) / task_rows;
    std::vector<Result<void>> results(static_cast<size_t>(tasks) + 1);
    // The first task writes: it takes longest and must not begin last.
    pool_.run(tasks + 1, [&](int64_t task, int) {
      Result<void>& result = results[static_cast<size_t>(task)];
      if (task == 0) {
        result = write(windows_[1 - current_]);
      } else {
        const int64_t first = (task - 1) * task_rows;
        result = source_.fill(row + first, std::min(task_rows, count - first),
                              target.from(first, unit.scale_rows()));
      }
    });
    for (Result<void>& result : results)
      if (!result.ok()) return std::move(result);
    current_ = 1 - current_;
    return report();
  }

  static RowTarget set_up(Window& window, const PlannedUnit& unit, int64_t count) {
    const int64_t value_row = unit.value_row_bytes(), scale_row = unit.scale_row_bytes();
    const int64_t scale_rows = (count + unit.scale_rows() - 1) / unit.scale_rows();
    window.unit = &unit;
    const int64_t stride = unit.is_interleaved() ? value_row + scale_row : value_row;
    window.value_bytes = static_cast<size_t>(count * stride);
    window.scale_bytes = unit.scales == unit.values ? 0 : static_cast<size_t>(scale_rows * scale_row);
    if (window.values.size() < window.value_bytes) window.values.resize(window.value_bytes);
    if (window.scales.size() < window.scale_bytes) window.scales.resize(window.scale_bytes);
    if (unit.is_interleaved())
      return {window.values.data(), stride, window.values.data() + value_row, stride};
    return {window.values.data(), stride, scale_row > 0 ? window.scales.data() : nullptr, scale_row};
  }

  Result<void> write(Window& window) {
    if (window.unit == nullptr) return {};
    const PlannedUnit& unit = *std::exchange(window.unit, nullptr);
    // Of two tensors one may have been finished before an interruption.
    if (is_wanted(unit.values)) {
      FATHOM_TRY(writer_.append(unit.values, std::span(window.values).first(window.value_bytes)));
      if (window.ends_unit) FATHOM_TRY(writer_.finish(unit.values));
    }
    done_bytes_ += window.value_bytes + window.scale_bytes;
    if (unit.scales == unit.values || !is_wanted(unit.scales)) return {};
    FATHOM_TRY(writer_.append(unit.scales, std::span(window.scales).first(window.scale_bytes)));
    return window.ends_unit ? writer_.finish(unit.scales) : Result<void>();
  }

  Result<void> flush() {
    FATHOM_TRY(write(windows_[1 - current_]));
    return report();
  }

  Result<void> advance(uint64_t bytes) {
    done_bytes_ += bytes;
    return report();
  }

  Result<void> report() {
    if (!progress_) return {};
    const int64_t done = static_cast<int64_t>(std::min(done_bytes_, total_bytes_));
    if (progress_(
            {.stage = stage_, .unit = "bytes", .done = done, .total = static_cast<int64_t>(total_bytes_)}))
      return {};
    return Error::cancelled("interrupted; the same command goes on where it stopped");
  }

  const PackPlan& plan_;
  RowSource& source_;
  PackWriter& writer_;
  ThreadPool& pool_;
  std::string_view stage_;
  const ProgressFn& progress_;
  Window windows_[2];
  int current_ = 0;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace

Result<void> stream_pack(const PackPlan& plan, RowSource& source, PackWriter& writer, ThreadPool& pool,
                         std::string_view stage, const ProgressFn& progress) {
  return Streamer(plan, source, writer, pool, stage, progress).run();
}

}  // namespace fathom
