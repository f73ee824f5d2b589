// The model's shape from the keys of a GGUF.
#pragma once

#include "format/gguf.h"
#include "model/config.h"
#include "model/pack.h"

namespace fathom {

/// ds4 dialect: the embedded config.json if there is one, else its keys, which have the config's names.
/// llama.cpp dialect: its keys; which layers are sources or have tables follows from the tensors present.
/// Refuses other architectures by name.
Result<PackDialect> gguf_dialect(const GgufFile& file);
Result<ModelConfig> config_from_gguf(const GgufFile& file, PackDialect dialect);

/// Hash constants of either dialect; arrays that do not fit the config's tables are refused, except that a
/// file whose arrays cover only some of its tables counts as carrying none.
Result<EngramConstants> engram_constants_from_gguf(const GgufFile& file, const ModelConfig& config);

}  // namespace fathom
