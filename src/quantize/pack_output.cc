#include "quantize/pack_output.h"

#include <filesystem>

#include "base/thread_pool.h"
#include "quantize/pack_config.h"
#include "quantize/pack_layout.h"

namespace fathom {
namespace {

constexpr uint64_t kOfficialShardBytes = 10'000'000'000;

std::string tokenizer_config_json() {
  return "{\n \"add_bos_token\": true,\n \"add_eos_token\": false,\n"
         " \"bos_token\": \"<｜begin▁of▁sentence｜>\",\n \"eos_token\": \"<｜end▁of▁sentence｜>\",\n"
         " \"pad_token\": \"<｜▁pad▁｜>\",\n \"unk_token\": null,\n"
         " \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
}

Result<PackLayout> layout_official(const PackPlan& plan, const KeyInputs& keys,
                                   const std::string& tokenizer_json, const OutputOptions& options) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}, {"fathom.recipe", keys.recipe}};
  if (keys.config->synthetic)
    metadata["fathom.synth"] =
        keys.config->engram.sparse ? "random weights, sparse Engram tables" : "random weights";
  const uint64_t shard_bytes = options.shard_bytes > 0 ? options.shard_bytes : kOfficialShardBytes;
  FATHOM_ASSIGN(PackLayout layout, layout_safetensors(plan, options.output, metadata, shard_bytes));
  const std::filesystem::path folder(options.output);
  if (!tokenizer_json.empty() || !keys.vocabulary.tokens.empty()) {
    layout.texts.emplace_back((folder / "tokenizer.json").string(),
                              tokenizer_json.empty() ? vocabulary_to_json(keys.vocabulary) : tokenizer_json);
    layout.texts.emplace_back((folder / "tokenizer_config.json").string(), tokenizer_config_json());
  }
  // Without its config a folder is no pack: so the config comes last.
  layout.texts.emplace_back((folder / "config.json").string(), config_to_json(*keys.config, true));
  return layout;
}

}  // namespace

Result<PackDialect> parse_output_dialect(std::string_view name) {
  if (name == "official") return PackDialect::kOfficial;
  if (name == "ds4") return PackDialect::kDs4Gguf;
  if (name == "llama.cpp") return PackDialect::kLlamaCppGguf;
  return Error::invalid("dialect: expected one of official, ds4, llama.cpp, found \"{}\"", name);
}

Result<PackDialect> dialect_of(const OutputOptions& options) {
  const bool is_gguf = options.output.ends_with(".gguf");
  PackDialect dialect = is_gguf ? PackDialect::kDs4Gguf : PackDialect::kOfficial;
  if (!options.dialect.empty()) {
    FATHOM_ASSIGN(dialect, parse_output_dialect(options.dialect));
  }
  if (is_gguf == (dialect == PackDialect::kOfficial))
    return Error::invalid("{}: expected {} for the dialect {}", options.output,
                          is_gguf ? "a folder" : "a name that ends in .gguf", options.dialect);
  if (dialect == PackDialect::kDs4Gguf && options.shard_bytes > 0)
    return Error::invalid("the ds4 dialect is one file: it cannot be split");
  return dialect;
}

Result<OutputPack> OutputPack::open(const PackPlan& plan, KeyInputs keys, const std::string& tokenizer_json,
                                    const std::string& identity, const OutputOptions& options) {
  OutputPack pack(plan, options);
  PackLayout layout;
  if (plan.dialect == PackDialect::kOfficial) {
    FATHOM_ASSIGN(layout, layout_official(plan, keys, tokenizer_json, options));
  } else {
    FATHOM_TRY(derive_hashes(keys));
    FATHOM_ASSIGN(layout, layout_gguf(plan, options.output, options.shard_bytes, [&](GgufWriter& writer) {
                    add_model_keys(writer, keys, plan.dialect);
                  }));
  }
  pack.report_.path = layout.output;
  pack.report_.tensors = static_cast<int64_t>(plan.stored.size());
  pack.report_.notes = plan.notes;
  for (const PlannedUnit& unit : plan.units)
    if (unit.is_hole) pack.report_.hole_bytes += plan.unit_bytes(unit);
  for (const PackFileLayout& file : layout.files) pack.report_.bytes += file.size_bytes;
  FATHOM_ASSIGN(pack.writer_, PackWriter::open(plan, std::move(layout),
                                               {.identity = identity,
                                                .with_checksums = options.with_checksums,
                                                .restart = options.restart,
                                                .journal_interval_bytes = options.journal_interval_bytes}));
  return pack;
}

Result<OutputReport> OutputPack::write(RowSource& source, std::string_view stage) {
  ThreadPool pool(options_.threads);
  report_.resumed_bytes = writer_->resumed_bytes();
  FATHOM_TRY(stream_pack(*plan_, source, *writer_, pool, stage, options_.progress));
  FATHOM_TRY(writer_->commit());
  report_.checksum_path = writer_->checksum_path();
  return report_;
}

}  // namespace fathom
