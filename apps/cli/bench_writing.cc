// fathom bench writing, blind, unblind: long texts, what can be counted in them, and judging them blind.
#include <unistd.h>

#include <filesystem>

#include "bench.h"
#include "bench_target.h"
#include "failure.h"
#include "interrupt.h"
#include "measure/json_members.h"
#include "measure/judging.h"
#include "measure/judgments.h"
#include "measure/writing.h"
#include "output.h"

namespace fathom::cli {
namespace {

constexpr int64_t kPromptTokens = 4096;  // room for a brief

struct WritingOptions {
  BenchTarget target;
  std::vector<std::string> briefs = measure::brief_names();
  measure::WritingSettings settings;
  std::string folder;
  double time_limit_s = 6 * 3600;
};

int write_texts(WritingOptions& options) {
  measure::WritingCampaign campaign{.settings = options.settings, .folder = options.folder};
  for (const std::string& name : options.briefs) {
    Result<measure::WritingBrief> brief = measure::read_brief(name);
    if (!brief.ok()) fail("{}", brief.error().message);
    campaign.settings.briefs.push_back(std::move(brief).value());
  }
  options.target.check_and_plan(kPromptTokens + options.settings.max_tokens);
  campaign.settings.target = options.target.identity();
  campaign.time_limit = campaign.silence_limit = std::chrono::seconds(static_cast<int64_t>(options.time_limit_s));
  campaign.is_stopped = interrupted;
  campaign.say = [](const std::string& line) { remark(line + "\n"); };
  const Result<measure::WritingRecord> record = measure::run_writing(options.target.factory(), campaign);
  if (!record.ok()) fail("{}", record.error().message);
  if (!Output(STDOUT_FILENO).write(measure::writing_table(*record))) return kExitOutputClosed;
  if (interrupted()) throw Failure{kExitInterrupted, "interrupted; the same command goes on"};
  const auto is_done = [](const auto& text) { return text.status == measure::TextStatus::kDone; };
  if (!std::all_of(record->texts.begin(), record->texts.end(), is_done))
    fail("some texts failed; the same command tries them again");
  return 0;
}

struct BlindOptions {
  std::vector<std::string> folders;  // FOLDER or NAME=FOLDER
  measure::JudgingOptions judging;
};

measure::JudgedFolder parse_folder(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != text.npos && equals > 0 && !std::filesystem::exists(text))
    return {text.substr(0, equals), text.substr(equals + 1)};
  return {std::filesystem::path(text + "/").lexically_normal().parent_path().filename().string(), text};
}

int make_blind(BlindOptions& options) {
  for (const std::string& folder : options.folders) options.judging.folders.push_back(parse_folder(folder));
  const Result<measure::JudgingPackage> package = measure::make_judging_package(options.judging);
  if (!package.ok()) fail("{}", package.error().message);
  for (const std::string& warning : package->warnings) remark("warning: " + printable(warning) + "\n");
  for (const std::string& left_out : package->left_out) remark("left out: " + printable(left_out) + "\n");
  const bool is_written =
      Output(STDOUT_FILENO)
          .write(fmt::format("{}: {} texts, package {}\nkey: {}, not for judges\n", options.judging.package,
                             package->texts, package->id, options.judging.key));
  return is_written ? 0 : kExitOutputClosed;
}

struct UnblindOptions {
  std::string key, json_file;
  std::vector<std::string> sheets;
};

int unblind(const UnblindOptions& options) {
  const Result<measure::JudgingOutcome> outcome = measure::merge_judgments(options.key, options.sheets);
  if (!outcome.ok()) fail("{}", outcome.error().message);
  if (!options.json_file.empty()) {
    const Result<void> written = measure::write_json_file(options.json_file, measure::to_json(*outcome));
    if (!written.ok()) fail("{}", written.error().message);
  }
  if (!Output(STDOUT_FILENO).write(measure::to_markdown(*outcome))) return kExitOutputClosed;
  if (outcome->judgments.empty()) fail("no judgement counts");
  return 0;
}

}  // namespace

Command add_bench_writing(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("writing", "Long texts: length, facts, repetition, loops");
  auto options = std::make_shared<WritingOptions>();
  command->add_option("-o,--output", options->folder, "Folder of the campaign; one that was interrupted goes on")
      ->type_name("FOLDER")
      ->required();
  options->target.add(*command);
  command->add_option("--brief", options->briefs, "What is to be written: ko, en or a file; may be repeated")
      ->type_name("BRIEF")
      ->take_all();
  command->add_option("--seeds", options->settings.seeds, "A text each (default: 42,43,44)")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1e15));
  add_number(*command, "--temp", options->settings.temperature, 0, 100, "Temperature (default: 0.5)");
  add_number(*command, "-n,--max-tokens", options->settings.max_tokens, 1, 1e8,
             "Tokens of a text at most (default: 32768)");
  add_number(*command, "--time-limit", options->time_limit_s, 1, 1e6, "Seconds a text may take (default: 21600)");
  command->footer(
      "A fresh process writes each text; one that runs already is told to forget. The first Ctrl-C ends after\n"
      "the text that is being written. docs/bench_writing.md says what is counted.\n\n"
      "Example:\n"
      "  fathom bench writing -m models/DeepSeek-V4.1-Flash --brief ko -o texts/here\n");
  return {command, [options] { return write_texts(*options); }};
}

Command add_bench_blind(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("blind", "A folder of texts for judges who do not know who wrote them");
  auto options = std::make_shared<BlindOptions>();
  command
      ->add_option("folders", options->folders,
                   "Of `fathom bench writing`; results call each NAME (default: its folder's)")
      ->type_name("[NAME=]FOLDER")
      ->required();
  command->add_option("-o,--output", options->judging.package, "Folder for judges, new or empty")
      ->type_name("FOLDER")
      ->required();
  command->add_option("--key", options->judging.key, "File that will know who wrote what, outside of that folder")
      ->type_name("FILE")
      ->required();
  command->add_option("--seed", options->judging.seed, "Of the order; only in the key (default: drawn)")
      ->check(CLI::Range(0.0, 1e15));
  command->footer(
      "Example:\n"
      "  fathom bench blind here=texts/here llama=texts/llama -o judge --key judge_key.json\n");
  return {command, [options] { return make_blind(*options); }};
}

Command add_bench_unblind(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("unblind", "Scores of engines from filled answer sheets and the key");
  auto options = std::make_shared<UnblindOptions>();
  command->add_option("sheets", options->sheets, "Filled answer sheets, any number for each text")
      ->type_name("FILE")
      ->required();
  command->add_option("--key", options->key, "That `fathom bench blind` wrote")->type_name("FILE")->required();
  command->add_option("--json", options->json_file, "Write the numbers there, too")->type_name("FILE");
  command->footer("Example:\n  fathom bench unblind --key judge_key.json kim.json model.json\n");
  return {command, [options] { return unblind(*options); }};
}

}  // namespace fathom::cli
