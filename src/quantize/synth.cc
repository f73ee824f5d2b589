#include "quantize/synth.h"

#include <charconv>

#include "quantize/recipe.h"
#include "quantize/synth_config.h"
#include "quantize/synth_rows.h"
#include "quantize/synth_tokenizer.h"

namespace fathom {
namespace {

constexpr uint64_t kFullTablesBytes = uint64_t{1} << 30;

Result<ModelConfig> make_config(const SynthOptions& options) {
  FATHOM_ASSIGN(ModelConfig config, load_shape(options.shape));
  if (!options.with_draft) config.draft = {};
  if (!options.layers.empty()) {
    FATHOM_ASSIGN(const std::vector<int> layers, parse_layers(options.layers, config.num_layers));
    config = select_layers(config, layers);
  }
  if (options.with_draft && config.draft.stages == 0)
    return Error::invalid("shape {}: it has no draft stages", options.shape);
  config.synthetic = true;
  if (options.engram == "none") config.engram = {};
  return config;
}

Result<void> choose_tables(const SynthOptions& options, ModelConfig& config) {
  int64_t rows = 0;
  const std::string& mode = options.engram;
  if (mode != "auto" && mode != "full" && mode != "sparse" && mode != "none") {
    const auto [end, code] = std::from_chars(mode.data(), mode.data() + mode.size(), rows);
    if (code != std::errc() || end != mode.data() + mode.size() || rows < 1 || rows > int64_t{1} << 32)
      return Error::invalid("engram: expected auto, full, sparse, none or rows a column, found \"{}\"", mode);
  }
  FATHOM_TRY(size_engram(config, rows));
  uint64_t bytes = 0;
  for (const int64_t count : config.engram.rows)
    bytes += static_cast<uint64_t>(count) * static_cast<uint64_t>(config.engram.head_dim);
  config.engram.sparse =
      !config.engram.layer_ids.empty() && (mode == "sparse" || (mode == "auto" && bytes > kFullTablesBytes));
  return {};
}

}  // namespace

Result<OutputReport> synthesize_pack(const SynthOptions& options) {
  const bool is_official = options.format == "official";
  OutputOptions to = options.to;
  if (is_official && to.dialect.empty()) to.dialect = "official";
  FATHOM_ASSIGN(const PackDialect dialect, dialect_of(to));
  if (is_official != (dialect == PackDialect::kOfficial))
    return Error::invalid("{}: the format {} is stored {}", to.output, options.format,
                          is_official ? "in a folder" : "in a .gguf file");
  FATHOM_ASSIGN(const Recipe recipe, Recipe::load(is_official ? "mxfp4" : options.format));
  FATHOM_ASSIGN(ModelConfig config, make_config(options));
  KeyInputs keys;
  FATHOM_ASSIGN(keys.vocabulary, make_vocabulary(config));
  FATHOM_TRY(choose_tables(options, config));
  FATHOM_TRY(validate_config(config, options.shape));
  keys.config = &config;
  keys.recipe = fmt::format("{}, random weights", options.format);
  if (!config.engram.layer_ids.empty()) {
    FATHOM_ASSIGN(keys.token_map, engram_token_map(keys.vocabulary, "made-up vocabulary"));
  }
  FATHOM_ASSIGN(PackPlan plan, plan_pack(config, recipe,
                                         {.dialect = dialect,
                                          .with_draft = options.with_draft,
                                          .with_vision_bias = config.image_token_id >= 0}));
  for (PlannedUnit& unit : plan.units)
    unit.is_hole = unit.kind == PlannedUnit::Kind::kTable && config.engram.sparse;
  const std::string identity = fmt::format("synth 1, seed {}", options.seed);
  FATHOM_ASSIGN(OutputPack output, OutputPack::open(plan, std::move(keys), "", identity, to));
  RandomRows rows(options.seed);
  return output.write(rows, "writing");
}

}  // namespace fathom
