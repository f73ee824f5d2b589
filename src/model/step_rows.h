// Which rows a step evaluates, and where each row finds its sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "model/sequence_state.h"

namespace fathom {

/// Consecutive positions of one sequence inside the rows of a step.
struct RowSegment {
  SequenceState* state = nullptr;
  int64_t first_position = 0;
  int64_t rows = 0;
  int64_t offset = 0;        // first row in the step
  int64_t evaluation_begin = 0;  // first position of the evaluation the rows belong to
  int64_t logits_begin = 0;      // first position whose logits are wanted
  bool whole = false;            // every layer runs on every row
  int64_t window_floor = 0;      // no query sees a window position below (bounded replay)
  int64_t end() const { return first_position + rows; }
};

/// Rows of a step, grouped by sequence.
struct RowSet {
  std::vector<RowSegment> segments;
  int64_t rows = 0;

  void add(RowSegment segment) {
    segment.offset = rows;
    rows += segment.rows;
    segments.push_back(segment);
  }
};

/// First positions, one for each segment, that a layer must still evaluate.
using RowLimits = std::vector<int64_t>;

/// The rows of `from` at or beyond `limits`; segments that end before theirs are dropped. `kept` receives,
/// for each row of the result, its row in `from`.
RowSet keep_rows(const RowSet& from, const RowLimits& limits, std::vector<int64_t>& kept);

}  // namespace fathom
