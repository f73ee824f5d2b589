// Where everything of an output pack lies: files, their headers, the place of each tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "format/gguf_writer.h"
#include "quantize/pack_plan.h"

namespace fathom {

struct PlacedTensor {
  size_t file = 0;
  uint64_t offset_bytes = 0;   // absolute
  uint64_t padding_bytes = 0;  // zeros behind it
};

struct PackFileLayout {
  std::string path;    // final name
  std::string header;  // everything before the first tensor
  uint64_t size_bytes = 0;
};

struct PackLayout {
  std::string output;  // a folder, or the path of the (first) GGUF
  bool is_folder = false;
  std::vector<PackFileLayout> files;  // a reader begins with the first: it gets its name last
  std::vector<PlacedTensor> placed;   // one for each PackPlan::stored
  std::vector<std::pair<std::string, std::string>> texts;  // path, content: beside the files, written last
};

/// Safetensors shards "model-00001-of-00002.safetensors" of about `shard_bytes` in `folder`, with their
/// index.
Result<PackLayout> layout_safetensors(const PackPlan& plan, const std::string& folder,
                                      const std::map<std::string, std::string>& metadata,
                                      uint64_t shard_bytes);

/// One GGUF, or with `shard_bytes` > 0 a split set ("X-00001-of-00003.gguf" beside `path`). `add_keys` adds
/// the model's keys to the first file.
Result<PackLayout> layout_gguf(const PackPlan& plan, const std::string& path, uint64_t shard_bytes,
                               const std::function<void(GgufWriter&)>& add_keys);

}  // namespace fathom
