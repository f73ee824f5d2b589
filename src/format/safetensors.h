// safetensors: u64 header length, a JSON header {name: {dtype, shape, data_offsets}}, then data. Data may
// start at any address, so views are unaligned.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "format/tensor_file.h"

namespace fathom {

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in header order, placed in the bytes they were parsed from
  std::map<std::string, std::string> metadata;
};

/// Parses and checks one file given as bytes. Only the header is read. `where` names the file in errors.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, const std::string& where,
                                            Problems* problems = nullptr);

/// Opens a .safetensors file, a *.safetensors.index.json, or a folder holding model.safetensors.index.json,
/// model.safetensors, or exactly one .safetensors file.
Result<TensorFiles> open_safetensors(const std::string& path, Problems* problems = nullptr);

/// Adds the tensors of one more file and indexes again. For tables that a pack keeps out of its index.
Result<void> add_safetensors_file(TensorFiles& store, const std::string& path, Problems* problems = nullptr);

}  // namespace fathom
