// fathom bench protocol: texts in steps up to long contexts, fresh processes, repeated.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "bench_target.h"
#include "failure.h"
#include "interrupt.h"
#include "measure/campaign.h"
#include "measure/environment.h"
#include "measure/machine_observer.h"
#include "measure/pack_hash.h"
#include "output.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

constexpr int64_t kKi = 1024;

struct Options {
  BenchTarget target;
  std::vector<std::string> sources = {"novel", "code"};
  std::vector<int64_t> steps = {8 * kKi, 32 * kKi, 64 * kKi, 96 * kKi, 128 * kKi};
  std::optional<std::vector<int64_t>> alone;  // not given: 8K, if it is a step
  Scale scale;
  std::string folder, name;
  int64_t generated_tokens = 256;
  int runs = 3, attempts = 3;
  double time_limit_s = 7200;
  bool repeats_disturbed = false, hashes_pack = true;
  measure::DisturbanceLimits limits;
};

bool contains(const std::vector<int64_t>& lengths, int64_t length) {
  return std::find(lengths.begin(), lengths.end(), length) != lengths.end();
}

measure::Plan plan_of(const Options& options) {
  measure::Plan plan;
  const std::vector<int64_t> alone = options.alone.value_or(std::vector<int64_t>{8 * kKi});
  for (const int64_t step : options.steps)
    (contains(alone, step) ? plan.alone_tokens : plan.step_tokens).push_back(options.scale.of(step));
  for (const int64_t step : options.alone.value_or(std::vector<int64_t>{}))
    if (!contains(options.steps, step)) fail_usage("--alone: {} is none of --steps", step);
  if (plan.alone_tokens.empty() && plan.step_tokens.empty())
    fail_usage("--steps: expected lengths like 8K,32K, found none");
  if (std::set<int64_t>(plan.alone_tokens.begin(), plan.alone_tokens.end()).size() != plan.alone_tokens.size())
    fail_usage("--alone: expected each length once, also when scaled");
  if (std::adjacent_find(plan.step_tokens.begin(), plan.step_tokens.end(), std::greater_equal<>()) !=
      plan.step_tokens.end())
    fail_usage("--steps: expected lengths that rise, also when scaled, found {}",
               fmt::join(plan.step_tokens, ","));
  plan.generated_tokens = options.generated_tokens;
  plan.runs = options.runs;
  plan.scale = options.scale.text;
  return plan;
}

/// Of the source, and of all prompts and answers together.
int64_t longest_source(const measure::Plan& plan) {
  int64_t longest = plan.step_tokens.empty() ? 0 : plan.step_tokens.back();
  for (const int64_t alone : plan.alone_tokens) longest = std::max(longest, alone);
  return longest;
}
int64_t needed_context(const measure::Plan& plan) {
  const auto answers = static_cast<int64_t>(std::max<size_t>(1, plan.step_tokens.size()));
  // 1 K of room for a server that counts in blocks, or puts something in front of a text.
  return longest_source(plan) + answers * plan.generated_tokens + kKi;
}

/// The pack's path: as it was given, or where the embedded model lies.
std::string pack_path_of(const BenchTarget& target) {
  if (!target.pack_path().empty() || !(target.is_local() || target.target == "serve")) return target.pack_path();
  char* report = nullptr;
  if (fathom_inspect(nullptr, true, &report, nullptr) != FATHOM_OK) return "";
  const nlohmann::json json = nlohmann::json::parse(Text(report).get(), nullptr, false);
  return json.is_object() && json.contains("path") && json["path"].is_string() ? json["path"] : "";
}

std::string hash_pack(const std::string& path) {
  Progress progress;
  const Result<std::string> hash =
      measure::pack_sha256(path, measure::pack_hash_cache_path(), [&](int64_t done_bytes, int64_t total_bytes) {
        const fathom_progress now = {"hashing the pack", "bytes", done_bytes, total_bytes};
        return Progress::report(&progress, &now) && !interrupted();
      });
  progress.finish();
  if (hash.ok()) return *hash;
  if (hash.error().code == ErrorCode::kCancelled) throw Failure{kExitInterrupted, ""};
  fail("{} (--no-pack-hash does without)", hash.error().message);
}

measure::CampaignSettings settings_of(const Options& options, const measure::Plan& plan) {
  measure::CampaignSettings settings;
  settings.folder = options.folder;
  settings.name = options.name.empty()
                      ? std::filesystem::path(options.folder).lexically_normal().filename().string()
                      : options.name;
  settings.target = options.target.identity();
  settings.protocol.plan = plan;
  settings.protocol.time_limit = settings.protocol.silence_limit =
      std::chrono::seconds(static_cast<int64_t>(options.time_limit_s));
  settings.repeats_disturbed = options.repeats_disturbed;
  settings.attempts = options.attempts;
  const Tokenizer tokenizer = options.target.open_tokenizer();
  for (const std::string& name : options.sources)
    settings.sources.push_back(load_source(name, tokenizer.get(), longest_source(plan)));
  int32_t* ids = nullptr;
  size_t count = 0;
  const std::string& greeting = settings.protocol.greeting;
  require(fathom_tokenize(tokenizer.get(), greeting.data(), greeting.size(), false, &ids, &count));
  const Ids owner(ids);
  settings.protocol.greeting_ids.assign(ids, ids + count);
  const std::string path = pack_path_of(options.target);
  settings.pack_name = std::filesystem::path(path).lexically_normal().filename();
  if (options.hashes_pack && !path.empty()) settings.pack_sha256 = hash_pack(path);
  return settings;
}

/// Whether there was something to compare: two kept runs of a source with ids.
bool has_equal_runs(const measure::BenchResult& result) {
  std::map<std::string, int> runs;
  for (const measure::Run& run : result.runs) {
    const bool has_ids = !run.stages.empty() && !run.stages.front().output_ids.empty();
    if (!run.is_excluded && has_ids && ++runs[run.source] == 2) return true;
  }
  return false;
}

void print_summary(const Options& options, const measure::BenchResult& result) {
  size_t excluded = 0, disturbed = 0;
  for (const measure::Run& run : result.runs) {
    excluded += run.is_excluded;
    disturbed += run.is_disturbed && !run.is_excluded;
  }
  std::string text = fmt::format("\n{}: {}, variant {}; {} runs, {} excluded, {} disturbed and kept\n",
                                 result.name, result.variant ? result.target.engine : "the target never started",
                                 result.variant ? measure::variant_name(*result.variant) : "unknown",
                                 result.runs.size(), excluded, disturbed);
  for (const measure::Divergence& divergence : result.divergences) {
    text += fmt::format("{} {}: runs {} and {} part at token {}", divergence.source, divergence.stage,
                        divergence.run_a, divergence.run_b, divergence.token);
    if (divergence.logprob_a && divergence.logprob_b)
      text += fmt::format(" (margin {:.4f} nats)", std::abs(*divergence.logprob_a - *divergence.logprob_b));
    text += "\n";
  }
  if (result.divergences.empty() && has_equal_runs(result)) text += "all runs of a source gave the same tokens\n";
  text +=
      fmt::format("{0}/result.json and .csv; fathom bench report {0}/result.json -o report.html shows them\n",
                  options.folder);
  Output(STDOUT_FILENO).write(text);
}

int measure_protocol(Options& options) {
  const measure::Plan plan = plan_of(options);
  options.target.check_and_plan(needed_context(plan));
  const measure::CampaignSettings settings = settings_of(options, plan);
  if (!options.target.is_local() && !options.target.starts_server()) {
    // The server may run on this machine, and its work cannot be told from that of others.
    options.limits.other_cpu_share = 1;
    options.limits.allows_other_gpu_users = true;
  }
  const std::unique_ptr<measure::Observer> observer = measure::observe_machine(options.limits);
  Output output(STDOUT_FILENO);
  const measure::CampaignTools tools = {{.observer = *observer,
                                         .interrupted = interrupted,
                                         .say = [&](const std::string& line) { output.write(line + "\n"); }},
                                        options.target.factory(),
                                        [] { return measure::read_environment(); }};
  const Result<measure::BenchResult> result = measure::run_campaign(settings, tools);
  if (!result.ok() && result.error().code == ErrorCode::kCancelled)
    throw Failure{kExitInterrupted, result.error().message};
  if (!result.ok()) fail("{}", result.error().message);
  print_summary(options, *result);
  const bool is_whole = std::any_of(result->runs.begin(), result->runs.end(),
                                    [](const measure::Run& run) { return !run.is_excluded; });
  if (!is_whole) fail("no run succeeded; the same command tries again");
  return 0;
}

template <class Lengths>
void add_lengths(CLI::App& app, const std::string& name, Lengths& value, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [&value, name](const std::string& text) {
           try {
             value = parse_lengths(text);
           } catch (const Failure& failure) {
             throw CLI::ValidationError(name, failure.message);
           }
         },
         help)
      ->type_name("LENGTHS");
}

}  // namespace

Command add_bench_protocol(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "protocol", "Prompts in steps up to 128K tokens, each going on from the last answer");
  auto options = std::make_shared<Options>();
  command->add_option("-o,--output", options->folder, "Folder of the campaign; one that was interrupted goes on")
      ->type_name("FOLDER")
      ->required();
  command->add_option("--name", options->name, "Of the result (default: the folder's)");
  options->target.add(*command);
  command
      ->add_option("--sources", options->sources, "Texts: novel, code, korean or files (default: novel,code)")
      ->delimiter(',');
  add_lengths(*command, "--steps", options->steps,
              "Tokens of the text in each prompt (default: 8K,32K,64K,96K,128K)");
  add_lengths(*command, "--alone", options->alone,
              "Which of them have a process of their own and are no part of the series (default: 8K)");
  command->add_option("--scale", options->scale.text, "Factor of all steps, as 1/16 (default: 1)");
  add_number(*command, "--runs", options->runs, 1, 1000, "Of each text (default: 3)");
  add_number(*command, "--gen", options->generated_tokens, 2, 1e6, "Tokens after each prompt (default: 256)");
  add_number(*command, "--time-limit", options->time_limit_s, 1, 1e6, "Seconds a stage may take (default: 7200)");
  command->add_flag("--repeat-disturbed", options->repeats_disturbed,
                    "Exclude a run that others disturbed, and make it again (default: mark it)");
  add_number(*command, "--attempts", options->attempts, 1, 100,
             "Of a run that failed or is to be repeated, by one command (default: 3)");
  add_number(*command, "--busy-limit", options->limits.other_cpu_share, 0, 1,
             "Share of the machine's processor time that other processes may take in a stage (default: 0.05)");
  command->add_flag("!--no-pack-hash", options->hashes_pack, "Do not hash the pack");
  return {command, [options] { return measure_protocol(*options); }};
}

}  // namespace fathom::cli
