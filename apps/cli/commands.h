// The subcommands of `fathom`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace fathom::cli {

/// What add_*() registered, and what to do when it was chosen: returns the exit code or throws Failure.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Command add_run(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_plan(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_detokenize(CLI::App& app);
Command add_chat_template(CLI::App& app);
Command add_quantize(CLI::App& app);
Command add_synth(CLI::App& app);
Command add_eval(CLI::App& app);
Command add_imatrix(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_serve(CLI::App& app);
Command add_bench(CLI::App& app);

}  // namespace fathom::cli
