// One Engram table on disk: checked when opened, then rows are loaded by position and decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/result.h"
#include "model/pack.h"

namespace fathom {

/// Stored bytes of one batch of rows. One for each thread, made once: loading allocates nothing.
struct EngramScratch {
  static constexpr int kMaxRows = 64;  // rows a batch
  static constexpr int kArrays = 3;    // data, scales, biases

  explicit EngramScratch(size_t bytes_per_array);
  std::unique_ptr<std::byte[]> bytes;  // kArrays * array_bytes
  size_t array_bytes;
  const std::byte* rows[kArrays][kMaxRows] = {};  // where each row of the batch lies in `bytes`
};

/// Immutable after opening; any thread may load and decode at once, each with its own scratch.
class EngramTable {
 public:
  /// Opens the files and checks that the description fits the encoding and every row lies inside its file.
  static Result<EngramTable> open(const EngramTableInfo& info);

  /// Loads rows spread over the table and refuses what a hole in a sparse copy looks like: zero bytes
  /// throughout or in two neighbouring samples that lie far apart, or values with implausible scales.
  Result<void> check_samples() const;

  /// Reads the bytes of `rows` (at most kMaxRows; ascending, distinct, inside the table) into `scratch`.
  /// Rows that lie close together are read at once. Returns the bytes read.
  Result<uint64_t> load(std::span<const int64_t> rows, EngramScratch& scratch) const;
  /// Row `row`, loaded at `index` of its batch, as width() float32 on the bfloat16 grid. An error for bytes
  /// that are no row: a NaN code or scale, a value that is not finite.
  Result<void> decode(const EngramScratch& scratch, int index, int64_t row, float* out) const;

  int64_t rows() const { return info_.rows; }
  int64_t width() const { return info_.width; }
  const std::string& path() const { return info_.data.path; }
  size_t scratch_array_bytes() const;  // what EngramScratch must have for load()

 private:
  struct Array {
    TableArray place;
    std::optional<RandomAccessFile> file;  // nothing: the encoding has no such array
  };
  explicit EngramTable(const EngramTableInfo& info) : info_(info) {}
  Result<void> open_array(Array& array, const TableArray& place, int64_t row_bytes, const char* what);
  Result<uint64_t> load_array(int which, std::span<const int64_t> rows, EngramScratch& scratch) const;
  Result<void> check_zero_samples(int which, std::span<const int64_t> rows,
                                  const EngramScratch& scratch) const;
  Result<void> check_scales(std::span<const int64_t> rows, const EngramScratch& scratch) const;

  EngramTableInfo info_;
  Array arrays_[EngramScratch::kArrays];
};

}  // namespace fathom
