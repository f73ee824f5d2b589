// The subcommands of `fathom bench`.
#pragma once

#include "commands.h"

namespace fathom::cli {

Command add_bench_protocol(CLI::App& bench);
Command add_bench_decode(CLI::App& bench);
Command add_bench_prefill(CLI::App& bench);
Command add_bench_load(CLI::App& bench);
Command add_bench_serve(CLI::App& bench);
Command add_bench_report(CLI::App& bench);
Command add_bench_writing(CLI::App& bench);
Command add_bench_blind(CLI::App& bench);
Command add_bench_unblind(CLI::App& bench);
/// Hidden: the process that a local target starts.
Command add_bench_worker(CLI::App& bench);

}  // namespace fathom::cli
