// Options of the commands that write packs.
#pragma once

#include <CLI/CLI.hpp>

#include "progress.h"
#include "quantize/pack_output.h"

namespace fathom::cli {

/// -o, --dialect, --split, --threads, --checkpoint, --restart.
void add_output_options(CLI::App& app, OutputOptions& options);

/// Reports through `progress`, and stops when interrupted.
ProgressFn progress_of(Progress& progress);

/// Prints what was written, to standard error; throws Failure for an error. Returns the exit code.
int finish_output(const Result<OutputReport>& report, Progress& progress, bool quiet);

}  // namespace fathom::cli
