// fathom compare: two packs, tensor by tensor.
#include <unistd.h>

#include "commands.h"
#include "failure.h"
#include "handles.h"
#include "model_options.h"
#include "output.h"
#include "progress.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

struct Options {
  std::string a, b, filter;
  int threads = 0;
  bool as_json = false;
};

int compare(const Options& options) {
  require_exists(options.a);
  require_exists(options.b);
  Progress progress;
  char* report = nullptr;
  const fathom_status status =
      fathom_compare(options.a.c_str(), options.b.c_str(), options.filter.c_str(), options.threads,
                     options.as_json, Progress::report, &progress, &report);
  progress.finish();
  if (status == FATHOM_CANCELLED) return kExitInterrupted;
  require(status);
  const Text text(report);
  return Output(STDOUT_FILENO).write(text.get()) ? 0 : kExitOutputClosed;
}

}  // namespace

Command add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare", "Say how far two packs' tensors are apart");
  auto options = std::make_shared<Options>();
  command->add_option("a", options->a, "The pack that is right: folder, .safetensors or .gguf")
      ->required()
      ->type_name("A");
  command->add_option("b", options->b, "The other one")->required()->type_name("B");
  command->add_option("--filter", options->filter, "Only tensors whose official names match, e.g. '*.ffn.*'")
      ->type_name("GLOB");
  add_number(*command, "-t,--threads", options->threads, 0, 1024, "Threads; 0: one a core (default)");
  command->add_flag("--json", options->as_json, "The report as JSON");
  command->footer(
      "Reads all values of both packs, whatever their dialects. Errors are of B against A; a bank of experts "
      "is\n"
      "one line that names the worst expert. Of Engram tables at most 65,536 rows are read.\n\n"
      "Example:\n"
      "  fathom compare models/mini mini-q4.gguf --filter '*.experts.*'\n");
  return {command, [options] { return compare(*options); }};
}

}  // namespace fathom::cli
