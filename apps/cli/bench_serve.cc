// fathom bench serve: many users of one server.
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "bench_target.h"
#include "failure.h"
#include "interrupt.h"
#include "measure/json_members.h"
#include "measure/serve_load.h"
#include "output.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

struct Options {
  BenchTarget target;
  measure::ServeLoadSettings load;
  std::string source = "novel", json_file;
};

constexpr int kServeParallelMax = 64;

struct Row {
  const char* name;   // in the JSON file
  const char* title;  // in the table
  double value;
};
using Rows = std::vector<Row>;

Rows rows_of(const measure::ServeLoadFigures& figures) {
  return {{"output_tokens_per_s", "output tokens/s, all", figures.output_tokens_per_s},
          {"requests_per_s", "requests/s", figures.requests_per_s},
          {"first_token_p50_s", "first token p50, s", figures.first_token_p50_s},
          {"first_token_p90_s", "first token p90, s", figures.first_token_p90_s},
          {"first_token_p99_s", "first token p99, s", figures.first_token_p99_s},
          {"gap_p50_ms", "between tokens p50, ms", figures.gap_p50_ms},
          {"gap_p90_ms", "between tokens p90, ms", figures.gap_p90_ms},
          {"gap_p99_ms", "between tokens p99, ms", figures.gap_p99_ms},
          {"gap_max_ms", "between tokens most, ms", figures.gap_max_ms},
          {"fairness", "fairness (1: all alike)", figures.fairness},
          {"slowest_user_tokens_per_s", "slowest user, tokens/s", figures.slowest_user_tokens_per_s},
          {"fastest_user_tokens_per_s", "fastest user, tokens/s", figures.fastest_user_tokens_per_s},
          {"duration_s", "duration, s", figures.duration_s}};
}

void write_json(const std::string& path, const Options& options, const measure::TargetInfo& info,
                const measure::ServeLoadFigures& figures) {
  nlohmann::ordered_json json = {{"format", "fathom-bench-serve"},
                                 {"version", 1},
                                 {"engine", info.engine},
                                 {"model", info.model},
                                 {"users", options.load.users},
                                 {"requests_per_user", options.load.requests_per_user},
                                 {"arrivals_per_s", options.load.requests_per_s},
                                 {"prompt_tokens", options.load.prompt_tokens},
                                 {"generated_tokens", options.load.generated_tokens},
                                 {"seed", options.load.seed},
                                 {"requests", figures.requests},
                                 {"failed", figures.failed}};
  for (const auto& [name, title, value] : rows_of(figures))
    if (std::isfinite(value)) json["figures"][name] = value;
  const Result<void> written = measure::write_json_file(path, json);
  if (!written.ok()) fail("{}", written.error().message);
}

int measure_serving(Options& options) {
  if (options.target.is_local()) options.target.target = "serve";
  // More than a server runs at once wait in its queue.
  if (options.target.target == "serve") options.target.parallel = std::min(options.load.users, kServeParallelMax);
  options.target.check_and_plan(options.load.prompt_tokens + options.load.generated_tokens + 16);
  const measure::SourceText source =
      load_source(options.source, options.target.open_tokenizer().get(), options.load.prompt_tokens + 1);
  const std::unique_ptr<measure::Target> server = options.target.factory()();
  const Result<measure::TargetInfo> info = server->start();
  if (!info.ok()) fail("{}", info.error().message);

  const std::vector<measure::ServedRequest> served =
      measure::run_serve_load(options.target.users_of(info->address), source, options.load);
  server->stop();
  if (interrupted()) throw Failure{kExitInterrupted, ""};
  const measure::ServeLoadFigures figures = measure::serve_load_figures(served);
  Output output(STDOUT_FILENO);
  output.write(fmt::format("{}, {}\n{} users, {} requests, {} failed{}\n", info->engine, info->model,
                           options.load.users, figures.requests, figures.failed,
                           figures.failed > 0 ? ": " + figures.first_error : ""));
  for (const auto& [name, title, value] : rows_of(figures))
    if (std::isfinite(value)) output.write(fmt::format("{:<28} {:>10.3f}\n", title, value));
  if (!options.json_file.empty()) write_json(options.json_file, options, *info, figures);
  return figures.failed > 0 ? kExitFailure : 0;
}

}  // namespace

Command add_bench_serve(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("serve", "Many users of one server: throughput, waiting, fairness");
  auto options = std::make_shared<Options>();
  options->target.add(*command);
  command->get_option("--target")
      ->description("serve: `fathom serve`, started for this (default); or the URL of a server");
  command->add_option("--source", options->source,
                      "Text of the prompts: novel, code, korean or a file (default: novel)");
  measure::ServeLoadSettings& load = options->load;
  add_number(*command, "--users", load.users, 1, 4096, "Users (default: 8)");
  add_number(*command, "--requests", load.requests_per_user, 1, 1e6, "Of each user (default: 4)");
  add_number(*command, "--rate", load.requests_per_s, 0, 1e6,
             "Requests a second of all together, Poisson; 0: each asks again at once (default)");
  add_amount(*command, "--prompt", load.prompt_tokens, parse_tokens, "Tokens of a prompt (default: 512)");
  add_number(*command, "--gen", load.generated_tokens, 1, 1e6, "Tokens of an answer (default: 128)");
  add_number(*command, "--seed", load.seed, 0, 1e18, "Of arrivals and prompts (default: 42)");
  command->add_option("--json", options->json_file, "Write the figures there")->type_name("FILE");
  return {command, [options] { return measure_serving(*options); }};
}

}  // namespace fathom::cli
