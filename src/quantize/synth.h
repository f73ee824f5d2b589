// Packs of random weights in real shapes and encodings, for work on speed, streaming and robustness where the
// real files cannot be. docs/quantize.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "quantize/pack_output.h"

namespace fathom {

struct SynthOptions {
  std::string shape = "v41-flash";  // or "mini", or a config.json
  std::string layers;               // "0..1,20..21"; empty: all
  std::string format = "official";  // or a recipe, by name or file
  /// "full": every row of every table. "sparse": tables are holes, marked as such. "none": the model has
  /// none. A number: so many rows a hash column. "auto": full up to 1 GiB, else sparse.
  std::string engram = "auto";
  uint64_t seed = 0;
  bool with_draft = false;
  OutputOptions to;
};

/// The pack loads and runs like any other; its config says that it is made up.
Result<OutputReport> synthesize_pack(const SynthOptions& options);

}  // namespace fathom
