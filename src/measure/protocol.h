// One run of the measurement protocol: a source text in steps, each going on from what was generated before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/figures.h"
#include "measure/result.h"
#include "measure/source_text.h"
#include "measure/target.h"

namespace fathom::measure {

/// What else the machine did while a stage ran.
struct Observation {
  bool is_disturbed = false;       // beyond the limits that were set
  std::vector<std::string> lines;  // for people, within the limits too
};

/// Watches the machine while a stage runs.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual SystemUsage usage() = 0;
  /// Around a stage.
  virtual void begin() = 0;
  /// Since begin().
  virtual Observation end() = 0;
};

struct ProtocolSettings {
  Plan plan;
  // The warm-up. Without BOS, so that nothing of it is a prefix of what is measured.
  std::string greeting = "Hello! How are you today?";
  std::vector<int32_t> greeting_ids;
  std::chrono::seconds time_limit{7200}, silence_limit{3600};  // of a stage
};

/// What a run needs from around it.
struct RunTools {
  Observer& observer;
  std::function<bool()> interrupted;            // asked between stages
  std::function<void(const std::string&)> say;  // a line a stage, for people
};

struct RunOutcome {
  Run run;
  TargetInfo info;  // empty where the target never started
};

/// A run is one series of prompts a fresh process: each length of plan.alone_tokens by itself, then all of
/// plan.step_tokens one after the other. In a series,
///
///   prompt 1 = the first step_tokens[0] tokens of the source
///   prompt k = prompt k-1, its generated tokens, and the source's tokens up to step_tokens[k-1]
///
/// so that an engine that continues exactly evaluates the new tokens and one more: the last generated token was
/// chosen but never evaluated. Before a series: a short greeting, then the state is cleared. A stage that fails
/// ends its series; the stages that were not run are marked. An interruption fails all stages after it. The
/// source must be as long as the longest prompt's part of it.
RunOutcome run_protocol(Target& target, const SourceText& source, int32_t number, const ProtocolSettings& settings,
                        const RunTools& tools);

/// How a target continued, from what it claimed in all whole stages of all runs that are not excluded; where it
/// claims nothing, what its driver says.
Variant variant_of(const TargetInfo& info, const Plan& plan, const std::vector<Run>& runs);

/// "32K" for 32,768 tokens; "1000" for whatever is no multiple of 1,024.
std::string stage_name(int64_t context_tokens);

}  // namespace fathom::measure
