// fathom bench: how fast is it, measured so that others can measure the same.
#include "bench.h"

#include <vector>

#include "failure.h"
#include "measure/local_worker.h"
#include "model_options.h"

namespace fathom::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  fathom bench protocol -m models/DeepSeek-V4.1-Flash -o results/here\n"
    "  fathom bench protocol --scale 1/16 --runs 1 -o results/mini\n"
    "  fathom bench protocol --target http://127.0.0.1:8081 --driver llama_cpp --pack model.gguf \\\n"
    "      --server-command 'llama-server -m model.gguf -c 135168 --port {port}' -o results/llama\n"
    "  fathom bench report results/*/result.json -o report.html\n\n"
    "docs/bench.md says what is measured and how.\n";

struct WorkerOptions {
  ModelOptions model;
  int socket = -1;
};

int work(const WorkerOptions& options) {
  try {
    Progress progress;
    const Engine engine = open_engine(options.model, progress);
    return measure::serve_local_target(engine.get(), options.model.context_tokens, options.socket)
               ? 0
               : kExitFailure;
  } catch (const Failure& failure) {
    measure::refuse_local_target(failure.message.c_str(), options.socket);
    return failure.exit_code;
  }
}

}  // namespace

Command add_bench_worker(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("worker", "")->group("");
  auto options = std::make_shared<WorkerOptions>();
  options->model.keeps_checkpoints = false;
  options->model.add_all(*command);
  add_number(*command, "--socket", options->socket, 0, 1e6, "")->required();
  return {command, [options] { return work(*options); }};
}

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench", "Measure this engine or any server, by the protocol of published comparisons");
  command->footer(kFooter);
  command->require_subcommand(1);
  const std::vector<Command> commands = {add_bench_protocol(*command), add_bench_decode(*command),
                                         add_bench_prefill(*command),  add_bench_load(*command),
                                         add_bench_serve(*command),    add_bench_report(*command),
                                         add_bench_writing(*command),  add_bench_blind(*command),
                                         add_bench_unblind(*command),  add_bench_worker(*command)};
  return {command, [commands] {
            for (const Command& chosen : commands)
              if (chosen.app->parsed()) return chosen.run();
            return kExitUsage;
          }};
}

}  // namespace fathom::cli
