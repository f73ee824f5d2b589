#include "measure/campaign.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "measure/divergence.h"

namespace fathom::measure {
namespace {

using nlohmann::json;

constexpr uint64_t kFileLimitBytes = uint64_t{256} << 20;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// What must be the same for runs to belong together.
json identity_of(const CampaignSettings& settings) {
  json sources = json::array();
  for (const SourceText& source : settings.sources)
    sources.push_back({{"name", source.source.name},
                       {"sha256", source.source.sha256},
                       {"tokens", source.source.tokens}});
  const Plan& plan = settings.protocol.plan;
  return {{"format", "fathom-bench-campaign"},
          {"version", 1},
          {"target", settings.target},
          {"pack_sha256", settings.pack_sha256},
          {"sources", sources},
          {"alone_tokens", plan.alone_tokens},
          {"step_tokens", plan.step_tokens},
          {"generated_tokens", plan.generated_tokens}};
}

class Campaign {
 public:
  Campaign(const CampaignSettings& settings, const CampaignTools& tools) : settings_(settings), tools_(tools) {}

  Result<BenchResult> run() {
    FATHOM_TRY(open_folder());
    for (int32_t number = 1; number <= settings_.protocol.plan.runs; ++number)
      for (const SourceText& source : settings_.sources) FATHOM_TRY(run_until_good(source, number));
    return finish();
  }

 private:
  std::string path_of(const std::string& file) const { return settings_.folder + "/" + file; }

  Result<void> open_folder() {
    std::error_code error;
    std::filesystem::create_directories(path_of("runs"), error);
    if (error) return Error::io("{}: cannot be made: {}", path_of("runs"), error.message());
    const std::string path = path_of("campaign.json");
    const json identity = identity_of(settings_);
    if (!file_exists(path)) {
      const std::string text = identity.dump(2) + "\n";
      const std::span<const std::byte> part = bytes_of(text);
      return write_file_atomically(path, {&part, 1});
    }
    FATHOM_ASSIGN(const std::string text, read_text_file(path, kFileLimitBytes));
    const json found = json::parse(text, nullptr, false);
    if (!found.is_object()) return Error::invalid("{}: expected a campaign's settings, found no JSON object", path);
    for (const auto& [member, expected] : identity.items()) {
      const json actual = found.value(member, json());
      if (actual != expected)
        return Error::invalid("{} is of another campaign: {} is {} there and {} here; choose another folder",
                              settings_.folder, member, actual.dump(), expected.dump());
    }
    return {};
  }

  std::string run_path(const SourceText& source, int32_t number, int32_t attempt) const {
    return path_of(fmt::format("runs/{}-{}-{}.json", source.source.name, number, attempt));
  }

  static bool has_failed(const Run& run) {
    return !run.error.empty() || std::any_of(run.stages.begin(), run.stages.end(), [](const Stage& stage) {
      return stage.status != StageStatus::kOk;
    });
  }

  bool must_repeat(const Run& run) const {
    return has_failed(run) || (settings_.repeats_disturbed && run.is_disturbed);
  }

  /// The attempts of one run, read or made, until one is good or there may be no more.
  Result<void> run_until_good(const SourceText& source, int32_t number) {
    for (int32_t attempt = 1; attempt <= settings_.attempts; ++attempt) {
      const std::string path = run_path(source, number, attempt);
      const bool is_there = file_exists(path);
      if (!is_there && tools_.interrupted()) return Error::cancelled("interrupted; the same command goes on");
      FATHOM_ASSIGN(Run run, is_there ? read_run(path) : make_run(path, source, number));
      const bool repeats = must_repeat(run) && attempt < settings_.attempts;
      run.is_excluded = repeats || has_failed(run);
      runs_.push_back(run);
      if (!repeats) return {};
      tools_.say(fmt::format("{} {}: {}; once more", run.source, number, has_failed(run) ? "failed" : "disturbed"));
    }
    return {};
  }

  Result<Run> read_run(const std::string& path) {
    FATHOM_ASSIGN(const std::string text, read_text_file(path, kFileLimitBytes));
    const json content = json::parse(text, nullptr, false);
    if (!content.is_object() || !content.contains("run") || !content.contains("target"))
      return Error::invalid("{}: expected a run, found something else; remove it and the run is made again", path);
    FATHOM_ASSIGN(Run run, run_from_json(content["run"], path));
    FATHOM_ASSIGN(TargetInfo info, target_from_json(content["target"], path));
    if (!info.engine.empty()) info_ = info;
    return run;
  }

  Result<Run> make_run(const std::string& path, const SourceText& source, int32_t number) {
    const std::unique_ptr<Target> target = tools_.make_target();
    RunOutcome outcome = run_protocol(*target, source, number, settings_.protocol, tools_.observer, tools_.say);
    if (tools_.interrupted()) return Error::cancelled("interrupted; the same command goes on");
    if (!outcome.info.engine.empty()) info_ = outcome.info;
    const std::string text = json{{"run", to_json(outcome.run)}, {"target", to_json(outcome.info)}}.dump(2) + "\n";
    const std::span<const std::byte> part = bytes_of(text);
    FATHOM_TRY(write_file_atomically(path, {&part, 1}));
    return std::move(outcome.run);
  }

  Result<BenchResult> finish() {
    BenchResult result;
    result.name = settings_.name;
    result.kind = "protocol";
    result.created = utc_now();
    result.program = std::string("fathom ") + FATHOM_VERSION;
    result.target = info_;
    result.formula = "both";
    result.pack_name = settings_.pack_name;
    result.pack_sha256 = settings_.pack_sha256;
    result.plan = settings_.protocol.plan;
    for (const SourceText& source : settings_.sources) result.plan.sources.push_back(source.source);
    result.environment = tools_.environment();
    result.runs = std::move(runs_);
    result.variant = variant_of(info_, result.plan, result.runs);
    result.divergences = divergences_of(result.runs);
    if (!result.divergences.empty()) ask_margins(result);
    FATHOM_TRY(write_result(path_of("result.json"), result));
    const std::string csv = to_csv(result);
    const std::span<const std::byte> part = bytes_of(csv);
    FATHOM_TRY(write_file_atomically(path_of("result.csv"), {&part, 1}));
    return result;
  }

  void ask_margins(BenchResult& result) {
    if (!info_.gives_logprobs) return;
    const std::unique_ptr<Target> target = tools_.make_target();
    if (const Result<TargetInfo> started = target->start(); !started.ok()) {
      result.remarks.push_back("margins at divergences are unknown: " + started.error().message);
      return;
    }
    for (Divergence& divergence : result.divergences)
      if (const auto source = std::find_if(settings_.sources.begin(), settings_.sources.end(),
                                           [&](const SourceText& text) { return text.source.name == divergence.source; });
          source != settings_.sources.end())
        if (const std::string error = fill_margin(*target, *source, result.runs, divergence); !error.empty())
          result.remarks.push_back("the margin at a divergence is unknown: " + error);
    target->stop();
  }

  const CampaignSettings& settings_;
  const CampaignTools& tools_;
  std::vector<Run> runs_;
  TargetInfo info_;
};

}  // namespace

Result<BenchResult> run_campaign(const CampaignSettings& settings, const CampaignTools& tools) {
  return Campaign(settings, tools).run();
}

}  // namespace fathom::measure
