#include "measure/compare_places.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <tuple>

namespace fathom::measure {
namespace {

/// Of a stage's name where no run tells it: "32K" is 32,768. 0: no such name.
int64_t context_of_name(const std::string& name) {
  int64_t tokens = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data(), last, tokens);
  if (error != std::errc() || tokens <= 0 || tokens > (int64_t{1} << 40)) return 0;
  const std::string_view unit(end, static_cast<size_t>(last - end));
  return unit == "K" ? tokens * 1024 : unit.empty() ? tokens : 0;
}

}  // namespace

Places::Places(std::span<const BenchResult> results) {
  for (const BenchResult& result : results) {
    for (const Run& run : result.runs)
      for (const Stage& stage : run.stages)
        add({run.source, place_name(result.plan, stage)}, stage.context_tokens);
    for (const PublishedFigure& figure : result.published) add({figure.source, figure.stage}, 0);
  }
  std::sort(places_.begin(), places_.end(), [this](const Place& a, const Place& b) {
    return std::tuple(source_order(a.source), stage_order(a), a.stage) <
           std::tuple(source_order(b.source), stage_order(b), b.stage);
  });
}

void Places::add(const Place& place, int64_t context_tokens) {
  const auto [found, is_new] = contexts_.try_emplace(place, 0);
  if (is_new) {
    places_.push_back(place);
    found->second = context_of_name(place.stage);
    if (std::find(sources_.begin(), sources_.end(), place.source) == sources_.end())
      sources_.push_back(place.source);
  }
  if (context_tokens > 0) found->second = context_tokens;
}

size_t Places::source_order(const std::string& source) const {
  if (source.empty()) return sources_.size();
  return static_cast<size_t>(std::find(sources_.begin(), sources_.end(), source) - sources_.begin());
}

int64_t Places::stage_order(const Place& place) const {
  const int64_t tokens = contexts_.at(place);
  return tokens > 0 ? tokens : INT64_MAX;
}

std::string place_name(const Plan& plan, const Stage& stage) {
  const auto has = [&](const std::vector<int64_t>& lengths) {
    return std::find(lengths.begin(), lengths.end(), stage.context_tokens) != lengths.end();
  };
  // The first step has nothing before it either: it is the same prompt.
  const bool is_alone = has(plan.alone_tokens) && has(plan.step_tokens) &&
                        stage.context_tokens != plan.step_tokens.front() &&
                        stage.new_tokens == stage.context_tokens;
  return is_alone ? stage.name + " alone" : stage.name;
}

std::vector<RunStage> whole_stages(const BenchResult& result, const Place& place) {
  std::vector<RunStage> stages;
  for (const Run& run : result.runs) {
    if (run.is_excluded || run.source != place.source) continue;
    for (const Stage& stage : run.stages)
      if (stage.status == StageStatus::kOk && place_name(result.plan, stage) == place.stage)
        stages.push_back({&run, &stage});
  }
  return stages;
}

}  // namespace fathom::measure
