// fathom quantize: a pack in other encodings or in another container.
#include "commands.h"
#include "pack_output_options.h"
#include "quantize/pack_quantize.h"
#include "suggestion.h"

namespace fathom::cli {
namespace {

struct Options {
  QuantizeOptions quantize;
  bool no_checksums = false;
  bool quiet = false;
};

int run(Options& options) {
  require_exists(options.quantize.input);
  Progress progress;
  options.quantize.to.progress = progress_of(progress);
  options.quantize.to.with_checksums = !options.no_checksums;
  return finish_output(quantize_pack(options.quantize), progress, options.quiet);
}

}  // namespace

Command add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("quantize", "Write a pack in other encodings or another container");
  auto options = std::make_shared<Options>();
  QuantizeOptions& quantize = options->quantize;
  command->add_option("input", quantize.input, "Folder, .safetensors or .gguf file")->required();
  command
      ->add_option("-r,--recipe", quantize.recipe,
                   "q2, q4, q8, mxfp4 (default), lossless, or a file of lines \"pattern type\"")
      ->type_name("NAME");
  command->add_option("--imatrix", quantize.importance, "Importance of columns: a .dat or .gguf file")
      ->type_name("FILE");
  command->add_flag("--draft", quantize.with_draft,
                    "Keep draft stages in a GGUF (a folder keeps them anyway)");
  command->add_option("--source-url", quantize.to.source_url, "For the key general.source.url of a GGUF")
      ->type_name("URL");
  command->add_option("--source-revision", quantize.to.source_revision, "For general.source.revision")
      ->type_name("HEX");
  add_output_options(*command, quantize.to);
  command->add_flag("--no-checksums", options->no_checksums, "No SHA-256 of each tensor");
  command->add_flag("-q,--quiet", options->quiet, "No summary");
  command->footer(
      "An interrupted run goes on where it stopped when started again. The output has its name only when it "
      "is "
      "whole.\n\n"
      "Examples:\n"
      "  fathom quantize DeepSeek-V4.1-Flash -o flash-q2.gguf --recipe q2 --imatrix flash.dat\n"
      "  fathom quantize flash.gguf -o flash-split.gguf --dialect llama.cpp --recipe mxfp4 --split 40GB\n"
      "  fathom quantize flash.gguf -o official-again\n");
  return {command, [options] { return run(*options); }};
}

}  // namespace fathom::cli
