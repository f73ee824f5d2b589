// fathom plan: what would be in memory, and whether it fits.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "failure.h"
#include "handles.h"
#include "model_options.h"
#include "output.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

struct Options {
  ModelOptions model;
  bool as_json = false;
};

std::string to_json(const fathom_memory_plan& plan) {
  const nlohmann::ordered_json json = {{"fits", plan.fits},
                                       {"total_bytes", plan.total_bytes},
                                       {"peak_bytes", plan.total_bytes + plan.program_bytes},
                                       {"budget_bytes", plan.budget_bytes},
                                       {"largest_context_tokens", plan.largest_context_tokens},
                                       {"dense_bytes", plan.dense_bytes},
                                       {"expert_bytes", plan.expert_bytes},
                                       {"embedding_bytes", plan.embedding_bytes},
                                       {"engram_projection_bytes", plan.engram_projection_bytes},
                                       {"engram_disk_bytes", plan.engram_disk_bytes},
                                       {"kv_bytes", plan.kv_bytes},
                                       {"tail_bytes", plan.tail_bytes},
                                       {"checkpoint_bytes", plan.checkpoint_bytes},
                                       {"scratch_bytes", plan.scratch_bytes},
                                       {"working_bytes", plan.working_bytes},
                                       {"engram_fetch_bytes", plan.engram_fetch_bytes},
                                       {"host_bytes", plan.host_bytes},
                                       {"program_bytes", plan.program_bytes}};
  return json.dump(2);
}

int plan(const Options& options) {
  if (!options.model.model.empty()) require_exists(options.model.model);
  const fathom_engine_options engine_options = options.model.engine_options();
  fathom_memory_plan memory_plan{};
  char* report = nullptr;
  require(fathom_plan(&engine_options, &memory_plan, &report));
  const Text text(report);
  Output output(STDOUT_FILENO);
  output.write(options.as_json ? to_json(memory_plan) : std::string(text.get()));
  if (!output.at_line_start()) output.write("\n");
  return memory_plan.fits ? 0 : kExitDoesNotFit;
}

}  // namespace

Command add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Say what would be in memory, and whether it fits");
  auto options = std::make_shared<Options>();
  options->model.add_all(*command);
  add_number(*command, "--sessions", options->model.sessions, 1, 4096,
             "Conversations held at once (default 1)");
  command->add_flag("--json", options->as_json, "The plan as JSON, in bytes");
  command->footer(
      "Reads headers only. Exit code 0: it fits; 3: it does not.\n\n"
      "Examples:\n"
      "  fathom plan -m model.gguf --ctx 128K\n"
      "  fathom plan -m model.gguf --ctx 1M --memory 96GB --sessions 4\n");
  return {command, [options] { return plan(*options); }};
}

}  // namespace fathom::cli
