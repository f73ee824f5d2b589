#include "measure/compare.h"

#include <algorithm>
#include <cmath>

#include "measure/compare_places.h"
#include "measure/metrics.h"

namespace fathom::measure {
namespace {

std::optional<Cell> cell_of(const BenchResult& result, const Place& place, const Metric& metric) {
  Cell cell;
  for (const RunStage& one : whole_stages(result, place))
    if (const std::optional<double> value = metric.of(*one.stage)) cell.values.push_back(*value);
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
        count.excluded_failed += has_failed(run);
        continue;
      }
      count.disturbed += run.is_disturbed;
      count.failed += has_failed(run);
    }
  }
  return counts;
}

Comparison compare(std::span<const BenchResult> results) {
  return {.rows = comparison_rows(results), .agreements = agreements_of(results), .runs = run_counts(results),
          .warnings = comparison_warnings(results), .environment = environment_rows(results)};
}

}  // namespace fathom::measure
