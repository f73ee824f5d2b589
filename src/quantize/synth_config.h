// Shapes for `fathom synth`, and subsets of their layers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace fathom {

/// "v41-flash" or "mini": the release's shape and the embedded model's; else the path of a config.json.
Result<ModelConfig> load_shape(const std::string& name_or_path);

/// "0..1,20..21,30" -> {0, 1, 20, 21, 30}. Ascending; kInvalidArgument otherwise or outside [0, layers).
Result<std::vector<int>> parse_layers(std::string_view text, int layers);

/// The model that these layers of `config` make when put one behind the other. Layers keep their compression
/// ratio and table. Where a source of keys (or of selections) is left out, the first chosen layer of those
/// that read it becomes the source; the candidate source moves alike. Draft stages then tap the last layers.
ModelConfig select_layers(const ModelConfig& config, const std::vector<int>& layers);

/// Sets engram.rows to what the hash's primes sum to; with `vocab_size` > 0 after making tables of about that
/// many rows a column.
Result<void> size_engram(ModelConfig& config, int64_t vocab_size);

}  // namespace fathom
