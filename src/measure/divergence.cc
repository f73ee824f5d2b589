#include "measure/divergence.h"

#include <algorithm>

namespace fathom::measure {
namespace {

const Stage* stage_of(const Run& run, int64_t context_tokens) {
  for (const Stage& stage : run.stages)
    if (stage.context_tokens == context_tokens && stage.status == StageStatus::kOk && !stage.output_ids.empty())
      return &stage;
  return nullptr;
}

/// Stages whose prompts hold the stage's ids, the stage itself last: those of one process.
std::vector<const Stage*> series_up_to(const Run& run, const Stage& last) {
  std::vector<const Stage*> series;
  for (const Stage& stage : run.stages) {
    const bool begins = stage.new_tokens == stage.context_tokens;
    if (begins) series.clear();
    series.push_back(&stage);
    if (&stage == &last) break;
  }
  return series;
}

/// The ids that were sent for the stage, and those generated before `token`.
std::vector<int32_t> ids_before(const SourceText& source, const Run& run, const Stage& last, int64_t token) {
  std::vector<int32_t> ids;
  int64_t used = 0;
  for (const Stage* stage : series_up_to(run, last)) {
    ids.insert(ids.end(), source.ids.begin() + used, source.ids.begin() + stage->context_tokens);
    used = stage->context_tokens;
    const int64_t count = stage == &last ? token : static_cast<int64_t>(stage->output_ids.size());
    ids.insert(ids.end(), stage->output_ids.begin(), stage->output_ids.begin() + count);
  }
  return ids;
}

bool had_equal_prompts(const Run& a, const Stage& stage_a, const Run& b, const Stage& stage_b) {
  const std::vector<const Stage*> before_a = series_up_to(a, stage_a), before_b = series_up_to(b, stage_b);
  return before_a.size() == before_b.size() &&
         std::equal(before_a.begin(), before_a.end() - 1, before_b.begin(),
                    [](const Stage* x, const Stage* y) { return x->output_ids == y->output_ids; });
}

}  // namespace

std::vector<Divergence> divergences_of(const std::vector<Run>& runs) {
  std::vector<Divergence> found;
  for (size_t first = 0; first < runs.size(); ++first) {
    const Run& a = runs[first];
    const bool is_first_of_source =
        std::none_of(runs.begin(), runs.begin() + static_cast<ptrdiff_t>(first),
                     [&](const Run& run) { return !run.is_excluded && run.source == a.source; });
    if (a.is_excluded || !is_first_of_source) continue;
    for (const Stage& stage_a : a.stages)
      for (size_t other = first + 1; other < runs.size(); ++other) {
        const Run& b = runs[other];
        if (b.is_excluded || b.source != a.source || stage_of(a, stage_a.context_tokens) != &stage_a) continue;
        const Stage* stage_b = stage_of(b, stage_a.context_tokens);
        if (stage_b == nullptr || !had_equal_prompts(a, stage_a, b, *stage_b)) continue;
        const auto [at_a, at_b] = std::mismatch(stage_a.output_ids.begin(), stage_a.output_ids.end(),
                                                stage_b->output_ids.begin(), stage_b->output_ids.end());
        if (at_a == stage_a.output_ids.end() || at_b == stage_b->output_ids.end()) continue;
        found.push_back({.source = a.source,
                         .stage = stage_a.name,
                         .run_a = a.number,
                         .run_b = b.number,
                         .token = at_a - stage_a.output_ids.begin(),
                         .id_a = *at_a,
                         .id_b = *at_b});
        break;
      }
  }
  return found;
}

std::string fill_margin(Target& target, const SourceText& source, const std::vector<Run>& runs,
                        Divergence& divergence) {
  for (const Run& run : runs) {
    if (run.is_excluded || run.source != divergence.source || run.number != divergence.run_a) continue;
    for (const Stage& stage : run.stages) {
      if (stage.name != divergence.stage) continue;
      const Result<std::vector<TokenLogprob>> best =
          target.next_logprobs(ids_before(source, run, stage, divergence.token), 20);
      if (!best.ok()) return best.error().message;
      for (const TokenLogprob& token : *best) {
        if (token.id == divergence.id_a) divergence.logprob_a = token.logprob;
        if (token.id == divergence.id_b) divergence.logprob_b = token.logprob;
      }
      return "";
    }
  }
  return "no such run";
}

}  // namespace fathom::measure
