// What a Pack holds. For the files of pack*.cc only.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "format/gguf.h"
#include "model/pack.h"

namespace fathom {

/// What an MLX config says about one module; shapes must agree with it.
struct ModuleQuantization {
  bool dense = false;
  int bits = 0;      // 0: not said
  int group = 0;     // 0: not said
  std::string mode;  // "affine", "mxfp4", "mxfp8"; empty: not said
  std::optional<bool> quantize_input;
};

struct Pack::Impl {
  PackDialect dialect = PackDialect::kOfficial;
  ModelConfig config;
  TensorFiles store;
  std::vector<PackFile> files;
  std::vector<PackTensor> tensors;
  TokenizerSource tokenizer;
  EngramConstants constants;
  std::string engram_encoding;                        // of raw rows in a GGUF; empty: not said
  std::unordered_map<std::string, size_t> by_name;    // official name -> index into store.tensors
  std::map<std::string, ModuleQuantization> modules;  // by official module path
  std::optional<Pack> table_pack;                     // PackOptions::engram_path

  const TensorEntry* find(std::string_view official_name) const {
    const auto found = by_name.find(std::string(official_name));
    return found == by_name.end() ? nullptr : &store.tensors[found->second];
  }
  const std::string& path_of(const TensorEntry& tensor) const {
    return store.files[static_cast<size_t>(tensor.file)].path();
  }
  const ModuleQuantization* module(std::string_view official_module) const {
    const auto found = modules.find(std::string(official_module));
    return found == modules.end() ? nullptr : &found->second;
  }
};

/// Geometry of an MLX module, solved from shapes and checked against what the config says.
struct MlxEncoding {
  DType type = DType::kAffine;
  uint16_t bits = 0;
  uint16_t group = 0;
};

/// A stored tensor, or one expert's slice of a bank, as rows of stored columns.
struct Plane {
  const TensorEntry* tensor = nullptr;
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  uint64_t bytes = 0;
};

/// `weight` are U32 words of a row of `cols` codes; `scales` one value a group.
Result<MlxEncoding> mlx_encoding(const Pack::Impl& pack, const Plane& weight, const Plane& scales,
                                 int64_t cols);

/// The whole tensor when `banks` is 0, else slice `bank` of a first dimension that must be `banks`.
Result<Plane> plane_of(const Pack::Impl& pack, const TensorEntry& tensor, int64_t bank = 0,
                       int64_t banks = 0);

/// Error::bad_pack naming the tensor's file and name, what was expected, and its type and shape.
Error unexpected_tensor(const Pack::Impl& pack, const TensorEntry& tensor, std::string_view expected);

}  // namespace fathom
