#include <algorithm>

#include "measure/compare.h"
#include "measure/compare_places.h"

namespace fathom::measure {
namespace {

/// Nothing where outputs cannot be compared: of ids here and of text there, or unknown.
struct Meeting {
  bool is_equal = false;
  std::optional<int64_t> divergence;  // where ids part
};

std::optional<Meeting> meeting_of(const Stage& a, const Stage& b) {
  if (a.output_ids.empty() != b.output_ids.empty()) return std::nullopt;
  if (a.output_ids.empty()) {
    if (a.output_sha256.empty() || b.output_sha256.empty()) return std::nullopt;
    return Meeting{.is_equal = a.output_sha256 == b.output_sha256};
  }
  const auto [left, right] =
      std::mismatch(a.output_ids.begin(), a.output_ids.end(), b.output_ids.begin(), b.output_ids.end());
  if (left == a.output_ids.end() && right == b.output_ids.end()) return Meeting{.is_equal = true};
  return Meeting{.divergence = left - a.output_ids.begin()};
}

/// Stages whose texts and outputs the stage's prompt holds.
std::vector<const Stage*> stages_before(const RunStage& one) {
  std::vector<const Stage*> before;
  for (const Stage& stage : one.run->stages) {
    if (stage.new_tokens == stage.context_tokens) before.clear();
    if (&stage == one.stage) break;
    before.push_back(&stage);
  }
  return before;
}

/// Both went through the same lengths and generated the same before.
bool had_equal_prompts(const RunStage& a, const RunStage& b) {
  const std::vector<const Stage*> before_a = stages_before(a), before_b = stages_before(b);
  return a.stage->context_tokens == b.stage->context_tokens &&
         std::equal(before_a.begin(), before_a.end(), before_b.begin(), before_b.end(),
                    [](const Stage* x, const Stage* y) {
                      const std::optional<Meeting> meeting = meeting_of(*x, *y);
                      return x->context_tokens == y->context_tokens && meeting && meeting->is_equal;
                    });
}

void count_pair(const RunStage& a, const RunStage& b, OutputAgreement& agreement) {
  const std::optional<Meeting> meeting = meeting_of(*a.stage, *b.stage);
  if (!meeting) return;
  if (!had_equal_prompts(a, b)) {
    ++agreement.other_prompts;
    return;
  }
  ++agreement.pairs;
  if (meeting->is_equal) ++agreement.equal_pairs;
  if (!meeting->divergence) return;
  agreement.first_divergence = std::min(agreement.first_divergence.value_or(INT64_MAX), *meeting->divergence);
}

bool have_other_texts(const BenchResult& a, const BenchResult& b, const std::string& source) {
  const auto hash_of = [&](const BenchResult& result) {
    for (const Source& one : result.plan.sources)
      if (one.name == source) return one.sha256;
    return std::string();
  };
  const std::string hash_a = hash_of(a), hash_b = hash_of(b);
  return !hash_a.empty() && !hash_b.empty() && hash_a != hash_b;
}

}  // namespace

std::vector<OutputAgreement> agreements_of(std::span<const BenchResult> results) {
  std::vector<OutputAgreement> agreements;
  const Places places(results);
  const auto keep = [&](const OutputAgreement& agreement) {
    if (agreement.pairs + agreement.other_prompts > 0) agreements.push_back(agreement);
  };
  for (const Place& place : places.all()) {
    for (size_t result = 0; result < results.size(); ++result) {
      const std::vector<RunStage> stages = whole_stages(results[result], place);
      OutputAgreement within{.source = place.source, .stage = place.stage, .result = result};
      for (size_t run = 1; run < stages.size(); ++run)
        for (size_t other = 0; other < run; ++other) count_pair(stages[other], stages[run], within);
      keep(within);
      if (result == 0 || have_other_texts(results[0], results[result], place.source)) continue;
      OutputAgreement between{
          .source = place.source, .stage = place.stage, .result = result, .is_with_first = true};
      for (const RunStage& first : whole_stages(results[0], place))
        for (const RunStage& stage : stages) count_pair(first, stage, between);
      keep(between);
    }
  }
  return agreements;
}

}  // namespace fathom::measure
