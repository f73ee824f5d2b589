// One pack into another: containers, dialects and encodings. docs/quantize.md.
#pragma once

#include <string>

#include "base/result.h"
#include "quantize/pack_output.h"

namespace fathom {

struct QuantizeOptions {
  std::string input;
  std::string recipe;       // name or file; empty: lossless encodings of the dialect where it has them
  std::string importance;   // file; empty: none
  bool with_draft = false;  // of a GGUF; official packs keep draft stages that are there
  OutputOptions to;
};

/// Errors: those of opening a pack, a recipe and an importance file, of PackWriter, and kBadPack naming the
/// tensor for values that an encoding cannot hold. After an error or a cancellation the same call goes on.
Result<OutputReport> quantize_pack(const QuantizeOptions& options);

}  // namespace fathom
