// fathom inspect: what a pack is, from its headers.
#include <unistd.h>

#include "commands.h"
#include "failure.h"
#include "handles.h"
#include "output.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

struct Options {
  std::string path;
  bool as_json = false;
};

int inspect(const Options& options) {
  if (!options.path.empty()) require_exists(options.path);
  char* report = nullptr;
  size_t problems = 0;
  require(fathom_inspect(options.path.empty() ? nullptr : options.path.c_str(), options.as_json, &report,
                         &problems));
  const Text text(report);
  Output output(STDOUT_FILENO);
  output.write(text.get());
  if (!output.at_line_start()) output.write("\n");
  if (output.is_closed()) return kExitOutputClosed;
  return problems > 0 ? kExitFailure : 0;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Say what a pack is and what is wrong with it");
  auto options = std::make_shared<Options>();
  command->add_option("path", options->path,
                      "Folder, .safetensors or .gguf file (default: $FATHOM_MODEL, else the embedded model)");
  command->add_flag("--json", options->as_json, "The report as JSON");
  command->footer(
      "Reads headers only. Exit code 1 when the report lists problems: missing, unexpected or truncated "
      "tensors.\n\n"
      "Examples:\n"
      "  fathom inspect\n"
      "  fathom inspect --json model-00001-of-00006.gguf\n");
  return {command, [options] { return inspect(*options); }};
}

}  // namespace fathom::cli
