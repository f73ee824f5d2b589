// Quick figures of a target: one number a line, without the protocol's fresh processes and repetitions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "measure/source_text.h"
#include "measure/statistics.h"
#include "measure/target.h"

namespace fathom::measure {

struct QuickSettings {
  std::vector<int64_t> context_tokens;  // prompts of so many tokens of the source
  int64_t generated_tokens = 128;
  int32_t repetitions = 3;
  std::chrono::seconds time_limit{7200};
  std::function<bool()> interrupted;  // asked before each request; nothing more is measured then
};

/// One line of a table: a figure at one length.
struct QuickFigure {
  int64_t context_tokens = 0;
  std::vector<double> values;  // [repetitions that succeeded]
  std::string error;           // of the last repetition that failed
};

/// Generation tok/s, (n - 1) / (first -> last token), after each prompt. The prompt may be reused from one
/// repetition to the next.
std::vector<QuickFigure> measure_decode(Target& target, const TargetInfo& info, const SourceText& source,
                                        const QuickSettings& settings);

/// Prefill tok/s: tokens that the target did not claim to have kept / time to the first token. Each prompt
/// begins at another token of the source, behind BOS, so that two have no more than that in common where the
/// state cannot be cleared.
std::vector<QuickFigure> measure_prefill(Target& target, const TargetInfo& info, const SourceText& source,
                                         const QuickSettings& settings);

struct LoadFigures {
  std::vector<double> ready_s;        // from starting the process until it takes requests
  std::vector<double> first_token_s;  // of a short prompt then
  std::vector<double> resident_peak_bytes;
  std::string error;
};
LoadFigures measure_load(const std::function<std::unique_ptr<Target>()>& make_target, const SourceText& source,
                         const QuickSettings& settings);

}  // namespace fathom::measure
