// The model's keys of a GGUF, in both dialects: docs/formats/packs.md lists them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "format/gguf_writer.h"
#include "model/config.h"
#include "model/engram_hash.h"
#include "model/pack.h"
#include "quantize/pack_tokenizer.h"

namespace fathom {

struct KeyInputs {
  const ModelConfig* config = nullptr;
  VocabularyData vocabulary;
  std::vector<int32_t> token_map;       // empty without Engram tables
  std::vector<EngramLayerHash> hashes;  // likewise
  std::string recipe;                   // in words
  std::string importance_file;          // name; empty: none was used
  std::string source_url;               // of the model; empty: not said
  std::string source_revision;
};

/// Fills `hashes` from the config and the token map. kBadPack when the map and the config disagree.
Result<void> derive_hashes(KeyInputs& inputs);

/// `dialect` is one of the two of GGUF.
void add_model_keys(GgufWriter& writer, const KeyInputs& inputs, PackDialect dialect);

}  // namespace fathom
