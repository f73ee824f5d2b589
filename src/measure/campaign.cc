#include "measure/campaign.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "measure/divergence.h"
#include "measure/folder_lock.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using nlohmann::json;

/// What must be the same for runs to belong together.
json identity_of(const CampaignSettings& settings) {
  json sources = json::array();
  for (const SourceText& source : settings.sources)
    sources.push_back({{"name", source.source.name},
                       {"sha256", source.source.sha256},
                       {"tokens", source.source.tokens}});
  const Plan& plan = settings.protocol.plan;
  const json identity = {{"format", "fathom-bench-campaign"},
          {"version", 1},
          {"target", settings.target},
          {"pack_sha256", settings.pack_sha256},
          {"sources", sources},
          {"alone_tokens", plan.alone_tokens},
          {"step_tokens", plan.step_tokens},
          {"generated_tokens", plan.generated_tokens}};
  // As the file will have it: bytes of a command line need not be UTF-8.
  return json::parse(identity.dump(-1, ' ', false, json::error_handler_t::replace));
}

class Campaign {
 public:
  Campaign(const CampaignSettings& settings, const CampaignTools& tools) : settings_(settings), tools_(tools) {}

  Result<BenchResult> run() {
    if (settings_.folder.empty()) return Error::invalid("expected a folder for the campaign, found an empty name");
    FATHOM_TRY(check_sources());
    FATHOM_TRY(make_folder());
    FATHOM_ASSIGN(const FolderLock lock, FolderLock::take(settings_.folder));
    FATHOM_TRY(open_folder());
    for (int32_t number = 1; number <= settings_.protocol.plan.runs; ++number)
      for (const SourceText& source : settings_.sources) FATHOM_TRY(run_until_good(source, number));
    return finish();
  }

 private:
  std::string path_of(const std::string& file) const { return settings_.folder + "/" + file; }

  /// Runs are kept by the names of their sources.
  Result<void> check_sources() const {
    std::set<std::string> names;
    for (const SourceText& source : settings_.sources)
      if (!names.insert(source.source.name).second)
        return Error::invalid("sources: expected each name once, found \"{}\" again", source.source.name);
    return {};
  }

  Result<void> make_folder() const {
    std::error_code error;
    std::filesystem::create_directories(path_of("runs"), error);
    if (error) return Error::io("{}: cannot be made: {}", path_of("runs"), error.message());
    return {};
  }

  Result<void> open_folder() const {
    const std::string path = path_of("campaign.json");
    const json identity = identity_of(settings_);
    if (!file_exists(path)) return write_json_file(path, identity);
    FATHOM_ASSIGN(const json found, read_json_object(path));
    for (const auto& [member, expected] : identity.items()) {
      const json actual = found.value(member, json());
      if (actual != expected)
        return Error::invalid("{} is of another campaign: {} is {} there and {} here; choose another folder",
                              settings_.folder, member, shown_json(actual), shown_json(expected));
    }
    return {};
  }

  std::string run_path(const SourceText& source, int32_t number, int32_t attempt) const {
    return path_of(fmt::format("runs/{}-{}-{}.json", source.source.name, number, attempt));
  }

  bool must_repeat(const Run& run) const {
    return has_failed(run) || (settings_.repeats_disturbed && run.is_disturbed);
  }

  /// The attempts of one run, read or made, until one is good or this call has made as many as it may.
  Result<void> run_until_good(const SourceText& source, int32_t number) {
    for (int32_t attempt = 1, made = 0;; ++attempt) {
      const std::string path = run_path(source, number, attempt);
      const bool is_there = file_exists(path);
      if (!is_there && tools_.interrupted()) return Error::cancelled("interrupted; the same command goes on");
      FATHOM_ASSIGN(Run run, is_there ? read_run(path, source, number) : make_run(path, source, number));
      made += !is_there;
      const bool repeats =
          must_repeat(run) && (made < settings_.attempts || file_exists(run_path(source, number, attempt + 1)));
      run.is_excluded = repeats || has_failed(run);
      runs_.push_back(run);
      if (!repeats) return {};
      tools_.say(
          fmt::format("{} {}: {}; once more", run.source, number, has_failed(run) ? "failed" : "disturbed"));
    }
  }

  /// Whether a run has the stages of the plan, in their order.
  bool is_of_plan(const Run& run, const SourceText& source, int32_t number) const {
    const Plan& plan = settings_.protocol.plan;
    std::vector<int64_t> planned = plan.alone_tokens, found;
    planned.insert(planned.end(), plan.step_tokens.begin(), plan.step_tokens.end());
    for (const Stage& stage : run.stages) found.push_back(stage.context_tokens);
    return run.source == source.source.name && run.number == number && found == planned;
  }

  Result<Run> read_run(const std::string& path, const SourceText& source, int32_t number) {
    FATHOM_ASSIGN(const json content, read_json_object(path));
    if (!content.contains("run") || !content.contains("target"))
      return Error::invalid("{}: expected a run, found something else; remove it and the run is made again", path);
    FATHOM_ASSIGN(Run run, run_from_json(content["run"], path));
    FATHOM_ASSIGN(TargetInfo info, target_from_json(content["target"], path));
    if (!is_of_plan(run, source, number))
      return Error::invalid(
          "{}: expected run {} of {} with the stages of the plan, found another; remove it and the run is made "
          "again",
          path, number, source.source.name);
    FATHOM_TRY(take_target(info));
    return run;
  }

  /// All runs of a campaign are of one target, also when it goes on weeks later.
  Result<void> take_target(const TargetInfo& info) {
    if (info.engine.empty()) return {};  // it never started
    if (!info_.engine.empty())
      if (const std::vector<std::string> found = differences(info_, info); !found.empty())
        return Error::state("{} holds runs of another target: {}; choose another folder", settings_.folder,
                            fmt::join(found, ", "));
    info_ = info;
    return {};
  }

  Result<Run> make_run(const std::string& path, const SourceText& source, int32_t number) {
    const std::unique_ptr<Target> target = tools_.make_target();
    RunOutcome outcome = run_protocol(*target, source, number, settings_.protocol, tools_);
    if (has_failed(outcome.run) && tools_.interrupted())
      return Error::cancelled("interrupted; the same command goes on");
    FATHOM_TRY(take_target(outcome.info));
    FATHOM_TRY(write_json_file(path, json{{"run", to_json(outcome.run)}, {"target", to_json(outcome.info)}}));
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
    // Of a target that never started nothing is known.
    if (!info_.engine.empty()) result.variant = variant_of(info_, result.plan, result.runs);
    result.divergences = divergences_of(result.runs);
    if (!result.divergences.empty()) ask_margins(result);
    if (info_.is_http && info_.command.empty())
      result.remarks.push_back("The server ran already: its runs are not those of fresh processes.");
    FATHOM_TRY(write_result(path_of("result.json"), result));
    FATHOM_TRY(write_text_file(path_of("result.csv"), to_csv(result)));
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
      if (const auto source =
              std::find_if(settings_.sources.begin(), settings_.sources.end(),
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
