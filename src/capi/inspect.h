// What a pack is and what is wrong with it, from headers alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "model/pack.h"

namespace fathom::capi {

struct TensorSum {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

/// SHA-256 in hex of the hash constants as arrays of little-endian int64, layer-major; empty: unknown. They
/// can be compared with the published ones: docs/model/engram.md.
struct EngramDigests {
  std::string token_map;
  std::string token_map_u32;
  std::string multipliers;
  std::string primes;
  std::string offsets;
  int32_t compressed_vocab_size = 0;
};

/// Bytes that one decoded token reads at a position.
struct TokenReads {
  int64_t position = 0;
  int64_t dense_bytes = 0;
  int64_t expert_bytes = 0;     // of the experts that are chosen
  int64_t embedding_bytes = 0;  // the whole head, one row of the embedding
  int64_t engram_bytes = 0;     // rows from disk
  int64_t kv_bytes = 0;         // rings, selected rows, index keys; official numerics
  int64_t total_bytes() const {
    return dense_bytes + expert_bytes + embedding_bytes + engram_bytes + kv_bytes;
  }
};

struct Inspection {
  std::string path;
  PackDialect dialect = PackDialect::kOfficial;
  ModelConfig config;
  std::vector<PackFile> files;
  std::map<std::string, std::map<std::string, TensorSum>> groups;  // group -> type -> sum
  WeightGroups weights;
  std::vector<TokenReads> reads;
  std::vector<EngramTableInfo> tables;
  EngramDigests digests;
  PackAudit audit;
  std::string tokenizer_path;
  std::vector<std::string> problems;
};

/// Fails only where nothing can be said; everything else that is wrong is in `problems`.
Result<Inspection> inspect_pack(const std::string& path);

TokenReads reads_of_token(const ModelConfig& config, const WeightGroups& weights, int64_t head_bytes,
                          int64_t engram_bytes, int64_t position);

std::string inspection_text(const Inspection& inspection);
std::string inspection_json(const Inspection& inspection);

}  // namespace fathom::capi
