// Importance of the input columns of matrices: mean squares of what went into them while a text was read. A
// quantiser weighs its errors with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace fathom {

struct ImportanceEntry {
  int64_t experts = 0;  // 0: one matrix; else a bank, one set of columns an expert
  int64_t cols = 0;
  std::vector<float> mean_squares;  // [max(experts, 1), cols]
  std::vector<int64_t> rows;        // [max(experts, 1)]: rows the means are over; 0: never seen
};

/// Immutable after loading; any thread may read. Names are official; a bank's is
/// "layers.3.ffn.experts.w1.weight".
class ImportanceMatrix {
 public:
  /// Mean square of each input column, [cols]. `official_name` is a matrix's, a bank's (then `expert` says
  /// which) or a single expert's ("layers.3.ffn.experts.7.w1.weight"). Empty when nothing is known: there is
  /// no such entry, or no row was ever routed to the expert. The quantiser then weighs as without a file.
  std::span<const float> for_tensor(std::string_view official_name, int64_t expert = -1) const;

  /// kBadPack naming file, tensor, expected and found sizes when an entry is not of a model of this shape.
  /// load_importance() has done it.
  Result<void> check_fits(const ModelConfig& config) const;

  /// kBadPack when an entry of that name exists or sizes contradict each other or a mean is not a finite
  /// number of at least 0.
  Result<void> add(std::string official_name, ImportanceEntry entry);

  const std::map<std::string, ImportanceEntry, std::less<>>& entries() const { return entries_; }

  std::string path;                   // for errors; "" when collected
  std::vector<std::string> datasets;  // names of the texts
  int64_t chunk_count = 0;            // sequences read, of chunk_tokens each
  int64_t chunk_tokens = 0;           // 0: not said

 private:
  std::map<std::string, ImportanceEntry, std::less<>> entries_;
};

/// Reads either format, told apart by the first bytes: GGUF with general.type "imatrix", or the older ".dat".
/// GGUF names of tensors become official ones; docs/formats/imatrix.md. The file must be of a model of this
/// shape (see check_fits), so that for_tensor() gives spans as long as the matrix's rows.
Result<ImportanceMatrix> load_importance(const std::string& path, const ModelConfig& config);

enum class ImportanceFormat { kGguf, kDat };
/// Writes under a temporary name and renames.
Result<void> save_importance(const ImportanceMatrix& importance, const std::string& path,
                             ImportanceFormat format);

}  // namespace fathom
