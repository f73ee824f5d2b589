// Rows of an open pack in any encoding a plan asks for: copied or repacked where source and target share
// their values, else decoded and encoded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/pack.h"
#include "quantize/imatrix.h"
#include "quantize/pack_stream.h"

namespace fathom {

/// Encodes rows [row, row + count) of `source` as `unit` says. Columns are weighed by `importance` (or
/// empty). kBadPack naming tensor and row for values that the encoding cannot hold. Any thread.
Result<void> convert_rows(const WeightMatrix& source, const PlannedUnit& unit, int64_t row, int64_t count,
                          std::span<const float> importance, const RowTarget& out);

class PackRows final : public RowSource {
 public:
  /// Borrows both; `importance` may be null.
  PackRows(const Pack& pack, const ImportanceMatrix* importance) : pack_(pack), importance_(importance) {}

  Result<void> begin(const PlannedUnit& unit, int64_t index) override;
  Result<void> prepare(int64_t row, int64_t count) override;
  Result<void> fill(int64_t row, int64_t count, const RowTarget& out) const override;
  Result<std::span<const std::byte>> copy(const PlannedUnit& unit) override;

 private:
  // Rows of one array of a table, as they lie in its file.
  struct TableWindow {
    TableArray place;
    std::optional<RandomAccessFile> file;
    std::vector<std::byte> bytes;
  };
  Result<void> begin_matrix(const PlannedUnit& unit, int64_t index);
  Result<void> begin_table(const PlannedUnit& unit);
  static Result<void> read(TableWindow& window, int64_t row, int64_t count);

  const Pack& pack_;
  const ImportanceMatrix* importance_;
  const PlannedUnit* unit_ = nullptr;
  WeightMatrix matrix_;  // rows from first_row_ on
  int64_t first_row_ = 0;
  std::vector<float> vector_;       // behind matrix_ where that is a small tensor
  std::span<const float> columns_;  // importance
  EngramTableInfo table_;
  TableWindow windows_[3];  // data, scales, biases
  std::vector<std::byte> copied_;
};

}  // namespace fathom
