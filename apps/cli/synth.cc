// fathom synth: a pack of random weights.
#include "quantize/synth.h"

#include "commands.h"
#include "model_options.h"
#include "pack_output_options.h"

namespace fathom::cli {
namespace {

struct Options {
  SynthOptions synth;
  bool checksums = false;
  bool quiet = false;
};

int run(Options& options) {
  Progress progress;
  options.synth.to.progress = progress_of(progress);
  // Hashing is slower than writing, and the seed says what the bytes are.
  options.synth.to.with_checksums = options.checksums;
  return finish_output(synthesize_pack(options.synth), progress, options.quiet);
}

}  // namespace

Command add_synth(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("synth", "Write a pack of random weights in real shapes and encodings");
  auto options = std::make_shared<Options>();
  SynthOptions& synth = options->synth;
  command->add_option("--shape", synth.shape, "v41-flash (default), mini, or a config.json")
      ->type_name("NAME");
  command->add_option("--layers", synth.layers, "Layers to keep, e.g. 0..1,20..21 (default: all)")
      ->type_name("LIST");
  command
      ->add_option("--format", synth.format,
                   "official (default), or a recipe: q2, q4, q8, mxfp4, lossless, a file")
      ->type_name("NAME");
  command
      ->add_option(
          "--engram", synth.engram,
          "Engram tables: full, sparse (holes), none, or rows a column (default: full up to 1 GiB, else "
          "sparse)")
      ->type_name("MODE");
  add_number(*command, "--seed", synth.seed, 0, 1.8e19, "Of the weights (default 0)");
  command->add_flag("--draft", synth.with_draft, "With draft stages");
  add_output_options(*command, synth.to);
  command->add_flag("--checksums", options->checksums, "Write the SHA-256 of each tensor");
  command->add_flag("-q,--quiet", options->quiet, "No summary");
  command->footer(
      "The output loads and runs like any pack; its config says that it is made up.\n\n"
      "Examples:\n"
      "  fathom synth --layers 0..1,20..21 --format q2 -o flash-4-layers.gguf\n"
      "  fathom synth --shape mini --format official -o mini-random\n");
  return {command, [options] { return run(*options); }};
}

}  // namespace fathom::cli
