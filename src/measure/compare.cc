#include "measure/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "measure/metrics.h"

namespace fathom::measure {
namespace {

bool is_whole(const Stage& stage) { return stage.status == StageStatus::kOk; }

/// Of a stage's name where no run tells it: "32K" is 32,768. 0: no such name.
int64_t context_of_name(const std::string& name) {
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), tokens);
  if (error != std::errc() || tokens <= 0 || tokens > (int64_t{1} << 40)) return 0;
  const std::string_view unit(end, static_cast<size_t>(name.data() + name.size() - end));
  return unit == "K" ? tokens * 1024 : unit.empty() ? tokens : 0;
}

struct Place {
  std::string source, stage;
  bool operator<(const Place& other) const {
    return std::tie(source, stage) < std::tie(other.source, other.stage);
  }
  bool operator==(const Place&) const = default;
};

/// Sources in the order of their first appearance, those that a publication does not name last; stages by context.
class Places {
 public:
  explicit Places(std::span<const BenchResult> results) {
    for (const BenchResult& result : results) {
      for (const Run& run : result.runs)
        for (const Stage& stage : run.stages) add({run.source, stage.name}, stage.context_tokens);
      for (const PublishedFigure& figure : result.published) add({figure.source, figure.stage}, 0);
    }
    std::stable_sort(places_.begin(), places_.end(), [this](const Place& a, const Place& b) {
      return std::tuple(source_order(a.source), stage_order(a)) < std::tuple(source_order(b.source), stage_order(b));
    });
  }

  const std::vector<Place>& all() const { return places_; }
  int64_t context_tokens(const Place& place) const { return contexts_.at(place); }

 private:
  void add(const Place& place, int64_t context_tokens) {
    const auto [found, is_new] = contexts_.try_emplace(place, 0);
    if (is_new) {
      places_.push_back(place);
      if (std::find(sources_.begin(), sources_.end(), place.source) == sources_.end())
        sources_.push_back(place.source);
      found->second = context_of_name(place.stage);
    }
    if (context_tokens > 0) found->second = context_tokens;
  }
  size_t source_order(const std::string& source) const {
    if (source.empty()) return sources_.size();
    return static_cast<size_t>(std::find(sources_.begin(), sources_.end(), source) - sources_.begin());
  }
  int64_t stage_order(const Place& place) const {
    const int64_t tokens = contexts_.at(place);
    return tokens > 0 ? tokens : INT64_MAX;
  }

  std::vector<Place> places_;
  std::vector<std::string> sources_;
  std::map<Place, int64_t> contexts_;
};

/// The stage of each run that is kept and has it whole.
std::vector<const Stage*> stages_at(const BenchResult& result, const Place& place) {
  std::vector<const Stage*> stages;
  for (const Run& run : result.runs) {
    if (run.is_excluded || run.source != place.source) continue;
    for (const Stage& stage : run.stages)
      if (stage.name == place.stage && is_whole(stage)) stages.push_back(&stage);
  }
  return stages;
}

std::optional<Cell> cell_of(const BenchResult& result, const Place& place, const Metric& metric) {
  Cell cell;
  for (const Stage* stage : stages_at(result, place))
    if (const std::optional<double> value = metric.of(*stage)) cell.values.push_back(*value);
  cell.sample = sample_of(cell.values);
  for (const PublishedFigure& figure : result.published) {
    if (Place{figure.source, figure.stage} != place || figure.metric != metric.name) continue;
    cell.published = figure.value;
    cell.published_low = figure.low;
    cell.published_high = figure.high;
  }
  const bool is_empty = cell.values.empty() && !cell.published && !cell.published_low && !cell.published_high;
  return is_empty ? std::nullopt : std::optional(std::move(cell));
}

std::optional<Ratio> ratio_to(const Cell& first, const Cell& cell) {
  if (!first.middle() || !cell.middle()) return std::nullopt;
  const auto values_of = [](const Cell& one) {
    return one.values.empty() ? std::vector<double>{*one.middle()} : one.values;
  };
  const Ratio ratio = ratio_of(values_of(cell), values_of(first));
  return std::isfinite(ratio.value) ? std::optional(ratio) : std::nullopt;
}

/// Nothing where the two cannot be compared; otherwise where they part, or the length of both where they do not.
struct Meeting {
  bool is_equal = false;
  std::optional<int64_t> divergence;
};
std::optional<Meeting> meet(const Stage& a, const Stage& b) {
  if (a.output_ids.empty() != b.output_ids.empty()) return std::nullopt;
  if (a.output_ids.empty()) {
    if (a.output_sha256.empty() || b.output_sha256.empty()) return std::nullopt;
    return Meeting{.is_equal = a.output_sha256 == b.output_sha256};
  }
  const auto [left, right] = std::mismatch(a.output_ids.begin(), a.output_ids.end(), b.output_ids.begin(),
                                           b.output_ids.end());
  if (left == a.output_ids.end() && right == b.output_ids.end()) return Meeting{.is_equal = true};
  return Meeting{.divergence = left - a.output_ids.begin()};
}

void count_pair(const Stage& a, const Stage& b, Agreement& agreement) {
  const std::optional<Meeting> meeting = meet(a, b);
  if (!meeting) return;
  ++agreement.pairs;
  if (meeting->is_equal) ++agreement.equal_pairs;
  if (!meeting->divergence) return;
  agreement.first_divergence = std::min(agreement.first_divergence.value_or(INT64_MAX), *meeting->divergence);
}

}  // namespace

std::optional<double> Cell::middle() const {
  if (!values.empty() && std::isfinite(sample.mean)) return sample.mean;
  return published;
}

std::string result_letter(size_t result) {
  std::string letters(1, static_cast<char>('A' + result % 26));
  return result < 26 ? letters : result_letter(result / 26 - 1) + letters;
}

std::vector<ComparisonRow> comparison_rows(std::span<const BenchResult> results) {
  std::vector<ComparisonRow> rows;
  const Places places(results);
  for (const Place& place : places.all()) {
    for (const Metric& metric : metrics()) {
      ComparisonRow row{.source = place.source, .stage = place.stage,
                        .context_tokens = places.context_tokens(place), .metric = metric.name};
      for (const BenchResult& result : results) {
        std::optional<Cell> cell = cell_of(result, place, metric);
        if (cell && !row.cells.empty() && row.cells.front()) cell->ratio = ratio_to(*row.cells.front(), *cell);
        row.cells.push_back(std::move(cell));
      }
      const bool has_figure = std::any_of(row.cells.begin(), row.cells.end(),
                                          [](const std::optional<Cell>& cell) { return cell.has_value(); });
      if (has_figure) rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<Agreement> agreements_of(std::span<const BenchResult> results) {
  std::vector<Agreement> agreements;
  const Places places(results);
  const auto keep = [&](const Agreement& agreement) {
    if (agreement.pairs > 0) agreements.push_back(agreement);
  };
  for (const Place& place : places.all()) {
    for (size_t result = 0; result < results.size(); ++result) {
      const std::vector<const Stage*> stages = stages_at(results[result], place);
      Agreement within{.source = place.source, .stage = place.stage, .result = result};
      for (size_t run = 1; run < stages.size(); ++run)
        for (size_t other = 0; other < run; ++other) count_pair(*stages[other], *stages[run], within);
      keep(within);
      if (result == 0) continue;
      Agreement between{.source = place.source, .stage = place.stage, .result = result, .is_with_first = true};
      for (const Stage* first : stages_at(results[0], place))
        for (const Stage* stage : stages) count_pair(*first, *stage, between);
      keep(between);
    }
  }
  return agreements;
}

std::vector<RunCount> run_counts(std::span<const BenchResult> results) {
  std::vector<RunCount> counts;
  for (size_t result = 0; result < results.size(); ++result) {
    const size_t begin = counts.size();
    const auto count_of = [&](const std::string& source) -> RunCount& {
      for (size_t index = begin; index < counts.size(); ++index)
        if (counts[index].source == source) return counts[index];
      return counts.emplace_back(RunCount{.result = result, .source = source});
    };
    for (const Source& source : results[result].plan.sources)
      count_of(source.name).planned = results[result].plan.runs;
    for (const Run& run : results[result].runs) {
      RunCount& count = count_of(run.source);
      ++count.measured;
      if (run.is_excluded) {
        ++count.excluded;
        continue;
      }
      if (run.is_disturbed) ++count.disturbed;
      if (!run.error.empty() || !std::all_of(run.stages.begin(), run.stages.end(), is_whole)) ++count.failed;
    }
  }
  return counts;
}

Comparison compare(std::span<const BenchResult> results) {
  return {.rows = comparison_rows(results), .agreements = agreements_of(results), .runs = run_counts(results),
          .warnings = comparison_warnings(results), .environment = environment_rows(results)};
}

}  // namespace fathom::measure
