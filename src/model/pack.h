// A pack: the files of one model, opened, with tensors under their official names whatever the container
// called them ("layers.3.attn.wq_a.weight"). Opening reads headers only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "tensor/weight.h"

namespace fathom {

enum class PackDialect {
  kOfficial,      // safetensors of the release
  kDs4Gguf,       // GGUF with HF-style keys and whole Engram rows
  kLlamaCppGguf,  // GGUF of the llama.cpp converter and its relatives
  kOMlx,          // safetensors, config has omlx_deepseek_v41
  kMlx,           // safetensors, config has quantization (mlx-lm, mlx-serve)
};
std::string_view dialect_name(PackDialect dialect);

struct PackFile {
  std::string path;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // less than size_bytes: the file is sparse
};

/// One array of an Engram table inside a file: row r is row_bytes bytes at offset_bytes + r * stride_bytes.
struct TableArray {
  std::string path;
  uint64_t offset_bytes = 0;
  uint64_t stride_bytes = 0;
  uint64_t row_bytes = 0;  // 0: the encoding has no such array
};

/// Where an Engram table lies and how a row decodes: the fields a WeightMatrix of one row needs. Never
/// mapped; rows are read by position. `scales` and `biases` are used by kFp8Row32 and kAffine only.
struct EngramTableInfo {
  DType type = DType::kEngramRow264;
  int64_t rows = 0;
  int64_t width = 0;  // values a row
  TableArray data;
  TableArray scales;
  TableArray biases;
  DType scale_type = DType::kF8E8M0;
  uint16_t bits = 0;
  uint16_t group = 0;
  bool is_sparse = false;  // rows may be holes, by intent
};

/// Hash constants that a GGUF carries. All empty in other packs: they are then derived from the tokenizer.
/// Layer-major; orders 2..max_ngram, then heads.
struct EngramConstants {
  std::vector<int32_t> token_map;     // vocab_size
  std::vector<int64_t> primes;        // layers * columns
  std::vector<int64_t> offsets;       // layers * columns; empty when the file leaves them to be summed
  std::vector<uint64_t> multipliers;  // layers * max_ngram
  bool empty() const { return token_map.empty() && primes.empty() && multipliers.empty(); }
};

/// Where the tokenizer is: a tokenizer.json, or a GGUF with tokenizer.ggml.* keys. Empty path: not found.
struct TokenizerSource {
  std::string path;
  bool is_gguf = false;
};

/// A tensor as inspect shows it.
struct PackTensor {
  std::string name;  // official name, or the file's own if it maps to none
  std::string stored_name;
  std::string type_name;       // the container's name of its element type
  std::vector<int64_t> shape;  // as stored, outermost first
  int file = 0;                // index into files()
  uint64_t offset_bytes = 0;   // absolute
  uint64_t size_bytes = 0;
};

struct PackAudit {
  std::vector<std::string> missing;     // expected by the config, not in the files
  std::vector<std::string> unexpected;  // in the files, expected by nothing
  bool has_draft = false;               // any mtp.* tensor: then all of them are expected
  bool has_vision = false;              // any vision.*, aligner.*, image_* tensor
};

struct PackOptions {
  /// Collects what is wrong here instead of stopping at the first fault, as far as that makes sense. For
  /// inspect: a pack opened this way may lack tensors or have tensors that end beyond their file.
  std::vector<std::string>* problems = nullptr;
  /// Another copy of the pack to read Engram tables from: the main one may be a sparse copy without them, or
  /// lie on a slower disk.
  std::string engram_path;
};

/// Immutable after opening; every method may be called from any thread. WeightMatrix views live as long as
/// the Pack and fault their pages in from the mapped files on first touch.
class Pack {
 public:
  Pack(Pack&&) noexcept;
  Pack& operator=(Pack&&) noexcept;
  ~Pack();

  const ModelConfig& config() const;
  PackDialect dialect() const;
  const std::vector<PackFile>& files() const;
  const std::vector<PackTensor>& tensors() const;
  const TokenizerSource& tokenizer() const;
  const EngramConstants& engram_constants() const;
  bool has_tensor(std::string_view official_name) const;

  /// A matrix [rows, cols] in any encoding, scales attached. Errors name tensor, expected and found.
  Result<WeightMatrix> matrix(std::string_view official_name, int64_t rows, int64_t cols) const;
  /// `count` values of a small tensor of any shape and encoding, as float32.
  Result<std::vector<float>> vector(std::string_view official_name, int64_t count) const;
  /// Matrix `which` ("w1", "w2", "w3") of a routed expert of `block` ("layers.7", "mtp.0"): its own tensor,
  /// or its slice of a bank.
  Result<WeightMatrix> expert_matrix(std::string_view block, int64_t expert, std::string_view which,
                                     int64_t rows, int64_t cols) const;
  Result<EngramTableInfo> engram_table(int layer) const;
  /// Whether the input of this matrix is rounded to FP8 in the release's arithmetic although its stored
  /// type no longer says so (oMLX quantize_input); nothing where the pack does not say.
  std::optional<bool> quantize_input(std::string_view official_name) const;

  struct FileRange {
    int file;  // index into files()
    uint64_t offset_bytes;
  };
  /// File and offset behind an address inside a view, for readers that bypass the map.
  std::optional<FileRange> locate(const std::byte* address) const;

  PackAudit audit() const;
  /// An error naming the first few missing tensors, or success.
  Result<void> check_complete() const;

  struct Impl;
  explicit Pack(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

/// `path`: a folder with config.json and safetensors, a .safetensors file or a .safetensors.index.json
/// beside a config.json, or a .gguf (of a split set: the first shard).
Result<Pack> open_pack(const std::string& path, const PackOptions& options = {});

}  // namespace fathom
