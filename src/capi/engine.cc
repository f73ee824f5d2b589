#include <algorithm>

#include "base/log.h"
#include "capi/handles.h"
#include "cpu/backend.h"
#include "format/gguf.h"
#include "ops/reference/backend.h"
#include "text/engram_map.h"

namespace fathom::capi {
namespace {

constexpr int64_t kDefaultContextTokens = 4096;
constexpr int64_t kDefaultCheckpointBytes = int64_t{64} << 20;
constexpr int64_t kCheckpointBytesMax = int64_t{1} << 40;  // of one session; times the most sessions fits
constexpr int32_t kIoThreadsMax = 1024;
constexpr int32_t kStepRowsMax = 65536;
constexpr int32_t kSessionsMax = 65536;

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

// The value of a name, or an error that lists the names.
template <class Value, size_t count>
Result<Value> choose(const char* option, std::string_view name, const Named<Value> (&known)[count]) {
  std::string names;
  for (const Named<Value>& candidate : known) {
    if (candidate.name == name) return candidate.value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", candidate.name);
  }
  return Error::invalid("{}: expected one of {}, found \"{}\"", option, names, name);
}

Result<int32_t> whole(const char* option, int32_t value, int32_t otherwise, int32_t most) {
  if (value == 0) return otherwise;
  if (value < 0 || value > most) return Error::invalid("{}: expected 0 to {}, found {}", option, most, value);
  return value;
}

constexpr Named<Numerics> kNumerics[] = {{"official", Numerics::kOfficial}, {"exact", Numerics::kExact}};
constexpr Named<CedMode> kCedModes[] = {
    {"exact", CedMode::kExact}, {"bounded", CedMode::kBounded}, {"off", CedMode::kOff}};
constexpr Named<bool> kBackends[] = {{"cpu", true}, {"reference", false}};

Result<std::unique_ptr<Backend>> make_backend(const Settings& settings) {
  FATHOM_ASSIGN(const bool is_cpu, choose("backend", settings.backend, kBackends));
  if (!is_cpu) return std::unique_ptr<Backend>(std::make_unique<reference::ReferenceBackend>());
  FATHOM_ASSIGN(const CpuIsa isa, parse_cpu_isa(settings.cpu_isa));
  return make_cpu_backend({.thread_count = settings.threads, .isa = isa, .pin = settings.pin_threads});
}

// The map that the pack's tokenizer gives; the one a GGUF carries is compared with it.
void make_token_map(const Pack& pack, const Tokenizer& tokenizer, std::vector<int32_t>& map) {
  if (pack.config().engram.layer_ids.empty()) return;
  map = build_engram_token_map(tokenizer, pack.config().vocab_size).ids;
  const std::vector<int32_t>& stored = pack.engram_constants().token_map;
  if (stored.empty() || stored == map) return;
  size_t different = 0;
  for (size_t id = 0; id < std::min(stored.size(), map.size()); ++id) different += stored[id] != map[id];
  log_warning(
      "{}: the Engram token map in the file differs from the tokenizer's in {} of {} tokens; "
      "the file's is used",
      pack.files().front().path, different, map.size());
}

fathom_engine_info make_info(const fathom_engine& engine) {
  const ModelConfig& config = engine.model->config();
  const EngramReader::Statistics engram = engine.model->engram_statistics();
  fathom_engine_info info{};
  info.size = sizeof info;
  info.model_name = engine.name.c_str();
  info.model_path = engine.path.c_str();
  info.dialect = dialect_name(engine.model->pack().dialect()).data();  // a literal
  info.backend = engine.backend_description.c_str();
  info.numerics = engine.numerics.c_str();
  info.ced = engine.ced.c_str();
  info.vocab_size = config.vocab_size;
  info.layers = config.num_layers;
  info.step_rows = engine.model->options().step_rows;
  info.max_context_tokens = config.max_position_embeddings;
  info.file_bytes = engine.file_bytes;
  info.weight_bytes = engine.plan.weights.resident_bytes();
  info.planned_bytes = engine.plan.fixed_bytes() + engine.session_bytes;
  info.budget_bytes = engine.plan.budget_bytes;
  info.engram_rows_asked = engram.rows_asked;
  info.engram_rows_read = engram.rows_read;
  info.engram_bytes_read = engram.bytes_read;
  info.has_engram = !config.engram.layer_ids.empty();
  info.has_draft = engine.audit.has_draft;
  info.has_vision = engine.audit.has_vision;
  std::copy(engine.model->fingerprint().begin(), engine.model->fingerprint().end(), info.fingerprint);
  return info;
}

std::string make_summary(const fathom_engine& engine) {
  const ModelConfig& config = engine.model->config();
  return fmt::format(
      "{}: {} layers, hidden {}, {} experts ({} a token), vocabulary {}\n"
      "{}, {} on disk, {} of weights\n"
      "{}, numerics {}, ced {}, {} rows a step\n",
      engine.name, config.num_layers, config.hidden_size, config.routed_experts, config.experts_per_token,
      config.vocab_size, dialect_name(engine.model->pack().dialect()), format_bytes(engine.file_bytes),
      format_bytes(engine.plan.weights.resident_bytes()), engine.backend_description, engine.numerics,
      engine.ced, engine.model->options().step_rows);
}

fathom_memory_plan to_c(const MemoryPlan& plan) {
  fathom_memory_plan out{};
  out.size = sizeof out;
  out.dense_bytes = plan.weights.dense_bytes;
  out.expert_bytes = plan.weights.expert_bytes;
  out.embedding_bytes = plan.weights.embedding_bytes;
  out.engram_projection_bytes = plan.weights.engram_projection_bytes;
  out.engram_disk_bytes = plan.weights.engram_disk_bytes;
  out.kv_bytes = plan.kv_bytes();
  out.tail_bytes = plan.tail_bytes;
  out.checkpoint_bytes = plan.checkpoints_bytes;
  out.scratch_bytes = plan.scratch_bytes;
  out.total_bytes = plan.total_bytes();
  out.budget_bytes = plan.budget_bytes;
  out.largest_context_tokens = plan.largest_context_tokens;
  out.fits = plan.fits();
  out.working_bytes = plan.working_bytes;
  out.engram_fetch_bytes = plan.engram_fetch_bytes;
  out.host_bytes = plan.host_bytes;
  out.program_bytes = plan.options.program_bytes;
  return out;
}

Result<void> check_context(int64_t tokens, int64_t longest) {
  if (tokens >= 1 && tokens <= longest) return {};
  return Error::invalid("context: expected 1 to {} tokens, which the model was made for, found {}", longest,
                        tokens);
}

}  // namespace

Result<std::unique_ptr<fathom_engine>> open_engine(const Settings& settings, const BackendWrapper& wrap) {
  FATHOM_ASSIGN(Pack pack, open_pack(settings.path, {.engram_path = settings.engram_path}));
  FATHOM_TRY(pack.check_complete());
  auto engine = std::make_unique<fathom_engine>();
  engine->path = settings.path;
  engine->name = model_name(settings.path);
  engine->numerics = settings.numerics;
  engine->ced = settings.ced;
  engine->checkpoint_bytes = settings.checkpoint_bytes;
  engine->audit = pack.audit();
  for (const PackFile& file : pack.files()) engine->file_bytes += static_cast<int64_t>(file.size_bytes);
  FATHOM_ASSIGN(engine->backend, make_backend(settings));
  FATHOM_ASSIGN(engine->plan, plan_settings(pack, settings, *engine->backend));
  if (!engine->plan.fits())
    return Error::no_memory("{} does not fit in memory\n{}", settings.path, engine->plan.report());

  ModelOptions options = settings.model;
  if (pack.tokenizer().path.empty()) {
    log_warning("{}: no tokenizer found; only token ids can be used", settings.path);
  } else {
    FATHOM_ASSIGN(Tokenizer tokenizer, load_tokenizer(pack.tokenizer()));
    make_token_map(pack, tokenizer, options.engram_token_map);
    engine->tokenizer.reset(new fathom_tokenizer{std::move(tokenizer)});
  }
  if (wrap) {
    FATHOM_ASSIGN(engine->backend, wrap(std::move(engine->backend), pack));
    engine->plan.options.backend = engine->backend.get();
  }
  engine->backend_description = engine->backend->description();
  FATHOM_ASSIGN(engine->model,
                Model::load(std::move(pack), *engine->backend, std::move(options), settings.progress));
  log_info("{}: {} layers, {}", engine->name, engine->model->config().num_layers,
           engine->backend_description);
  return engine;
}

// A new session must fit beside what is there already.
Result<std::unique_ptr<fathom_session>> make_session(fathom_engine& engine, int64_t context_tokens) {
  MemoryPlanOptions wanted = engine.plan.options;
  if (context_tokens != 0) wanted.context_tokens = context_tokens;
  wanted.sessions = 1;
  const SessionOptions options{.context_tokens = wanted.context_tokens,
                               .checkpoint_bytes = engine.checkpoint_bytes};
  FATHOM_TRY(check_context(wanted.context_tokens, engine.model->config().max_position_embeddings));
  const int64_t left = engine.plan.budget_bytes - engine.session_bytes;
  const MemoryPlan plan = plan_memory(engine.model->config(), engine.plan.weights, wanted, left);
  if (!plan.fits())
    return Error::no_memory("a session does not fit in memory beside {} of others\n{}",
                            format_bytes(engine.session_bytes), plan.report());
  auto session = std::make_unique<fathom_session>();
  session->engine = &engine;
  session->planned_bytes = plan.session_bytes();
  FATHOM_ASSIGN(session->session, Session::make(*engine.model, options));
  engine.session_bytes += session->planned_bytes;
  return session;
}

Result<Settings> read_settings(const fathom_engine_options* given) {
  fathom_engine_options defaults;
  fathom_engine_options_init(&defaults);
  FATHOM_ASSIGN(const fathom_engine_options options, read_sized(given, defaults, "engine options"));
  Settings settings;
  settings.backend = view_or(options.backend, "cpu");
  settings.cpu_isa = view_or(options.cpu_isa, "auto");
  settings.numerics = view_or(options.numerics, "official");
  settings.ced = view_or(options.ced, "exact");
  settings.engram_path = view_or(options.engram_path, "");
  FATHOM_TRY(choose("backend", settings.backend, kBackends));
  FATHOM_TRY(parse_cpu_isa(settings.cpu_isa));
  FATHOM_ASSIGN(settings.model.numerics, choose("numerics", settings.numerics, kNumerics));
  FATHOM_ASSIGN(settings.model.ced, choose("ced", settings.ced, kCedModes));
  FATHOM_ASSIGN(settings.threads, whole("threads", options.threads, 0, 1024));
  settings.pin_threads = options.pin_threads;
  FATHOM_ASSIGN(settings.model.engram.io_threads, whole("io_threads", options.io_threads, 8, kIoThreadsMax));
  FATHOM_ASSIGN(settings.model.step_rows, whole("step_rows", options.step_rows, 512, kStepRowsMax));
  FATHOM_ASSIGN(settings.model.rewind_tokens, whole("rewind_tokens", options.rewind_tokens, 32, 1 << 20));
  FATHOM_ASSIGN(settings.sessions, whole("sessions", options.sessions, 1, kSessionsMax));
  if (options.context_tokens < 0)
    return Error::invalid("context_tokens: expected at least 0, found {}", options.context_tokens);
  if (options.budget_bytes < 0)
    return Error::invalid("budget_bytes: expected at least 0, found {}", options.budget_bytes);
  if (options.checkpoint_bytes < -1 || options.checkpoint_bytes > kCheckpointBytesMax)
    return Error::invalid("checkpoint_bytes: expected -1 to {}, found {}", kCheckpointBytesMax,
                          options.checkpoint_bytes);
  settings.context_tokens = options.context_tokens;
  settings.budget_bytes = options.budget_bytes;
  settings.checkpoint_bytes = options.checkpoint_bytes == 0    ? kDefaultCheckpointBytes
                              : options.checkpoint_bytes == -1 ? 0
                                                               : options.checkpoint_bytes;
  settings.progress = wrap_progress(options.progress, options.progress_user);
  FATHOM_ASSIGN(settings.path, find_model(options.model_path));
  return settings;
}

Result<MemoryPlan> plan_settings(const Pack& pack, const Settings& settings, const Backend& backend) {
  const int64_t longest = pack.config().max_position_embeddings;
  const int64_t context =
      settings.context_tokens != 0 ? settings.context_tokens : std::min(kDefaultContextTokens, longest);
  // No session could be made; and bytes of much longer ones do not fit an integer.
  FATHOM_TRY(check_context(context, longest));
  return plan_memory(pack,
                     {.numerics = settings.model.numerics,
                      .context_tokens = context,
                      .sessions = settings.sessions,
                      .step_rows = settings.model.step_rows,
                      .rewind_tokens = settings.model.rewind_tokens,
                      .checkpoint_bytes = settings.checkpoint_bytes,
                      .io_threads = settings.model.engram.io_threads,
                      .backend = &backend,
                      .program_bytes = resident_bytes()},
                     settings.budget_bytes);
}

Result<Tokenizer> load_tokenizer(const TokenizerSource& source) {
  if (source.path.empty()) return Error::not_found("the pack has no tokenizer");
  if (!source.is_gguf) return Tokenizer::load(source.path);
  FATHOM_ASSIGN(const GgufFile gguf, open_gguf(source.path));
  FATHOM_ASSIGN(const std::vector<std::string_view> tokens, gguf.keys.strings("tokenizer.ggml.tokens"));
  FATHOM_ASSIGN(const std::vector<std::string_view> merges, gguf.keys.strings("tokenizer.ggml.merges"));
  FATHOM_ASSIGN(const std::vector<int64_t> types, gguf.keys.integers("tokenizer.ggml.token_type"));
  FATHOM_ASSIGN(const std::string_view pre, gguf.keys.string("tokenizer.ggml.pre"));
  const std::vector<int32_t> narrow_types(types.begin(), types.end());
  return Tokenizer::from_gguf({.tokens = tokens, .merges = merges, .token_types = narrow_types, .pre = pre},
                              source.path);
}

}  // namespace fathom::capi

using namespace fathom;
using namespace fathom::capi;

void fathom_engine_options_init(fathom_engine_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->size = sizeof *options;
}

fathom_status fathom_engine_open(const fathom_engine_options* options, fathom_engine** engine) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(engine);
    FATHOM_ASSIGN(const Settings settings, read_settings(options));
    FATHOM_ASSIGN(std::unique_ptr<fathom_engine> opened, open_engine(settings));
    *engine = opened.release();
    return {};
  });
}

void fathom_engine_close(fathom_engine* engine) { delete engine; }

fathom_status fathom_engine_get_info(const fathom_engine* engine, fathom_engine_info* info) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(engine);
    FATHOM_REQUIRE(info);
    write_sized(make_info(*engine), info);
    return {};
  });
}

fathom_status fathom_engine_summary(const fathom_engine* engine, char** text) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(engine);
    FATHOM_REQUIRE(text);
    *text = copy_text(make_summary(*engine));
    return {};
  });
}

const fathom_tokenizer* fathom_engine_tokenizer(const fathom_engine* engine) {
  return engine == nullptr ? nullptr : engine->tokenizer.get();
}

fathom_status fathom_plan(const fathom_engine_options* options, fathom_memory_plan* plan, char** text) {
  return guarded([&]() -> Result<void> {
    FATHOM_ASSIGN(const Settings settings, read_settings(options));
    FATHOM_ASSIGN(const Pack pack, open_pack(settings.path, {.engram_path = settings.engram_path}));
    FATHOM_ASSIGN(const std::unique_ptr<Backend> backend, make_backend(settings));
    FATHOM_ASSIGN(const MemoryPlan planned, plan_settings(pack, settings, *backend));
    if (text != nullptr) *text = copy_text(planned.report());
    if (plan != nullptr) write_sized(to_c(planned), plan);
    return {};
  });
}

fathom_status fathom_session_create(fathom_engine* engine, int64_t context_tokens, fathom_session** session) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(engine);
    FATHOM_REQUIRE(session);
    FATHOM_ASSIGN(std::unique_ptr<fathom_session> made, make_session(*engine, context_tokens));
    *session = made.release();
    return {};
  });
}

void fathom_session_free(fathom_session* session) {
  if (session == nullptr) return;
  session->engine->session_bytes -= session->planned_bytes;
  delete session;
}
