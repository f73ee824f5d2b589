// Engram rows, read by position from their files: sorted, de-duplicated and fetched in parallel, ahead of the
// step that needs them. Tables are never mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/pack.h"

namespace fathom {

struct EngramReaderOptions {
  int io_threads = 8;  // preads in flight
};

class EngramReader {
 public:
  class Fetch;

  /// One table for each Engram layer, in layer order; `columns` rows are read a token and table. Opens the
  /// files and samples rows of each table: zero bytes in every sample or in neighbouring samples, or non-zero
  /// values with implausible scales (outside 64..191), are refused: that is what a hole in a sparse copy
  /// looks like.
  static Result<std::unique_ptr<EngramReader>> open(std::vector<EngramTableInfo> tables, int columns,
                                                    const EngramReaderOptions& options = {});
  ~EngramReader();

  /// Begins to read. `row_ids` is [tokens, tables, columns]; a negative id gives zeros. An id beyond its
  /// table becomes the error of wait(). Any thread; several fetches may be under way, served in
  /// order of start.
  std::unique_ptr<Fetch> start(std::span<const int64_t> row_ids, int64_t tokens);

  struct Statistics {
    int64_t rows_asked = 0;
    int64_t rows_read = 0;  // after de-duplication
    int64_t bytes_read = 0;  // gaps between rows that were read at once included
  };
  Statistics statistics() const;

 private:
  struct Impl;
  explicit EngramReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Bytes that a reader holds while chunks of `tokens` tokens follow each other: this chunk's rows and the next
/// one's, and what the threads read into.
int64_t engram_reader_bytes(const EngramConfig& config, int64_t tokens, int io_threads);

/// Rows on their way. May outlive nothing: destroy it before its reader. Destroying drops the reads that have
/// not begun, waits for those that have, and gives the buffers back for the next fetch.
class EngramReader::Fetch {
 public:
  struct State;
  explicit Fetch(std::unique_ptr<State> state);
  ~Fetch();
  /// Waits. Then rows(table) is [tokens, columns * width] float32, on the bfloat16 grid, and stays where it
  /// is until the fetch is destroyed. The error is that of the first row that failed, whatever the timing.
  Result<void> wait();
  const float* rows(int table) const;
  int64_t tokens() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace fathom
