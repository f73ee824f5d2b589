// fathom bench decode, prefill and load: quick figures.
#include <unistd.h>

#include "bench.h"
#include "bench_target.h"
#include "failure.h"
#include "interrupt.h"
#include "measure/quick.h"
#include "output.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

struct Options {
  BenchTarget target;
  std::string source = "novel", lengths = "512,2K,8K";
  int64_t generated_tokens = 128;
  int repetitions = 3;
};

using Measure = std::vector<measure::QuickFigure> (*)(measure::Target&, const measure::TargetInfo&,
                                                      const measure::SourceText&, const measure::QuickSettings&);

std::string line_of(const measure::QuickFigure& figure) {
  if (figure.values.empty()) return fmt::format("{:>9}  failed: {}\n", figure.context_tokens, figure.error);
  const measure::Sample sample = measure::sample_of(figure.values);
  std::string line = fmt::format("{:>9} {:>10.2f} {:>10.2f} {:>10.2f} {:>6}\n", figure.context_tokens, sample.mean,
                                 sample.largest, sample.count > 1 ? sample.deviation : 0.0, sample.count);
  if (!figure.error.empty()) line += fmt::format("          failed once or more: {}\n", figure.error);
  return line;
}

int measure_speed(Options& options, const char* what, Measure measure_lines) {
  measure::QuickSettings settings;
  settings.context_tokens = parse_lengths(options.lengths);
  if (settings.context_tokens.empty()) fail_usage("--lengths: expected lengths like 512,8K, found none");
  settings.generated_tokens = options.generated_tokens;
  settings.repetitions = options.repetitions;
  settings.interrupted = interrupted;
  const int64_t longest = *std::max_element(settings.context_tokens.begin(), settings.context_tokens.end());
  const auto prompts = static_cast<int64_t>(settings.context_tokens.size()) * options.repetitions;
  options.target.check_and_plan(longest + settings.generated_tokens);
  const measure::SourceText source =
      load_source(options.source, options.target.open_tokenizer().get(), longest + prompts);

  const std::unique_ptr<measure::Target> target = options.target.factory()();
  const Result<measure::TargetInfo> info = target->start();
  if (!info.ok()) fail("{}", info.error().message);
  Output output(STDOUT_FILENO);
  output.write(fmt::format("{}, {}\n{}\n{:>9} {:>10} {:>10} {:>10} {:>6}\n", info->engine, info->model, what,
                           "tokens", "mean", "best", "deviation", "n"));
  bool has_failed = false;
  for (const measure::QuickFigure& figure : measure_lines(*target, *info, source, settings)) {
    output.write(line_of(figure));
    has_failed = has_failed || figure.values.empty();
  }
  target->stop();
  if (interrupted()) throw Failure{kExitInterrupted, ""};
  return has_failed ? kExitFailure : 0;
}

int measure_loading(Options& options) {
  options.target.check_and_plan(4096);
  const measure::SourceText source = load_source(options.source, options.target.open_tokenizer().get(), 16);
  const measure::LoadFigures figures = measure::measure_load(
      options.target.factory(), source, {.repetitions = options.repetitions, .interrupted = interrupted});
  if (interrupted()) throw Failure{kExitInterrupted, ""};
  if (figures.ready_s.empty()) fail("{}", figures.error);
  Output output(STDOUT_FILENO);
  const auto row = [&](const char* what, const std::vector<double>& values, double unit) {
    if (values.empty()) return;
    const measure::Sample sample = measure::sample_of(values);
    output.write(fmt::format("{:<28} {:>10.3f} {:>10.3f} {:>10.3f} {:>6}\n", what, sample.mean / unit,
                             sample.smallest / unit, sample.largest / unit, sample.count));
  };
  output.write(fmt::format("{:<28} {:>10} {:>10} {:>10} {:>6}\n", "", "mean", "least", "most", "n"));
  row("ready after, s", figures.ready_s, 1);
  row("first token then, s", figures.first_token_s, 1);
  row("resident at most, GiB", figures.resident_peak_bytes, 0x1p30);
  if (!figures.error.empty()) fail("failed once or more: {}", figures.error);
  return 0;
}

void add_common(CLI::App& app, Options& options) {
  options.target.add(app);
  app.add_option("--source", options.source,
                 "Text of the prompts: novel, code, korean or a file (default: novel)");
  add_number(app, "--repetitions", options.repetitions, 1, 10000, "Of each (default: 3)");
}

Command add_speed(CLI::App& bench, const char* name, const char* help, const char* what, Measure measure_lines,
                  bool has_gen) {
  CLI::App* command = bench.add_subcommand(name, help);
  auto options = std::make_shared<Options>();
  add_common(*command, *options);
  command->add_option("--lengths", options->lengths, "Tokens of the prompts (default: 512,2K,8K)");
  if (has_gen)
    add_number(*command, "--gen", options->generated_tokens, 2, 1e6, "Tokens after each (default: 128)");
  return {command, [options, what, measure_lines] { return measure_speed(*options, what, measure_lines); }};
}

}  // namespace

Command add_bench_decode(CLI::App& bench) {
  return add_speed(bench, "decode", "Generation speed after prompts of some lengths",
                   "generation, tokens/s: (n - 1) / (first to last token)", measure::measure_decode, true);
}

Command add_bench_prefill(CLI::App& bench) {
  return add_speed(bench, "prefill", "Prefill speed of prompts of some lengths",
                   "prefill, tokens/s: evaluated tokens / time to the first token", measure::measure_prefill,
                   false);
}

Command add_bench_load(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("load", "Time until a fresh process is ready, and its memory");
  auto options = std::make_shared<Options>();
  add_common(*command, *options);
  return {command, [options] { return measure_loading(*options); }};
}

}  // namespace fathom::cli
