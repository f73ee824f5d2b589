#include <algorithm>
#include <cmath>
#include <string_view>

#include "measure/metrics.h"

namespace fathom::measure {
namespace {

/// Cells of a table, from which both its head and its rows are made: a row names each column where it fills it.
class Row {
 public:
  void add(const char* column, std::string text) {
    columns_.push_back(column);
    // A spreadsheet would compute a text that begins like this.
    if (!text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos) text.insert(0, "'");
    if (text.find_first_of(",\"\r\n") == std::string::npos) return cells_.push_back(std::move(text));
    std::string quoted = "\"";
    for (const char character : text) {
      if (character == '"') quoted += '"';
      quoted += character;
    }
    cells_.push_back(quoted + '"');
  }
  void add(const char* column, const std::optional<double>& value) {
    columns_.push_back(column);
    cells_.push_back(value && std::isfinite(*value) ? fmt::format("{}", *value) : "");
  }
  void add(const char* column, const std::optional<int64_t>& value) {
    columns_.push_back(column);
    cells_.push_back(value ? fmt::format("{}", *value) : "");
  }
  /// 0: unknown.
  void add_count(const char* column, int64_t value) {
    add(column, value > 0 ? std::optional(value) : std::nullopt);
  }

  std::string head() const { return fmt::format("{}\n", fmt::join(columns_, ",")); }
  std::string line() const { return fmt::format("{}\n", fmt::join(cells_, ",")); }

 private:
  std::vector<const char*> columns_;
  std::vector<std::string> cells_;
};

const char* status_name(const Run* run, const Stage& stage) {
  if (run == nullptr) return "published";
  return stage.status == StageStatus::kOk ? "ok" : stage.status == StageStatus::kFailed ? "failed" : "not_run";
}

void add_figures(const Stage& stage, Row& row) {
  row.add("evaluated_tokens", stage.evaluated_tokens);
  row.add("cached_tokens_claimed", stage.cached_tokens_claimed);
  row.add("cached_tokens_implied", stage.cached_tokens_implied);
  row.add_count("output_tokens", stage.output_tokens);
  for (const Metric& metric : metrics()) row.add(metric.name, metric.of(stage));
  row.add("claimed_prefill_s", stage.claimed_prefill_s);
  row.add("claimed_decode_s", stage.claimed_decode_s);
}

void add_usage(const Stage& stage, Row& row) {
  row.add("process_resident_bytes", stage.process.resident_bytes);
  row.add("process_resident_peak_bytes", stage.process.resident_peak_bytes);
  row.add("process_read_bytes", stage.process.read_bytes);
  row.add("process_written_bytes", stage.process.written_bytes);
  row.add("process_cpu_s", stage.process.cpu_s);
  row.add("swap_used_bytes_before", stage.before.swap_used_bytes);
  row.add("swap_used_bytes_after", stage.after.swap_used_bytes);
  row.add("memory_available_bytes_before", stage.before.memory_available_bytes);
  row.add("memory_available_bytes_after", stage.after.memory_available_bytes);
  row.add("disk_read_bytes_before", stage.before.disk_read_bytes);
  row.add("disk_read_bytes_after", stage.after.disk_read_bytes);
  row.add("disk_written_bytes_before", stage.before.disk_written_bytes);
  row.add("disk_written_bytes_after", stage.after.disk_written_bytes);
}

/// `run` is null for a published stage.
Row row_of(const BenchResult& result, const Run* run, const std::string& source, const Stage& stage) {
  Row row;
  row.add("result", result.name);
  row.add("source", source);
  row.add_count("run", run == nullptr ? 0 : run->number);
  row.add("begun", run == nullptr ? "" : run->begun);
  row.add("disturbed", run == nullptr ? "" : run->is_disturbed ? "yes" : "no");
  row.add("excluded", run == nullptr ? "" : run->is_excluded ? "yes" : "no");
  row.add("stage", stage.name);
  row.add("status", status_name(run, stage));
  row.add_count("context_tokens", stage.context_tokens);
  row.add_count("prompt_tokens", stage.prompt_tokens);
  row.add_count("new_tokens", stage.new_tokens);
  add_figures(stage, row);
  row.add("finish_reason", stage.finish_reason);
  row.add("output_sha256", stage.output_sha256);
  add_usage(stage, row);
  row.add("error", stage.error);
  return row;
}

struct PublishedStage {
  std::string source;
  Stage stage;
};

std::vector<PublishedStage> published_stages(const BenchResult& result) {
  std::vector<PublishedStage> stages;
  for (const PublishedFigure& figure : result.published) {
    const auto same = [&](const PublishedStage& one) {
      return one.source == figure.source && one.stage.name == figure.stage;
    };
    auto found = std::find_if(stages.begin(), stages.end(), same);
    if (found == stages.end()) {
      found = stages.emplace(stages.end());
      found->source = figure.source;
      found->stage.name = figure.stage;
    }
    const Metric* metric = metric_named(figure.metric);
    if (metric != nullptr && figure.value) metric->set(found->stage, *figure.value);
  }
  return stages;
}

}  // namespace

std::string to_csv(const BenchResult& result) {
  std::string text = row_of(result, nullptr, "", Stage{}).head();
  for (const Run& run : result.runs)
    for (const Stage& stage : run.stages) text += row_of(result, &run, run.source, stage).line();
  for (const PublishedStage& one : published_stages(result))
    text += row_of(result, nullptr, one.source, one.stage).line();
  return text;
}

}  // namespace fathom::measure
