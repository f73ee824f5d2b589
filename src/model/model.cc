#include "model/model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/file.h"
#include "base/sha256.h"
#include "model/forward.h"
#include "model/rope_table.h"

namespace fathom {

struct Model::Impl {
  Impl(Pack opened_pack, Backend& used_backend, ModelOptions given)
      : pack(std::move(opened_pack)), backend(used_backend), options(std::move(given)) {}

  Pack pack;
  Backend& backend;
  ModelOptions options;
  std::vector<LayerPlan> plan;
  StateShape shape;
  ModelWeights weights;
  Scratch scratch;
  std::vector<EngramLayerHash> engram_hashes;
  std::vector<int32_t> engram_token_map;
  std::unique_ptr<EngramReader> engram_reader;
  Buffer frequencies[2];
  std::array<uint8_t, 32> fingerprint{};
  std::unique_ptr<StepRunner> runner;

  Result<void> check_features() const;
  Result<void> open_engram();
  Result<void> make_frequencies();
  Result<void> make_fingerprint();
  Result<void> check(std::span<const Segment> segments) const;
  Result<void> check_logits(std::span<const Segment> segments) const;
};

Result<void> Model::Impl::check_features() const {
  const ModelConfig& config = pack.config();
  const std::string& path = pack.files().front().path;
  if (config.gate_temp != 1.0)
    return Error::unsupported("{}: gate_temp is {}, expected 1", path, config.gate_temp);
  if (!config.norm_topk_prob) return Error::unsupported("{}: norm_topk_prob is false, expected true", path);
  if (config.shared_experts != 1)
    return Error::unsupported("{}: n_shared_experts is {}, expected 1", path, config.shared_experts);
  // A tensor that no layer's role asks for means that the config and the weights disagree about roles.
  for (const std::string& name : pack.audit().unexpected)
    if (name.starts_with("layers."))
      return Error::bad_pack("{}: tensor {} has no place in the model that the config describes", path, name);
  for (const int layer : config.engram.layer_ids)
    if (layer > config.encoder_layers())
      return Error::unsupported("{}: Engram on layer {}, expected at or below layer {}", path, layer,
                                config.encoder_layers());
  return {};
}

Result<void> Model::Impl::open_engram() {
  const EngramConfig& config = pack.config().engram;
  if (config.layer_ids.empty()) return {};
  const std::string& path = pack.files().front().path;
  const EngramConstants& stored = pack.engram_constants();
  engram_token_map = stored.token_map.empty() ? options.engram_token_map : stored.token_map;
  if (engram_token_map.size() != static_cast<size_t>(pack.config().vocab_size))
    return Error::bad_pack("{}: Engram token map has {} entries, expected {} (vocab_size); it comes from the "
                           "pack's tokenizer",
                           path, engram_token_map.size(), pack.config().vocab_size);
  const int32_t classes = 1 + *std::max_element(engram_token_map.begin(), engram_token_map.end());
  if (config.compressed_vocab_size != 0 && classes != config.compressed_vocab_size)
    return Error::bad_pack("{}: Engram token map has {} classes, expected {} "
                           "(engram_compressed_vocab_size): the tokenizer is not this model's",
                           path, classes, config.compressed_vocab_size);
  FATHOM_ASSIGN(engram_hashes, derive_engram_hash({.layer_ids = config.layer_ids,
                                                   .ngram_max = config.max_ngram,
                                                   .heads = config.heads,
                                                   .rows_floor = config.vocab_size,
                                                   .compressed_vocab_size = classes}));
  std::vector<EngramTableInfo> tables;
  for (size_t index = 0; index < config.layer_ids.size(); ++index) {
    EngramLayerHash& hash = engram_hashes[index];
    FATHOM_ASSIGN(EngramTableInfo table, pack.engram_table(config.layer_ids[index]));
    const size_t columns = static_cast<size_t>(config.columns());
    for (size_t column = 0; column < columns && !stored.primes.empty(); ++column)
      if (stored.primes[index * columns + column] != hash.primes[column])
        return Error::bad_pack("{}: Engram prime {} of layer {} is {}, expected {}", path, column,
                               config.layer_ids[index], stored.primes[index * columns + column],
                               hash.primes[column]);
    const size_t orders = static_cast<size_t>(config.max_ngram);
    for (size_t place = 0; place < orders && !stored.multipliers.empty(); ++place)
      if (stored.multipliers[index * orders + place] != static_cast<uint64_t>(hash.multipliers[place]))
        return Error::bad_pack("{}: Engram multiplier {} of layer {} is {}, expected {}", path, place,
                               config.layer_ids[index], stored.multipliers[index * orders + place],
                               hash.multipliers[place]);
    if (table.rows != hash.rows)
      return Error::bad_pack("{}: Engram table of layer {} has {} rows, its primes sum to {}", path,
                             config.layer_ids[index], table.rows, hash.rows);
    tables.push_back(std::move(table));
  }
  FATHOM_ASSIGN(engram_reader, EngramReader::open(std::move(tables), config.columns(), options.engram));
  return {};
}

Result<void> Model::Impl::make_frequencies() {
  const ModelConfig& config = pack.config();
  const std::vector<float> tables[2] = {
      rope_frequencies(config.rope_theta, config.rope_dim),
      yarn_frequencies(config.compress_rope_theta, config.rope_dim, config.yarn)};
  for (int kind = 0; kind < 2; ++kind) {
    const int64_t bytes = static_cast<int64_t>(tables[kind].size()) * 4;
    FATHOM_ASSIGN(frequencies[kind], Buffer::make(backend, bytes, "rotary frequencies"));
    backend.upload(frequencies[kind].bytes(), tables[kind].data(), static_cast<size_t>(bytes));
  }
  return {};
}

// Names, types and sizes of all tensors, and the first bytes of a few spread over the files: enough to tell
// two sets of weights apart without reading them.
Result<void> Model::Impl::make_fingerprint() {
  constexpr size_t kSamples = 32, kSampleBytes = 4096;
  Sha256 hash;
  const auto add = [&](const std::string& text) { hash.update(std::as_bytes(std::span(text))); };
  const std::vector<PackTensor>& tensors = pack.tensors();
  for (const PackTensor& tensor : tensors)
    add(fmt::format("{} {} {}\n", tensor.name, tensor.type_name, tensor.size_bytes));
  std::vector<std::byte> sample(kSampleBytes);
  for (size_t index = 0; index < kSamples && !tensors.empty(); ++index) {
    const PackTensor& tensor = tensors[index * tensors.size() / kSamples];
    FATHOM_ASSIGN(const RandomAccessFile file,
                  RandomAccessFile::open(pack.files()[static_cast<size_t>(tensor.file)].path));
    const auto bytes = std::span(sample).first(std::min<size_t>(kSampleBytes, tensor.size_bytes));
    FATHOM_TRY(file.read_at(tensor.offset_bytes, bytes));
    hash.update(bytes);
  }
  fingerprint = hash.finish();
  return {};
}

Result<std::unique_ptr<Model>> Model::load(Pack pack, Backend& backend, ModelOptions options,
                                           const ProgressFn& progress) {
  if (options.step_rows < 1) return Error::invalid("step of {} rows, expected at least 1", options.step_rows);
  if (options.rewind_tokens < 0)
    return Error::invalid("rewind of {} tokens, expected 0 or more", options.rewind_tokens);
  auto impl = std::make_unique<Impl>(std::move(pack), backend, std::move(options));
  FATHOM_TRY(impl->pack.check_complete());
  FATHOM_TRY(impl->check_features());
  const ModelConfig& config = impl->pack.config();
  impl->plan = make_layer_plan(config);
  impl->shape = make_state_shape(config, impl->options.numerics, impl->options.rewind_tokens);
  FATHOM_ASSIGN(impl->weights,
                load_weights(impl->pack, impl->plan, backend, impl->options.numerics, progress));
  FATHOM_TRY(impl->open_engram());
  FATHOM_TRY(impl->make_frequencies());
  FATHOM_TRY(backend.reserve(work_shape(config, impl->options.step_rows, 1)));
  FATHOM_ASSIGN(impl->scratch, make_scratch(config, impl->shape, impl->options.step_rows, backend));
  FATHOM_TRY(impl->make_fingerprint());
  impl->runner = std::make_unique<StepRunner>(ForwardContext{
      .config = config,
      .options = impl->options,
      .shape = impl->shape,
      .plan = impl->plan,
      .weights = impl->weights,
      .scratch = impl->scratch,
      .backend = backend,
      .engram_reader = impl->engram_reader.get(),
      .engram_hashes = impl->engram_hashes,
      .engram_token_map = impl->engram_token_map,
      .frequencies = {impl->frequencies[0].floats(), impl->frequencies[1].floats()}});
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
const Pack& Model::pack() const { return impl_->pack; }
const ModelConfig& Model::config() const { return impl_->pack.config(); }
const ModelOptions& Model::options() const { return impl_->options; }
const StateShape& Model::state_shape() const { return impl_->shape; }
const std::array<uint8_t, 32>& Model::fingerprint() const { return impl_->fingerprint; }
void Model::set_probe(Probe probe) { impl_->runner->set_probe(std::move(probe)); }

EngramReader::Statistics Model::engram_statistics() const {
  return impl_->engram_reader != nullptr ? impl_->engram_reader->statistics() : EngramReader::Statistics{};
}

Result<std::unique_ptr<SequenceState>> Model::new_state(int64_t capacity_tokens) {
  FATHOM_TRY(impl_->backend.reserve(work_shape(config(), impl_->options.step_rows, capacity_tokens)));
  return SequenceState::make(impl_->shape, impl_->backend, capacity_tokens);
}

namespace {

Result<void> check_portion(const Segment& segment) {
  if (!segment.state->decoder_pending())
    return Error::invalid("a segment without tokens, of a state whose decoder has seen all rows");
  if (!segment.is_last_chunk || segment.logits == LogitRows::kAll || segment.decoder_rows_max < 1)
    return Error::invalid("a segment without tokens: expected a last chunk, logits of the last row or none, "
                          "and a portion of at least 1 row, found {}", segment.decoder_rows_max);
  return {};
}

}  // namespace

Result<void> Model::Impl::check(std::span<const Segment> segments) const {
  const ModelConfig& config = pack.config();
  if (segments.empty()) return Error::invalid("a step without segments");
  int64_t rows = 0;
  std::set<const SequenceState*> states;
  for (const Segment& segment : segments) {
    const int64_t count = static_cast<int64_t>(segment.tokens.size());
    const SequenceState& state = *segment.state;
    rows += count;
    if (count == 0) FATHOM_TRY(check_portion(segment));
    if (count > 0 && state.decoder_catching_up())
      return Error::state("{} tokens after {}, while the decoder still has {} rows to see", count,
                          state.position(), state.decoder_backlog());
    if (!states.insert(&state).second) return Error::invalid("a sequence has two segments in one step");
    if (state.position() + count > state.capacity())
      return Error::context_full("{} tokens after {} do not fit a context of {}", count, state.position(),
                                 state.capacity());
    if (state.decoder_pending() && segment.logits == LogitRows::kAll)
      return Error::state("logits of all rows are wanted in the middle of a prompt begun without them");
    if (!segment.is_last_chunk && segment.logits == LogitRows::kLast)
      return Error::invalid("logits of the last row are wanted of a chunk that is not the last");
    if (segment.logits != LogitRows::kNone && segment.logits_out == nullptr)
      return Error::invalid("logits are wanted but there is no room for them");
    for (const auto tokens : {segment.tokens, segment.next_tokens})
      for (size_t index = 0; index < tokens.size(); ++index) {
        if (tokens[index] < 0 || tokens[index] >= config.vocab_size)
          return Error::invalid("token {} at index {} of a segment, expected 0..{}", tokens[index], index,
                                config.vocab_size - 1);
        if (config.vision.has_value() && tokens[index] == config.image_token_id)
          return Error::unsupported("token {} at index {} stands for an image; images cannot be taken yet",
                                    tokens[index], index);
      }
  }
  if (rows > options.step_rows)
    return Error::invalid("{} rows in a step, expected at most {}", rows, options.step_rows);
  return {};
}

// The last net: no token is drawn from logits that are not numbers.
Result<void> Model::Impl::check_logits(std::span<const Segment> segments) const {
  for (const Segment& segment : segments) {
    if (segment.logits == LogitRows::kNone || segment.state->decoder_pending()) continue;
    const size_t rows = segment.logits == LogitRows::kAll ? segment.tokens.size() : 1;
    const size_t count = rows * static_cast<size_t>(pack.config().vocab_size);
    if (std::all_of(segment.logits_out, segment.logits_out + count, [](float x) { return std::isfinite(x); }))
      continue;
    for (const Segment& advanced : segments) advanced.state->reset();
    return Error::bad_pack("{}: logits are not finite although every weight is: the activations overflow",
                           pack.files().front().path);
  }
  return {};
}

Result<void> Model::run(std::span<const Segment> segments, const StopFn& stop) {
  FATHOM_TRY(impl_->check(segments));
  FATHOM_TRY(impl_->runner->run(segments, stop));
  return impl_->check_logits(segments);
}

}  // namespace fathom
