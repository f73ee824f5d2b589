#include "model/step_rows.h"

#include <algorithm>

namespace fathom {

RowSet keep_rows(const RowSet& from, const RowLimits& limits, std::vector<int64_t>& kept) {
  RowSet result;
  kept.clear();
  for (size_t index = 0; index < from.segments.size(); ++index) {
    RowSegment segment = from.segments[index];
    const int64_t first = std::max(segment.first_position, limits[index]);
    if (first >= segment.end()) continue;
    for (int64_t p = first; p < segment.end(); ++p) kept.push_back(segment.offset + (p - segment.first_position));
    segment.rows = segment.end() - first;
    segment.first_position = first;
    result.add(segment);
  }
  return result;
}

}  // namespace fathom
