#include "measure/report.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "measure/compare.h"
#include "measure/embedded_files.h"
#include "measure/metrics.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMark = "FATHOM_REPORT_DATA";

/// Leaves out what is unknown, as result files do.
void put(Json& object, const char* name, double value) {
  if (std::isfinite(value)) object[name] = value;
}
void put(Json& object, const char* name, const std::optional<double>& value) {
  if (value) put(object, name, *value);
}
void put(Json& object, const char* name, const std::string& value) {
  if (!value.empty()) object[name] = value;
}

Json json_of(const BenchResult& result, size_t index) {
  Json json = {{"letter", result_letter(index)}, {"name", result.name}, {"kind", result.kind}};
  put(json, "created", result.created);
  put(json, "origin", result.origin);
  put(json, "engine", result.target.engine);
  put(json, "address", result.target.address);
  put(json, "details", result.target.details);
  put(json, "formula", result.formula);
  put(json, "pack", result.pack_name);
  put(json, "machine", result.environment.machine);
  put(json, "cpu", result.environment.cpu);
  put(json, "gpu", result.environment.gpu);
  if (result.variant) json["variant"] = variant_name(*result.variant);
  json["remarks"] = result.remarks;
  return json;
}

Json json_of(const Metric& metric) {
  return {{"name", metric.name}, {"title", metric.title}, {"unit", metric.unit}, {"more", metric.more_is_better}};
}

Json json_of(const std::optional<Cell>& cell) {
  if (!cell) return nullptr;
  Json json = {{"n", cell->sample.count}};
  put(json, "mean", cell->middle());
  put(json, "deviation", cell->sample.deviation);
  put(json, "variation", cell->sample.variation);
  put(json, "low", cell->sample.low);
  put(json, "high", cell->sample.high);
  put(json, "smallest", cell->sample.smallest);
  put(json, "largest", cell->sample.largest);
  put(json, "publishedLow", cell->published_low);
  put(json, "publishedHigh", cell->published_high);
  if (!cell->ratio) return json;
  put(json, "ratio", cell->ratio->value);
  put(json, "ratioLow", cell->ratio->low);
  put(json, "ratioHigh", cell->ratio->high);
  return json;
}

Json json_of(const ComparisonRow& row) {
  Json cells = Json::array();
  for (const std::optional<Cell>& cell : row.cells) cells.push_back(json_of(cell));
  return {{"source", row.source}, {"stage", row.stage}, {"context", row.context_tokens}, {"metric", row.metric},
          {"cells", std::move(cells)}};
}

Json json_of(const OutputAgreement& agreement) {
  Json json = {{"source", agreement.source}, {"stage", agreement.stage}, {"result", agreement.result},
               {"withFirst", agreement.is_with_first}, {"pairs", agreement.pairs},
               {"equal", agreement.equal_pairs}, {"otherPrompts", agreement.other_prompts}};
  if (agreement.first_divergence) json["divergence"] = *agreement.first_divergence;
  return json;
}

Json json_of(const RunCount& count) {
  return {{"result", count.result}, {"source", count.source}, {"planned", count.planned},
          {"measured", count.measured}, {"excluded", count.excluded}, {"disturbed", count.disturbed},
          {"failed", count.failed}};
}

Json json_of(const Warning& warning) { return {{"text", warning.text}, {"results", warning.results}}; }

Json json_of(const EnvironmentRow& row) {
  return {{"name", row.name}, {"values", row.values}, {"differs", row.differs}};
}

template <class T>
Json list_of(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(json_of(item));
  return list;
}

/// Runs that were disturbed, excluded or not whole, and why.
Json noted_runs(std::span<const BenchResult> results) {
  Json notes = Json::array();
  for (size_t result = 0; result < results.size(); ++result) {
    for (const Run& run : results[result].runs) {
      std::vector<std::string> reasons = run.disturbances;
      if (!run.error.empty()) reasons.push_back(run.error);
      for (const Stage& stage : run.stages)
        if (stage.status != StageStatus::kOk)
          reasons.push_back(fmt::format("{}: {}{}{}", stage.name,
                                        stage.status == StageStatus::kFailed ? "failed" : "not run",
                                        stage.error.empty() ? "" : ": ", stage.error));
      if (reasons.empty() && !run.is_disturbed && !run.is_excluded) continue;
      notes.push_back({{"result", result}, {"source", run.source}, {"number", run.number},
                       {"begun", run.begun}, {"disturbed", run.is_disturbed}, {"excluded", run.is_excluded},
                       {"reasons", reasons}});
    }
  }
  return notes;
}

Json json_of(std::span<const BenchResult> results) {
  const Comparison comparison = compare(results);
  Json list = Json::array();
  for (size_t result = 0; result < results.size(); ++result) list.push_back(json_of(results[result], result));
  Json metric_list = Json::array();
  for (const Metric& metric : metrics()) metric_list.push_back(json_of(metric));
  return {{"results", std::move(list)},
          {"metrics", std::move(metric_list)},
          {"warnings", list_of(comparison.warnings)},
          {"rows", list_of(comparison.rows)},
          {"agreements", list_of(comparison.agreements)},
          {"runs", list_of(comparison.runs)},
          {"notes", noted_runs(results)},
          {"environment", list_of(comparison.environment)}};
}

/// JSON that an HTML parser sees nothing in: ASCII, and no "<" that could begin a tag or a comment.
std::string html_safe(const Json& json) {
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char character : text) {
    if (character == '<' || character == '>' || character == '&')
      safe += fmt::format("\\u{:04x}", static_cast<int>(character));
    else
      safe += character;
  }
  return safe;
}

}  // namespace

Result<std::string> render_report_with(std::string_view page, std::span<const BenchResult> results) {
  if (results.empty()) return Error::invalid("report: expected at least one result, found none");
  const size_t mark = page.find(kMark);
  if (mark == page.npos || page.find(kMark, mark + 1) != page.npos)
    return Error::internal("report: expected {} once in the page, found it {}", kMark,
                           mark == page.npos ? "nowhere" : "more than once");
  std::string text(page.substr(0, mark));
  text += html_safe(json_of(results));
  text += page.substr(mark + kMark.size());
  return text;
}

Result<std::string> render_report(std::span<const BenchResult> results) {
  if (report_pages().empty())
    return Error::unsupported("report: this program was built without its pages (FATHOM_WEB), which need npm and "
                              "Node 20.19 or later at build time; results can still be written as JSON and CSV");
  return render_report_with(report_pages().front().bytes, results);
}

}  // namespace fathom::measure
