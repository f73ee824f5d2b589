#include "capi/inspect.h"

#include <algorithm>

#include "base/sha256.h"
#include "capi/handles.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "ops/ops.h"
#include "text/engram_map.h"

namespace fathom::capi {
namespace {

// Blocks that a file system leaves out at a file's end are no hole.
constexpr uint64_t kSparseBytesMin = uint64_t{1} << 20;

const char* group_name(std::string_view tensor) {
  const auto group = weight_group(tensor);
  if (group == &WeightGroups::dense_bytes) return "dense";
  if (group == &WeightGroups::expert_bytes) return "routed experts";
  if (group == &WeightGroups::embedding_bytes) return "embedding and head";
  if (group == &WeightGroups::engram_projection_bytes) return "Engram projections";
  if (group == &WeightGroups::engram_disk_bytes) return "Engram tables";
  if (group == &WeightGroups::draft_bytes) return "draft";
  if (group == &WeightGroups::vision_bytes) return "vision";
  return "unknown";
}

template <class Stored, class Value>
std::string digest(const std::vector<Value>& values) {
  if (values.empty()) return {};
  const std::vector<Stored> stored(values.begin(), values.end());
  return hex_string(sha256(std::as_bytes(std::span(stored))));
}

template <class Value>
void append(std::vector<Value>& all, const std::vector<Value>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// From what a GGUF carries, else from the tokenizer and the config as a load would derive them.
Result<EngramDigests> digest_engram(const Pack& pack) {
  const EngramConfig& config = pack.config().engram;
  EngramConstants constants = pack.engram_constants();
  EngramDigests digests;
  if (constants.token_map.empty()) {
    FATHOM_ASSIGN(const Tokenizer tokenizer, load_tokenizer(pack.tokenizer()));
    constants.token_map = build_engram_token_map(tokenizer, pack.config().vocab_size).ids;
  }
  if (!constants.token_map.empty())
    digests.compressed_vocab_size =
        1 + *std::max_element(constants.token_map.begin(), constants.token_map.end());
  FATHOM_ASSIGN(const std::vector<EngramLayerHash> hashes,
                derive_engram_hash({.layer_ids = config.layer_ids,
                                    .ngram_max = config.max_ngram,
                                    .heads = config.heads,
                                    .rows_floor = config.vocab_size,
                                    .compressed_vocab_size = digests.compressed_vocab_size}));
  std::vector<int64_t> multipliers, primes, offsets;
  for (const EngramLayerHash& hash : hashes) {
    append(multipliers, hash.multipliers);
    append(primes, hash.primes);
    append(offsets, hash.offsets);
  }
  if (!constants.multipliers.empty())
    multipliers.assign(constants.multipliers.begin(), constants.multipliers.end());
  if (!constants.primes.empty()) primes = constants.primes;
  if (!constants.offsets.empty()) offsets = constants.offsets;
  digests.token_map = digest<int64_t>(constants.token_map);
  digests.token_map_u32 = digest<uint32_t>(constants.token_map);
  digests.multipliers = digest<int64_t>(multipliers);
  digests.primes = digest<int64_t>(primes);
  digests.offsets = digest<int64_t>(offsets);
  return digests;
}

int64_t engram_row_bytes(const Inspection& inspection) {
  int64_t bytes = 0;
  for (const EngramTableInfo& table : inspection.tables)
    bytes += static_cast<int64_t>(table.data.row_bytes + table.scales.row_bytes + table.biases.row_bytes);
  return bytes * inspection.config.engram.columns();
}

void inspect_engram(const Pack& pack, Inspection& inspection) {
  if (inspection.config.engram.layer_ids.empty()) return;
  for (const int layer : inspection.config.engram.layer_ids) {
    Result<EngramTableInfo> table = pack.engram_table(layer);
    if (table.ok()) {
      inspection.tables.push_back(std::move(*table));
    } else {
      inspection.problems.push_back(table.error().message);
    }
  }
  Result<EngramDigests> digests = digest_engram(pack);
  if (digests.ok()) {
    inspection.digests = std::move(*digests);
  } else {
    inspection.problems.push_back(digests.error().message);
  }
}

void find_problems(Inspection& inspection) {
  std::vector<std::string>& problems = inspection.problems;
  for (const PackFile& file : inspection.files) {
    const bool has_holes_by_intent = inspection.config.engram.sparse;
    if (!has_holes_by_intent && file.allocated_bytes + kSparseBytesMin < file.size_bytes)
      problems.push_back(fmt::format("{}: sparse: {} of {} are there", file.path,
                                     format_bytes(static_cast<int64_t>(file.allocated_bytes)),
                                     format_bytes(static_cast<int64_t>(file.size_bytes))));
  }
  for (const std::string& name : inspection.audit.missing)
    problems.push_back(fmt::format("tensor {} is missing", name));
  if (inspection.tokenizer_path.empty()) problems.push_back("no tokenizer found");
}

}  // namespace

// docs/model/encoder_decoder.md, "State": what a decode step reads of the caches.
TokenReads reads_of_token(const ModelConfig& config, const WeightGroups& weights, int64_t head_bytes,
                          int64_t engram_bytes, int64_t position) {
  TokenReads reads{.position = position};
  reads.dense_bytes = weights.dense_bytes + weights.engram_projection_bytes;
  reads.expert_bytes = config.routed_experts == 0
                           ? 0
                           : weights.expert_bytes / config.routed_experts * config.experts_per_token;
  reads.embedding_bytes =
      head_bytes + (weights.embedding_bytes - head_bytes) / std::max(1, config.vocab_size);
  reads.engram_bytes = engram_bytes;
  const StateShape shape = make_state_shape(config, Numerics::kOfficial, 0);
  for (const LayerPlan& layer : make_layer_plan(config)) {
    reads.kv_bytes += std::min<int64_t>(position, shape.window) * shape.window_row_bytes;
    if (layer.ratio == 0) continue;
    const int64_t rows = position / layer.ratio;
    const int64_t candidates = int64_t{config.candidate_topk_blocks} * config.candidate_block_size;
    reads.kv_bytes += std::min<int64_t>(rows, config.index_topk) * shape.compressed_row_bytes;
    if (layer.selects())
      reads.kv_bytes += (layer.uses_candidates ? std::min(rows, candidates) : rows) * shape.index_row_bytes;
  }
  return reads;
}

Result<Inspection> inspect_pack(const std::string& path) {
  Inspection inspection;
  inspection.path = path;
  FATHOM_ASSIGN(const Pack pack, open_pack(path, {.problems = &inspection.problems}));
  inspection.dialect = pack.dialect();
  inspection.config = pack.config();
  inspection.files = pack.files();
  inspection.weights = weigh_pack(pack);
  inspection.audit = pack.audit();
  inspection.tokenizer_path = pack.tokenizer().path;
  int64_t head_bytes = 0;
  for (const PackTensor& tensor : pack.tensors()) {
    TensorSum& sum = inspection.groups[group_name(tensor.name)][tensor.type_name];
    sum.tensors += 1;
    sum.bytes += static_cast<int64_t>(tensor.size_bytes);
    if (tensor.name.starts_with("head.")) head_bytes += static_cast<int64_t>(tensor.size_bytes);
  }
  if (head_bytes == 0) head_bytes = inspection.weights.embedding_bytes;  // tied
  inspect_engram(pack, inspection);
  const int64_t longest = inspection.config.max_position_embeddings;
  for (const int64_t position : {std::min<int64_t>(4096, longest), longest}) {
    if (!inspection.reads.empty() && inspection.reads.back().position == position) continue;
    inspection.reads.push_back(reads_of_token(inspection.config, inspection.weights, head_bytes,
                                              engram_row_bytes(inspection), position));
  }
  find_problems(inspection);
  return inspection;
}

}  // namespace fathom::capi

using namespace fathom;
using namespace fathom::capi;

fathom_status fathom_inspect(const char* path, bool as_json, char** text, size_t* problems) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(text);
    FATHOM_ASSIGN(const std::string found, find_model(path));
    FATHOM_ASSIGN(const Inspection inspection, inspect_pack(found));
    *text = copy_text(as_json ? inspection_json(inspection) : inspection_text(inspection));
    if (problems != nullptr) *problems = inspection.problems.size();
    return {};
  });
}
