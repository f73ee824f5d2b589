#include "measure/metrics.h"

#include <cmath>

namespace fathom::measure {

std::optional<double> Metric::of(const Stage& stage) const {
  std::optional<double> value;
  if (plain != nullptr && stage.*plain > 0) value = stage.*plain;
  if (optional != nullptr) value = stage.*optional;
  if (first_gap >= 0 && static_cast<size_t>(first_gap) < stage.first_gaps_ms.size())
    value = stage.first_gaps_ms[static_cast<size_t>(first_gap)];
  return value && std::isfinite(*value) ? value : std::nullopt;
}

void Metric::set(Stage& stage, double value) const {
  if (plain != nullptr) stage.*plain = value;
  if (optional != nullptr) stage.*optional = value;
  if (first_gap < 0) return;
  const auto index = static_cast<size_t>(first_gap);
  if (stage.first_gaps_ms.size() <= index) stage.first_gaps_ms.resize(index + 1, NAN);
  stage.first_gaps_ms[index] = value;
}

std::span<const Metric> metrics() {
  static constexpr Metric kMetrics[] = {
      {.name = "prefill_tokens_per_s", .title = "Prefill", .unit = "tokens/s", .more_is_better = true,
       .optional = &Stage::prefill_tokens_per_s},
      {.name = "first_token_s", .title = "First token", .unit = "s", .more_is_better = false,
       .plain = &Stage::first_token_s},
      {.name = "generation_f1_tokens_per_s", .title = "Generation F1", .unit = "tokens/s", .more_is_better = true,
       .optional = &Stage::generation_f1_tokens_per_s},
      {.name = "generation_f2_tokens_per_s", .title = "Generation F2", .unit = "tokens/s", .more_is_better = true,
       .optional = &Stage::generation_f2_tokens_per_s},
      {.name = "total_s", .title = "Total", .unit = "s", .more_is_better = false, .plain = &Stage::total_s},
      {.name = "first_gap_1_ms", .title = "1st token", .unit = "ms", .more_is_better = false, .first_gap = 0},
      {.name = "first_gap_2_ms", .title = "2nd token", .unit = "ms", .more_is_better = false, .first_gap = 1},
      {.name = "first_gap_3_ms", .title = "3rd token", .unit = "ms", .more_is_better = false, .first_gap = 2},
      {.name = "first_gap_4_ms", .title = "4th token", .unit = "ms", .more_is_better = false, .first_gap = 3},
      {.name = "gap_p50_ms", .title = "Gap p50", .unit = "ms", .more_is_better = false,
       .optional = &Stage::gap_p50_ms},
      {.name = "gap_p90_ms", .title = "Gap p90", .unit = "ms", .more_is_better = false,
       .optional = &Stage::gap_p90_ms},
      {.name = "gap_p99_ms", .title = "Gap p99", .unit = "ms", .more_is_better = false,
       .optional = &Stage::gap_p99_ms},
      {.name = "gap_max_ms", .title = "Longest gap", .unit = "ms", .more_is_better = false,
       .optional = &Stage::gap_max_ms},
  };
  return kMetrics;
}

const Metric* metric_named(std::string_view name) {
  for (const Metric& metric : metrics())
    if (name == metric.name) return &metric;
  return nullptr;
}

}  // namespace fathom::measure
