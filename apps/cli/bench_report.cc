// fathom bench report: any number of results side by side in one HTML file.
#include <unistd.h>

#include <filesystem>

#include "bench.h"
#include "failure.h"
#include "measure/json_members.h"
#include "measure/published.h"
#include "measure/report.h"
#include "measure/result.h"
#include "output.h"

namespace fathom::cli {
namespace {

struct Options {
  std::vector<std::string> results, published;
  std::string output = "report.html";
  bool lists = false;
};

int list_published() {
  Output output(STDOUT_FILENO);
  for (const measure::PublishedFile& file : measure::published_results()) {
    const Result<measure::BenchResult> result = measure::parse_result(file.bytes, std::string(file.name));
    output.write(fmt::format("{:<42} {}\n", file.name.substr(0, file.name.rfind('.')),
                             result.ok() ? result->name : result.error().message));
  }
  return 0;
}

measure::BenchResult published_result(const std::string& name) {
  for (const measure::PublishedFile& file : measure::published_results())
    if (file.name.substr(0, file.name.rfind('.')) == name) {
      Result<measure::BenchResult> result = measure::parse_result(file.bytes, name);
      if (!result.ok()) fail("{}", result.error().message);
      return std::move(result).value();
    }
  fail("--published: no result is called \"{}\"; --list names them", name);
}

int report(const Options& options) {
  if (options.lists) return list_published();
  std::vector<measure::BenchResult> results;
  for (const std::string& path : options.results) {
    Result<measure::BenchResult> result = measure::read_result(path);
    if (!result.ok()) fail("{}", result.error().message);
    results.push_back(std::move(result).value());
  }
  for (const std::string& name : options.published) results.push_back(published_result(name));
  if (results.empty()) fail_usage("expected result files, or --published with a name; found neither");
  const Result<std::string> page = measure::render_report(results);
  if (!page.ok()) fail("{}", page.error().message);
  if (options.output == "-") return Output(STDOUT_FILENO).write_raw(*page) ? 0 : kExitOutputClosed;
  for (const std::string& path : options.results)
    if (std::error_code error; std::filesystem::equivalent(path, options.output, error))
      fail("{}: is a result; the page needs another file", options.output);
  const Result<void> written = measure::write_text_file(options.output, *page);
  if (!written.ok()) fail("{}", written.error().message);
  Output(STDOUT_FILENO).write(fmt::format("{}\n", options.output));
  return 0;
}

}  // namespace

Command add_bench_report(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("report", "Results side by side, as one HTML file");
  auto options = std::make_shared<Options>();
  command
      ->add_option("results", options->results,
                   "result.json of campaigns; the first is what others are compared with")
      ->type_name("FILE");
  command->add_option("--published", options->published, "Also a published result, by name; may be repeated")
      ->type_name("NAME");
  command->add_flag("--list", options->lists, "Name the published results and leave");
  command->add_option("-o,--output", options->output, "HTML file, - for standard output (default: report.html)")
      ->type_name("FILE");
  return {command, [options] { return report(*options); }};
}

}  // namespace fathom::cli
