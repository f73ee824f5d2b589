#include "quantize/pack_quantize.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/sha256.h"
#include "format/gguf.h"
#include "model/pack_names.h"
#include "quantize/imatrix.h"
#include "quantize/pack_rows.h"

namespace fathom {
namespace {

constexpr uint64_t kTextLimitBytes = uint64_t{1} << 28;

// Enough to tell two inputs apart without reading them: names, types and sizes of all tensors, and bytes of
// some.
Result<std::string> input_identity(const Pack& pack, const QuantizeOptions& options) {
  constexpr size_t kSamples = 64, kSampleBytes = 4096;
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.update(std::as_bytes(std::span(text))); };
  const std::vector<PackTensor>& tensors = pack.tensors();
  for (const PackTensor& tensor : tensors)
    add(fmt::format("{} {} {}\n", tensor.name, tensor.type_name, tensor.size_bytes));
  std::vector<std::byte> sample(kSampleBytes);
  for (size_t index = 0; index < kSamples && !tensors.empty(); ++index) {
    const PackTensor& tensor = tensors[index * tensors.size() / kSamples];
    FATHOM_ASSIGN(const RandomAccessFile file,
                  RandomAccessFile::open(pack.files()[static_cast<size_t>(tensor.file)].path));
    const std::span<std::byte> bytes =
        std::span(sample).first(std::min<size_t>(kSampleBytes, tensor.size_bytes));
    FATHOM_TRY(file.read_at(tensor.offset_bytes, bytes));
    hash.update(bytes);
  }
  if (!options.importance.empty()) {
    FATHOM_ASSIGN(const MappedFile file, MappedFile::open(options.importance));
    hash.update(file.bytes());
  }
  return hex_string(hash.finish());
}

// What belongs to the pack's GGUF and not to its tensors.
void copy_source_keys(const Pack& pack, KeyInputs& keys) {
  if (!pack.tokenizer().is_gguf) return;
  const auto file = open_gguf(pack.tokenizer().path);
  if (!file.ok()) return;
  const auto copy = [&](const char* key, std::string& to) {
    if (const auto value = file->keys.string(key); to.empty() && value.ok()) to = *value;
  };
  copy("general.source.url", keys.source_url);
  copy("general.source.revision", keys.source_revision);
}

Result<void> add_vocabulary(const Pack& pack, PackDialect dialect, KeyInputs& keys,
                            std::string& tokenizer_json) {
  const TokenizerSource& source = pack.tokenizer();
  if (dialect == PackDialect::kOfficial) {
    if (source.path.empty()) return {};
    if (!source.is_gguf) {
      FATHOM_ASSIGN(tokenizer_json, read_text_file(source.path, kTextLimitBytes));
      return {};
    }
    FATHOM_ASSIGN(keys.vocabulary, read_vocabulary(source, keys.config->vocab_size));
    return {};
  }
  if (source.path.empty())
    return Error::not_found("{}: no tokenizer found, which a GGUF must carry", pack.files().front().path);
  FATHOM_ASSIGN(keys.vocabulary, read_vocabulary(source, keys.config->vocab_size));
  if (keys.config->engram.layer_ids.empty()) return {};
  keys.token_map = pack.engram_constants().token_map;
  if (!keys.token_map.empty()) return {};
  FATHOM_ASSIGN(keys.token_map, engram_token_map(keys.vocabulary, source.path));
  return {};
}

// Vision goes over as it is where the container has names for it.
void add_vision(const Pack& pack, PackPlan& plan) {
  for (size_t index = 0; index < pack.tensors().size(); ++index) {
    const PackTensor& tensor = pack.tensors()[index];
    const std::optional<DType> type = dtype_from_safetensors(tensor.type_name);
    if (is_vision_tensor(tensor.name) && type) add_copy(plan, tensor, index, *type);
  }
}

Result<PackPlan> make_plan(const Pack& pack, const Recipe& recipe, PackDialect dialect, bool with_draft) {
  const PackAudit audit = pack.audit();
  const bool is_official = dialect == PackDialect::kOfficial;
  if (with_draft && !audit.has_draft)
    return Error::invalid("{}: it has no draft stages to keep", pack.files().front().path);
  PlanOptions options{.dialect = dialect, .with_draft = is_official ? audit.has_draft : with_draft};
  for (const PackTensor& tensor : pack.tensors())
    options.with_vision_bias |= tensor.name.ends_with(".gate.bias_vl");
  FATHOM_ASSIGN(PackPlan plan, plan_pack(pack.config(), recipe, options));
  if (is_official && audit.has_vision) add_vision(pack, plan);
  return plan;
}

}  // namespace

Result<OutputReport> quantize_pack(const QuantizeOptions& options) {
  FATHOM_ASSIGN(const PackDialect dialect, dialect_of(options.to));
  FATHOM_ASSIGN(const Recipe recipe, Recipe::load(options.recipe.empty() ? "mxfp4" : options.recipe));
  FATHOM_ASSIGN(const Pack pack, open_pack(options.input));
  FATHOM_TRY(pack.check_complete());
  std::optional<ImportanceMatrix> importance;
  if (!options.importance.empty()) {
    FATHOM_ASSIGN(importance, load_importance(options.importance, pack.config()));
  }
  FATHOM_ASSIGN(const PackPlan plan, make_plan(pack, recipe, dialect, options.with_draft));
  const ModelConfig& config = pack.config();
  KeyInputs keys{.config = &config,
                 .recipe = recipe.name(),
                 .importance_file = std::filesystem::path(options.importance).filename().string(),
                 .source_url = options.to.source_url,
                 .source_revision = options.to.source_revision};
  std::string tokenizer_json;
  FATHOM_TRY(add_vocabulary(pack, dialect, keys, tokenizer_json));
  copy_source_keys(pack, keys);
  FATHOM_ASSIGN(const std::string identity, input_identity(pack, options));
  FATHOM_ASSIGN(OutputPack output,
                OutputPack::open(plan, std::move(keys), tokenizer_json, identity, options.to));
  PackRows rows(pack, importance ? &*importance : nullptr);
  return output.write(rows, "quantizing");
}

}  // namespace fathom
