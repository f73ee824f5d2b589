#include "measure/quick.h"

#include "measure/figures.h"

namespace fathom::measure {
namespace {

constexpr int64_t kGreetingTokens = 16;

/// BOS and `tokens` - 1 of the source from `skipped` tokens on, which it must have.
GenerateRequest request_for(const TargetInfo& info, const SourceText& source, int64_t tokens, int64_t skipped,
                            int64_t generated_tokens) {
  GenerateRequest request;
  request.max_tokens = static_cast<int32_t>(generated_tokens);
  if (info.takes_ids && info.gives_ids) {
    request.prompt_ids.push_back(source.ids.front());
    request.prompt_ids.insert(request.prompt_ids.end(), source.ids.begin() + 1 + skipped,
                              source.ids.begin() + skipped + tokens);
  } else {
    request.prompt_text = source.text_between(1 + skipped, skipped + tokens);
  }
  return request;
}

/// One repetition; a stage that failed leaves its error.
void add_value(Target& target, const GenerateRequest& request, const std::optional<double> Stage::*figure,
               QuickFigure& line) {
  const Generation seen = target.generate(request);
  Stage stage;
  fill_figures(
      seen,
      {.sent_tokens = static_cast<int64_t>(request.prompt_ids.size()), .output_tokens = request.max_tokens},
      stage);
  if (stage.status == StageStatus::kOk && stage.*figure)
    line.values.push_back(*(stage.*figure));
  else
    line.error = stage.error.empty() ? "the target did not count its tokens" : stage.error;
}

}  // namespace

std::vector<QuickFigure> measure_decode(Target& target, const TargetInfo& info, const SourceText& source,
                                        const QuickSettings& settings) {
  std::vector<QuickFigure> lines;
  for (const int64_t context : settings.context_tokens) {
    QuickFigure& line = lines.emplace_back();
    line.context_tokens = context;
    GenerateRequest request = request_for(info, source, context, 0, settings.generated_tokens);
    request.time_limit = request.silence_limit = settings.time_limit;
    for (int32_t repetition = 0; repetition < settings.repetitions && !settings.interrupted(); ++repetition)
      add_value(target, request, &Stage::generation_f2_tokens_per_s, line);
  }
  return lines;
}

std::vector<QuickFigure> measure_prefill(Target& target, const TargetInfo& info, const SourceText& source,
                                         const QuickSettings& settings) {
  std::vector<QuickFigure> lines;
  int64_t skipped = 0;
  for (const int64_t context : settings.context_tokens) {
    QuickFigure& line = lines.emplace_back();
    line.context_tokens = context;
    for (int32_t repetition = 0; repetition < settings.repetitions && !settings.interrupted(); ++repetition) {
      target.clear_state();
      GenerateRequest request = request_for(info, source, context, skipped++, 1);
      request.time_limit = request.silence_limit = settings.time_limit;
      add_value(target, request, &Stage::prefill_tokens_per_s, line);
    }
  }
  return lines;
}

LoadFigures measure_load(const std::function<std::unique_ptr<Target>()>& make_target, const SourceText& source,
                         const QuickSettings& settings) {
  LoadFigures figures;
  for (int32_t repetition = 0; repetition < settings.repetitions && !settings.interrupted(); ++repetition) {
    const std::unique_ptr<Target> target = make_target();
    const int64_t begin_ns = monotonic_ns();
    const Result<TargetInfo> info = target->start();
    const int64_t ready_ns = monotonic_ns();
    if (!info.ok()) {
      figures.error = info.error().message;
      continue;
    }
    figures.ready_s.push_back(static_cast<double>(ready_ns - begin_ns) * 1e-9);
    const Generation seen = target->generate(request_for(*info, source, kGreetingTokens, 0, 1));
    if (seen.error.empty() && !seen.token_ns.empty())
      figures.first_token_s.push_back(static_cast<double>(seen.token_ns.front() - seen.sent_ns) * 1e-9);
    else
      figures.error = seen.error;
    if (const ProcessUsage usage = target->usage(); usage.resident_peak_bytes)
      figures.resident_peak_bytes.push_back(static_cast<double>(*usage.resident_peak_bytes));
    target->stop();
  }
  return figures;
}

}  // namespace fathom::measure
