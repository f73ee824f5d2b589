#include "model_options.h"

#include <unistd.h>

#include "failure.h"
#include "output.h"
#include "sizes.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

void show_log(void* user, fathom_log_level level, const char* line) {
  const bool verbose = *static_cast<const bool*>(user);
  if (level < FATHOM_WARNING && !verbose) return;
  remark(fmt::format("fathom: {}{}\n", level == FATHOM_WARNING ? "warning: " : "", line));
}

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

void add_amount(CLI::App& app, const std::string& names, int64_t& value, int64_t (*parse)(std::string_view),
                const std::string& help) {
  const std::string name = names.substr(names.rfind("--"));
  app.add_option_function<std::string>(
         names,
         [&value, parse, name](const std::string& text) {
           try {
             value = parse(text);
           } catch (const Failure& failure) {
             throw CLI::ValidationError(name, failure.message);
           }
         },
         help)
      ->type_name("SIZE");
}

void ModelOptions::add_path(CLI::App& app) {
  app.add_option("-m,--model", model,
                 "Folder, .safetensors or .gguf file (default: $FATHOM_MODEL, else the embedded model)")
      ->type_name("PATH");
}

void ModelOptions::add_all(CLI::App& app, const char* context_default) {
  add_path(app);
  add_amount(
      app, "-c,--ctx", context_tokens, parse_tokens,
      fmt::format("Tokens that a session can hold, e.g. 8192 or 128K (default: {}, or the model's if that is less)",
                  context_default));
  add_amount(app, "--memory", budget_bytes, parse_bytes,
             "Memory that may be planned, e.g. 96GB or 80GiB (default: what the machine has available)");
  app.add_option("--backend", backend, "cpu (default) or reference: plain float32 loops, slow")
      ->check(CLI::IsMember({"cpu", "reference"}));
  app.add_option("--cpu-isa", cpu_isa, "auto (default), amx, avx512, avx2, neon_dot, neon or portable")
      ->check(CLI::IsMember({"auto", "amx", "avx512", "avx2", "neon_dot", "neon", "portable"}));
  app.add_option("--numerics", numerics,
                 "official (default), or exact: float32 without activation quantisers")
      ->check(CLI::IsMember({"official", "exact"}));
  app.add_option("--ced", ced, "Decoder layers during prefill: exact (default), bounded (approximate) or off")
      ->check(CLI::IsMember({"exact", "bounded", "off"}));
  add_number(app, "-t,--threads", threads, 0, 1024, "Threads that compute; 0: one a core (default)");
  app.add_flag("--pin", pin, "Keep each of these threads on a core of its own, the first apart");
  add_number(app, "--io-threads", io_threads, 0, 1024, "Reads in flight for Engram rows; 0: 8 (default)");
  app.add_option("--engram", engram, "Another copy of the pack, whose Engram tables are read instead");
  add_number(app, "--step-rows", step_rows, 0, 65536,
             "Tokens of a prompt that run together; 0: 512 (default)");
  app.add_flag("-v,--verbose", verbose, "Say on standard error what was loaded and chosen");
}

std::vector<std::string> ModelOptions::arguments() const {
  std::vector<std::string> arguments;
  const auto add_text = [&](const char* name, const std::string& text) {
    if (!text.empty()) arguments.insert(arguments.end(), {name, text});
  };
  const auto add_count = [&](const char* name, int64_t number) {
    if (number != 0) arguments.insert(arguments.end(), {name, fmt::format("{}", number)});
  };
  add_text("--model", model);
  add_count("--ctx", context_tokens);
  add_count("--memory", budget_bytes);
  add_text("--backend", backend);
  add_text("--cpu-isa", cpu_isa);
  add_text("--numerics", numerics);
  add_text("--ced", ced);
  add_count("--threads", threads);
  if (pin) arguments.emplace_back("--pin");
  add_count("--io-threads", io_threads);
  add_text("--engram", engram);
  add_count("--step-rows", step_rows);
  return arguments;
}

fathom_engine_options ModelOptions::engine_options() const {
  fathom_engine_options options;
  fathom_engine_options_init(&options);
  options.model_path = path();
  options.backend = or_null(backend);
  options.cpu_isa = or_null(cpu_isa);
  options.numerics = or_null(numerics);
  options.ced = or_null(ced);
  options.threads = threads;
  options.pin_threads = pin;
  options.io_threads = io_threads;
  options.engram_path = or_null(engram);
  options.step_rows = step_rows;
  options.sessions = sessions;
  options.context_tokens = context_tokens;
  options.budget_bytes = budget_bytes;
  if (!keeps_checkpoints) options.checkpoint_bytes = -1;
  return options;
}

Engine open_engine(const ModelOptions& options, Progress& progress) {
  if (!options.model.empty()) require_exists(options.model);
  static bool verbose = false;
  verbose = options.verbose;
  fathom_set_log(show_log, &verbose);
  fathom_engine_options engine_options = options.engine_options();
  engine_options.progress = Progress::report;
  engine_options.progress_user = &progress;
  fathom_engine* engine = nullptr;
  const fathom_status status = fathom_engine_open(&engine_options, &engine);
  progress.finish();
  require(status);
  Engine result(engine);
  if (options.verbose) {
    char* summary = nullptr;
    require(fathom_engine_summary(engine, &summary));
    Output(STDERR_FILENO).write(Text(summary).get());
  }
  return result;
}

Session open_session(fathom_engine* engine, const ModelOptions& options) {
  int64_t context_tokens = options.context_tokens;
  if (context_tokens == 0) {
    // The default of fathom_engine_options, for which the plan was made.
    fathom_engine_info info{};
    require(fathom_engine_get_info(engine, &info));
    context_tokens = std::min<int64_t>(4096, info.max_context_tokens);
  }
  fathom_session* session = nullptr;
  require(fathom_session_create(engine, context_tokens, &session));
  return Session(session);
}

Tokenizer open_tokenizer(const ModelOptions& options) {
  if (!options.model.empty()) require_exists(options.model);
  fathom_tokenizer* tokenizer = nullptr;
  require(fathom_tokenizer_open(options.path(), &tokenizer));
  return Tokenizer(tokenizer);
}

}  // namespace fathom::cli
