// Any number of results side by side: figures, agreement of outputs, and whatever makes them not comparable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/result.h"
#include "measure/statistics.h"

namespace fathom::measure {

/// One figure of one result: of the runs that are not excluded, or of a publication.
struct Cell {
  std::vector<double> values;  // [runs], in their order
  Sample sample;               // of them
  std::optional<double> published, published_low, published_high;
  std::optional<Ratio> ratio;  // to the first result's, whose own cells have none

  /// The mean, or what was published; nothing where only a range is known.
  std::optional<double> middle() const;
};

struct ComparisonRow {
  std::string source, stage;   // empty: a publication does not say
  int64_t context_tokens = 0;  // 0: unknown
  std::string metric;          // metrics.h
  std::vector<std::optional<Cell>> cells;  // [results]
};

/// Outputs of one stage, each pair of runs compared: of one result among themselves, or of a result with those
/// of the first. Outputs whose ids or hashes are not both known, or of which one is of ids and one of text, are
/// no pair. A prompt holds the outputs of the stages before it: once these differ, later ones are answers to
/// other prompts.
struct OutputAgreement {
  std::string source, stage;
  size_t result = 0;
  bool is_with_first = false;
  int64_t pairs = 0, equal_pairs = 0;       // of equal prompts
  int64_t other_prompts = 0;                // pairs of unequal ones
  std::optional<int64_t> first_divergence;  // smallest index, from 0, at which ids of a pair differ
};

struct RunCount {
  size_t result = 0;
  std::string source;
  int64_t planned = 0, measured = 0;
  int64_t excluded = 0, excluded_failed = 0;  // all, and those of them that were not whole
  int64_t disturbed = 0;  // and kept
  int64_t failed = 0;     // kept, and not all of its stages are whole
};

struct Warning {
  std::string text;             // whole sentences; results are named by their letters
  std::vector<size_t> results;  // that it is about
};

struct EnvironmentRow {
  std::string name;
  std::vector<std::string> values;  // [results]; empty: unknown
  bool differs = false;             // among those that are known
};

struct Comparison {
  std::vector<ComparisonRow> rows;  // by source, stage, metric
  std::vector<OutputAgreement> agreements;
  std::vector<RunCount> runs;
  std::vector<Warning> warnings;
  std::vector<EnvironmentRow> environment;
};

Comparison compare(std::span<const BenchResult> results);

/// "A" for the first result.
std::string result_letter(size_t result);

/// The parts of compare().
std::vector<ComparisonRow> comparison_rows(std::span<const BenchResult> results);
std::vector<OutputAgreement> agreements_of(std::span<const BenchResult> results);
std::vector<RunCount> run_counts(std::span<const BenchResult> results);
std::vector<Warning> comparison_warnings(std::span<const BenchResult> results);
std::vector<EnvironmentRow> environment_rows(std::span<const BenchResult> results);

}  // namespace fathom::measure
