// Two packs of one model, matrix by matrix: what stands where, in which encoding, and how far apart the
// values are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "model/pack.h"

namespace fathom {

/// Difference of the values of B from those of A.
struct ValueError {
  int64_t values = 0;
  double relative_rms = 0;  // sqrt(sum (b - a)^2 / sum a^2); 0 when both are zero
  double largest = 0;       // of |b - a|
  double cosine = 1;        // of the two as vectors
  int64_t not_finite = 0;   // places where one of them is infinite or NaN and they are not the same; left out
};

struct TensorComparison {
  std::string name;  // official; of a bank without the expert
  std::string type_a, type_b;
  int64_t bytes_a = 0, bytes_b = 0;  // with scales
  int64_t experts = 0;               // more than 0: a bank
  ValueError error;                  // of the bank as a whole
  int64_t worst_expert = -1;         // by relative RMS error, -1 for no bank
  ValueError worst_error;
  int64_t sampled_rows = 0;  // more than 0: only so many rows, evenly spaced, were read (Engram tables)
  std::string problem;       // why it could not be compared; errors are then meaningless
};

struct PackComparison {
  std::string path_a, path_b;
  std::string dialect_a, dialect_b;
  std::vector<TensorComparison> tensors;  // of both packs, in the order of the model
  std::vector<std::string> only_a, only_b;
};

struct CompareOptions {
  std::string filter;    // a shell pattern that official names must match; empty: all
  int thread_count = 0;  // 0: one a core
  ProgressFn progress;   // "compare", "tensors"
};

/// Reads all values of both, row blocks at a time: memory stays bounded, threads share the rows, and results
/// do not depend on their number. Tensors that one pack cannot give in the shape of the other's config are
/// listed with the reason. Vision tensors are compared by presence only. Errors: kInvalidArgument when the
/// filter matches nothing, kCancelled.
Result<PackComparison> compare_packs(const Pack& a, const Pack& b, const CompareOptions& options);

/// For people: a table, a line a tensor, then what is only in one and the worst of each kind.
std::string comparison_text(const PackComparison& comparison);
std::string comparison_json(const PackComparison& comparison);

}  // namespace fathom
