// fathom imatrix: importance statistics for `fathom quantize`.
#include <unistd.h>

#include "commands.h"
#include "failure.h"
#include "handles.h"
#include "model_options.h"
#include "output.h"
#include "suggestion.h"
#include "text_source.h"

namespace fathom::cli {
namespace {

struct Options {
  ModelOptions model;
  TextSource text;
  std::string output, format = "gguf";
};

int imatrix(const Options& options) {
  std::vector<int32_t> ids;
  {
    Tokenizer tokenizer;
    if (options.text.token_file.empty()) tokenizer = open_tokenizer(options.model);
    ids = options.text.read(tokenizer.get());
  }
  if (!options.model.model.empty()) require_exists(options.model.model);
  Progress progress;
  fathom_engine_options engine_options = options.model.engine_options();
  engine_options.progress = Progress::report;
  engine_options.progress_user = &progress;
  fathom_importance_options importance_options;
  fathom_importance_options_init(&importance_options);
  importance_options.format = options.format.c_str();
  importance_options.dataset = options.text.name().c_str();
  importance_options.context_tokens = options.model.context_tokens;
  const fathom_status status = fathom_collect_importance(&engine_options, ids.data(), ids.size(),
                                                         options.output.c_str(), &importance_options);
  progress.finish();
  if (status == FATHOM_CANCELLED) return kExitInterrupted;
  require(status);
  remark(fmt::format("{}: importance from {} tokens\n", options.output, ids.size()));
  return 0;
}

}  // namespace

Command add_imatrix(CLI::App& app) {
  CLI::App* command = app.add_subcommand("imatrix", "Collect what matters for quantising from a text");
  auto options = std::make_shared<Options>();
  options->text.add(*command);
  options->model.add_all(*command);
  command->get_option("--ctx")->description(
      "Tokens of a window (default: 2048, or the model's if that is less)");
  command->add_option("-o,--output", options->output, "File to write")->required()->type_name("FILE");
  command->add_option("--format", options->format, "gguf (default), or dat: the older format")
      ->check(CLI::IsMember({"gguf", "dat"}));
  command->footer(
      "Runs the whole model over the text and adds up the squares of what goes into every matrix; for "
      "routed\n"
      "experts of what was routed to them.\n\n"
      "Example:\n"
      "  fathom imatrix -m models/DeepSeek-V4.1-Flash calibration.txt --limit 32K -o flash.imatrix.gguf\n");
  return {command, [options] { return imatrix(*options); }};
}

}  // namespace fathom::cli
