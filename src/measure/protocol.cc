#include "measure/protocol.h"

#include <algorithm>
#include <optional>

namespace fathom::measure {
namespace {

constexpr int32_t kGreetingTokens = 16;

/// Lengths of the source that one process is given in turn.
std::vector<std::vector<int64_t>> series_of(const Plan& plan) {
  std::vector<std::vector<int64_t>> series;
  for (const int64_t alone : plan.alone_tokens) series.push_back({alone});
  if (!plan.step_tokens.empty()) series.push_back(plan.step_tokens);
  return series;
}

/// A conversation that grows: what has been sent and generated so far.
struct Conversation {
  std::vector<int32_t> ids;   // [prompt + generated]
  std::string text;
  int64_t source_tokens = 0;  // of the source, in it
  int64_t prompt_tokens = 0;  // of the last prompt, as the target counts
  int64_t generated_tokens = 0;

  /// Leading tokens of the next prompt that an engine has evaluated already.
  int64_t known_tokens(bool continues_exactly) const {
    if (generated_tokens == 0) return 0;
    return continues_exactly ? prompt_tokens + generated_tokens - 1 : prompt_tokens - 1;
  }
};

/// The steps of one process; the target has been started.
class SeriesRun {
 public:
  SeriesRun(Target& target, const TargetInfo& info, const SourceText& source, const ProtocolSettings& settings,
            Observer& observer, Run& run)
      : target_(target), info_(info), source_(source), settings_(settings), observer_(observer), run_(run) {}

  std::string greet() {
    GenerateRequest request = new_request();
    request.max_tokens = kGreetingTokens;
    request.ignore_eos = false;
    if (uses_ids())
      request.prompt_ids = settings_.greeting_ids;
    else
      request.prompt_text = settings_.greeting;
    const Generation greeting = target_.generate(request);
    target_.clear_state();
    return greeting.error;
  }

  void stage(int64_t context_tokens) {
    Stage stage;
    stage.name = stage_name(context_tokens);
    stage.context_tokens = context_tokens;
    stage.new_tokens = context_tokens - conversation_.source_tokens;
    extend(context_tokens);
    GenerateRequest request = new_request();
    request.max_tokens = static_cast<int32_t>(settings_.plan.generated_tokens);
    if (uses_ids())
      request.prompt_ids = conversation_.ids;
    else
      request.prompt_text = conversation_.text;

    const ProcessUsage process_before = target_.usage();
    stage.before = observer_.usage();
    observer_.begin();
    const Generation seen = target_.generate(request);
    Observation observed = observer_.end();
    stage.after = observer_.usage();
    stage.process = usage_since(process_before, target_.usage());
    fill_figures(seen, expectation(), stage);

    if (observed.is_disturbed)
      for (const std::string& line : observed.lines) run_.disturbances.push_back(stage.name + ": " + line);
    stage.observed = std::move(observed.lines);
    remember(seen, stage);
    run_.stages.push_back(std::move(stage));
  }

 private:
  bool uses_ids() const { return info_.takes_ids && info_.gives_ids; }

  GenerateRequest new_request() const {
    GenerateRequest request;
    request.time_limit = settings_.time_limit;
    request.silence_limit = settings_.silence_limit;
    return request;
  }

  void extend(int64_t context_tokens) {
    const int64_t from = conversation_.source_tokens;
    conversation_.ids.insert(conversation_.ids.end(), source_.ids.begin() + from,
                             source_.ids.begin() + context_tokens);
    conversation_.text += source_.text_between(from, context_tokens);
    conversation_.source_tokens = context_tokens;
  }

  Expectation expectation() const {
    Expectation expected;
    if (uses_ids()) expected.sent_tokens = static_cast<int64_t>(conversation_.ids.size());
    expected.known_tokens = conversation_.known_tokens(info_.continues_exactly);
    expected.output_tokens = settings_.plan.generated_tokens;
    expected.cold_tokens_per_s = cold_tokens_per_s_;
    return expected;
  }

  static ProcessUsage usage_since(const ProcessUsage& before, ProcessUsage usage) {
    const auto since = [](const auto& earlier, auto& now) {
      if (now && earlier) *now -= *earlier;
      else now.reset();
    };
    since(before.read_bytes, usage.read_bytes);
    since(before.written_bytes, usage.written_bytes);
    since(before.cpu_s, usage.cpu_s);
    return usage;
  }

  void remember(const Generation& seen, const Stage& stage) {
    if (stage.status != StageStatus::kOk) return;
    if (!cold_tokens_per_s_) cold_tokens_per_s_ = stage.prefill_tokens_per_s;
    conversation_.ids.insert(conversation_.ids.end(), seen.ids.begin(), seen.ids.end());
    conversation_.text += seen.text;
    conversation_.prompt_tokens = stage.prompt_tokens;
    conversation_.generated_tokens = stage.output_tokens;
  }

  Target& target_;
  const TargetInfo& info_;
  const SourceText& source_;
  const ProtocolSettings& settings_;
  Observer& observer_;
  Run& run_;
  Conversation conversation_;
  std::optional<double> cold_tokens_per_s_;
};

std::string line_of(const Run& run, const Stage& stage) {
  const std::string where = fmt::format("{} {}, {:>5}:", run.source, run.number, stage.name);
  if (stage.status != StageStatus::kOk) return fmt::format("{} failed: {}", where, stage.error);
  const auto figure = [](const std::optional<double>& value) {
    return value ? fmt::format("{:9.2f}", *value) : std::string("        -");
  };
  return fmt::format("{} {:>7} evaluated  first token {:8.3f} s  prefill {} tok/s  generation {} tok/s", where,
                     stage.evaluated_tokens ? fmt::format("{}", *stage.evaluated_tokens) : "-",
                     stage.first_token_s, figure(stage.prefill_tokens_per_s),
                     figure(stage.generation_f2_tokens_per_s));
}

void mark_not_run(const std::vector<int64_t>& contexts, size_t from, const std::string& why, Run& run) {
  for (size_t step = from; step < contexts.size(); ++step) {
    Stage stage;
    stage.name = stage_name(contexts[step]);
    stage.context_tokens = contexts[step];
    stage.error = why;
    run.stages.push_back(std::move(stage));
  }
}

void run_series(Target& target, const std::vector<int64_t>& contexts, const SourceText& source,
                const ProtocolSettings& settings, const RunTools& tools, RunOutcome& outcome) {
  Run& run = outcome.run;
  if (tools.interrupted()) return mark_not_run(contexts, 0, "interrupted", run);
  Result<TargetInfo> started = target.start();
  if (!started.ok()) {
    run.error = started.error().message;
    tools.say(fmt::format("{} {}: {}", run.source, run.number, run.error));
    mark_not_run(contexts, 0, "the target did not start", run);
    return;
  }
  outcome.info = std::move(started).value();
  SeriesRun series(target, outcome.info, source, settings, tools.observer, run);
  if (const std::string error = series.greet(); !error.empty()) {
    run.error = "greeting: " + error;
    tools.say(fmt::format("{} {}: {}", run.source, run.number, run.error));
    mark_not_run(contexts, 0, "the greeting failed", run);
    return;
  }
  for (size_t step = 0; step < contexts.size(); ++step) {
    if (tools.interrupted()) return mark_not_run(contexts, step, "interrupted", run);
    series.stage(contexts[step]);
    tools.say(line_of(run, run.stages.back()));
    if (run.stages.back().status != StageStatus::kOk) {
      mark_not_run(contexts, step + 1, "the stage before it failed", run);
      return;
    }
  }
}

/// Of a stage that goes on from another.
Variant continuation_of(const Plan& plan, const Stage& stage) {
  const int64_t again = *stage.evaluated_tokens - stage.new_tokens;
  if (again <= (plan.generated_tokens + 1) / 2) return Variant::kHttpIdsExact;
  // A block or two of the prompt may be evaluated again with it.
  if (*stage.evaluated_tokens < stage.prompt_tokens && again <= 2 * plan.generated_tokens + 512)
    return Variant::kHttpIdsReprocessed;
  return Variant::kHttpIdsCold;
}

}  // namespace

std::string stage_name(int64_t context_tokens) {
  if (context_tokens >= 1024 && context_tokens % 1024 == 0) return fmt::format("{}K", context_tokens / 1024);
  return fmt::format("{}", context_tokens);
}

RunOutcome run_protocol(Target& target, const SourceText& source, int32_t number, const ProtocolSettings& settings,
                        const RunTools& tools) {
  RunOutcome outcome;
  outcome.run.source = source.source.name;
  outcome.run.number = number;
  outcome.run.begun = utc_now();
  for (const std::vector<int64_t>& contexts : series_of(settings.plan)) {
    for (const int64_t context_tokens : contexts)
      FATHOM_CHECK(context_tokens <= source.source.tokens, "a prompt of {} tokens of a source of {}",
                   context_tokens, source.source.tokens);
    run_series(target, contexts, source, settings, tools, outcome);
    target.stop();
  }
  outcome.run.is_disturbed = !outcome.run.disturbances.empty();
  return outcome;
}

Variant variant_of(const TargetInfo& info, const Plan& plan, const std::vector<Run>& runs) {
  if (!info.is_http) return Variant::kSession;
  if (!info.takes_ids || !info.gives_ids) return Variant::kHttpText;
  std::optional<Variant> variant;
  for (const Run& run : runs) {
    if (run.is_excluded) continue;
    for (const Stage& stage : run.stages) {
      const bool goes_on = stage.new_tokens < stage.context_tokens;
      if (stage.status != StageStatus::kOk || !goes_on || !stage.cached_tokens_claimed) continue;
      const Variant of_stage = continuation_of(plan, stage);
      if (variant && *variant != of_stage) return Variant::kMixed;
      variant = of_stage;
    }
  }
  return variant.value_or(info.continues_exactly ? Variant::kHttpIdsExact : Variant::kHttpIdsReprocessed);
}

}  // namespace fathom::measure
