#include "pack_output_options.h"

#include <unistd.h>

#include "failure.h"
#include "model_options.h"
#include "output.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

void add_size(CLI::App& app, const std::string& name, uint64_t& value, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [&value, name](const std::string& text) {
           try {
             value = static_cast<uint64_t>(parse_bytes(text));
           } catch (const Failure& failure) {
             throw CLI::ValidationError(name, failure.message);
           }
         },
         help)
      ->type_name("SIZE");
}

}  // namespace

void add_output_options(CLI::App& app, OutputOptions& options) {
  app.add_option("-o,--output", options.output,
                 "A name ending in .gguf, or a folder for official safetensors")
      ->type_name("PATH")
      ->required();
  app.add_option("--dialect", options.dialect,
                 "ds4 (default of a .gguf), llama.cpp, or official (of a folder)")
      ->check(CLI::IsMember({"ds4", "llama.cpp", "official"}));
  add_size(app, "--split", options.shard_bytes,
           "Files of about this size, e.g. 40GB (default: one GGUF; 10GB in a folder)");
  add_size(app, "--checkpoint", options.journal_interval_bytes,
           "Output that an interruption may cost, besides the tensor under way (default 64MiB)");
  add_number(app, "-t,--threads", options.threads, 0, 1024, "Threads that compute; 0: one a core (default)");
  app.add_flag("--restart", options.restart,
               "Discard what an interrupted run left instead of going on with it");
}

ProgressFn progress_of(Progress& progress) {
  return [&progress](const fathom::Progress& now) {
    const fathom_progress report = {now.stage.data(), now.unit.data(), now.done, now.total};  // literals
    return Progress::report(&progress, &report);
  };
}

int finish_output(const Result<OutputReport>& report, Progress& progress, bool quiet) {
  progress.finish();
  if (!report.ok() && report.error().code == ErrorCode::kCancelled)
    throw Failure{kExitInterrupted, report.error().message};
  if (!report.ok()) fail("{}", report.error().message);
  if (quiet) return 0;
  Output err(STDERR_FILENO);
  for (const std::string& note : report->notes) err.write(fmt::format("fathom: {}\n", note));
  err.write(fmt::format("{}: {} tensors, {}\n", report->path, report->tensors,
                        format_bytes(static_cast<double>(report->bytes))));
  if (report->hole_bytes > 0)
    err.write(fmt::format("of which {} are holes that read as zeros\n",
                          format_bytes(static_cast<double>(report->hole_bytes))));
  if (report->resumed_bytes > 0)
    err.write(fmt::format("of which {} were made by an interrupted run\n",
                          format_bytes(static_cast<double>(report->resumed_bytes))));
  if (!report->checksum_path.empty())
    err.write(fmt::format("checksums of tensors: {}\n", report->checksum_path));
  return 0;
}

}  // namespace fathom::cli
