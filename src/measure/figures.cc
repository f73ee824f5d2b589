#include "measure/figures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "base/sha256.h"
#include "measure/statistics.h"

namespace fathom::measure {
namespace {

// The first tokens of a process may stall for reasons of their own: they are shown, not averaged.
constexpr size_t kFirstTokens = 4;

double seconds(int64_t from_ns, int64_t to_ns) { return static_cast<double>(to_ns - from_ns) * 1e-9; }

/// "" or why nothing can be made of it.
std::string contradiction(const Generation& seen, const Expectation& expectation) {
  if (!seen.error.empty()) return seen.error;
  const auto tokens = static_cast<int64_t>(seen.token_ns.size());
  if (!seen.ids.empty() && seen.ids.size() != seen.token_ns.size())
    return fmt::format("expected one time for each of the {} ids, found {}", seen.ids.size(), tokens);
  const int64_t produced = seen.ids.empty() ? seen.claimed_output_tokens.value_or(tokens) : tokens;
  if (produced != expectation.output_tokens || tokens == 0)
    return fmt::format("expected {} tokens, found {} (it ended with \"{}\")", expectation.output_tokens, produced,
                       seen.finish_reason);
  if (expectation.sent_tokens > 0 && seen.claimed_prompt_tokens.value_or(expectation.sent_tokens) !=
                                         expectation.sent_tokens)
    return fmt::format("expected a prompt of {} tokens, the target counted {}", expectation.sent_tokens,
                       *seen.claimed_prompt_tokens);
  if (!std::is_sorted(seen.token_ns.begin(), seen.token_ns.end()) || seen.token_ns.front() <= seen.sent_ns)
    return "expected times that rise from sending to the last token, found others";
  const int64_t prompt_tokens = seen.claimed_prompt_tokens.value_or(expectation.sent_tokens);
  // The last token of a prompt is always evaluated: its logits are needed.
  if (seen.claimed_cached_tokens &&
      (*seen.claimed_cached_tokens < 0 || *seen.claimed_cached_tokens >= prompt_tokens))
    return fmt::format("expected fewer cached tokens than the prompt's {}, the target claimed {}", prompt_tokens,
                       *seen.claimed_cached_tokens);
  if (seen.prefill_end_ns &&
      (*seen.prefill_end_ns < seen.sent_ns || *seen.prefill_end_ns > seen.token_ns.front()))
    return "expected the end of prefill between sending and the first token, found another time";
  return "";
}

void fill_prefill(const Generation& seen, const Expectation& expectation, Stage& stage) {
  stage.prompt_tokens = seen.claimed_prompt_tokens.value_or(expectation.sent_tokens);
  stage.cached_tokens_claimed = seen.claimed_cached_tokens;
  if (stage.prompt_tokens > 0)
    stage.evaluated_tokens = stage.prompt_tokens - seen.claimed_cached_tokens.value_or(expectation.known_tokens);
  stage.first_token_s = seconds(seen.sent_ns, seen.token_ns.front());
  if (stage.evaluated_tokens)
    stage.prefill_tokens_per_s = static_cast<double>(*stage.evaluated_tokens) / stage.first_token_s;
  if (expectation.cold_tokens_per_s && stage.prompt_tokens > 0) {
    const double evaluated = stage.first_token_s * *expectation.cold_tokens_per_s;
    const double kept = std::clamp(static_cast<double>(stage.prompt_tokens) - evaluated, 0.0,
                                   static_cast<double>(stage.prompt_tokens));
    stage.cached_tokens_implied = std::llround(kept);
  }
}

void fill_generation(const Generation& seen, int64_t prefill_end_ns, Stage& stage) {
  const std::vector<int64_t>& times = seen.token_ns;
  const GenerationRates rates = generation_rates(seen, stage.output_tokens);
  stage.generation_f1_tokens_per_s = rates.f1_tokens_per_s;
  stage.generation_f2_tokens_per_s = rates.f2_tokens_per_s;
  stage.total_s = seconds(seen.sent_ns, times.back());

  std::vector<double> gaps_ms;  // [tokens], the first from the end of prefill
  gaps_ms.reserve(times.size());
  for (size_t token = 0; token < times.size(); ++token)
    gaps_ms.push_back(seconds(token == 0 ? prefill_end_ns : times[token - 1], times[token]) * 1e3);
  const size_t first = std::min(kFirstTokens, gaps_ms.size());
  stage.first_gaps_ms.assign(gaps_ms.begin(), gaps_ms.begin() + static_cast<ptrdiff_t>(first));
  const std::span<const double> later(gaps_ms.data() + first, gaps_ms.size() - first);
  if (later.empty()) return;
  stage.gap_p50_ms = percentile(later, 0.5);
  stage.gap_p90_ms = percentile(later, 0.9);
  stage.gap_p99_ms = percentile(later, 0.99);
  stage.gap_max_ms = *std::max_element(later.begin(), later.end());
}

}  // namespace

GenerationRates generation_rates(const Generation& seen, int64_t tokens) {
  const int64_t first_ns = seen.token_ns.front(), last_ns = seen.token_ns.back();
  if (last_ns <= first_ns || tokens < 2) return {};
  const auto counted = static_cast<double>(tokens);
  return {counted / seconds(seen.prefill_end_ns.value_or(first_ns), last_ns),
          (counted - 1) / seconds(first_ns, last_ns)};
}

std::string output_hash(const Generation& generation) {
  static_assert(std::endian::native == std::endian::little);
  if (generation.ids.empty()) return hex_string(sha256(std::as_bytes(std::span(generation.text))));
  return hex_string(sha256(std::as_bytes(std::span(generation.ids))));
}

void fill_figures(const Generation& generation, const Expectation& expectation, Stage& stage) {
  stage.error = contradiction(generation, expectation);
  stage.status = stage.error.empty() ? StageStatus::kOk : StageStatus::kFailed;
  stage.finish_reason = generation.finish_reason;
  stage.output_ids = generation.ids;
  if (!stage.error.empty()) return;

  stage.output_tokens = expectation.output_tokens;
  stage.output_sha256 = output_hash(generation);
  stage.claimed_prefill_s = generation.claimed_prefill_s;
  stage.claimed_decode_s = generation.claimed_decode_s;
  fill_prefill(generation, expectation, stage);
  fill_generation(generation, generation.prefill_end_ns.value_or(generation.token_ns.front()), stage);
}

}  // namespace fathom::measure
