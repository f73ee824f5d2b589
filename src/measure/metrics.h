// The figures of a stage that are averaged, compared and shown.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "measure/result.h"

namespace fathom::measure {

struct Metric {
  const char* name;   // as in result files
  const char* title;  // for people
  const char* unit;
  bool more_is_better;
  double Stage::*plain = nullptr;                   // 0: unknown
  std::optional<double> Stage::*optional = nullptr;
  int first_gap = -1;                               // index into Stage::first_gaps_ms

  std::optional<double> of(const Stage& stage) const;
  void set(Stage& stage, double value) const;
};

/// In the order in which they are shown.
std::span<const Metric> metrics();
const Metric* metric_named(std::string_view name);

}  // namespace fathom::measure
