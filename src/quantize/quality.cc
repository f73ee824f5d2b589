#include "quantize/quality.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace fathom {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr int kResamples = 1000;

double log_sum(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

ptrdiff_t top(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

// A value at `fraction` of the way through sorted values, between neighbours by their distance.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Spread of the mean when windows are drawn with replacement, as many as there are. The generator's seed is
// fixed, so that the same tokens give the same error; the draw takes no library distribution, which would
// differ between standard libraries.
double bootstrap_error(std::span<const double> sums, std::span<const double> counts) {
  if (sums.size() < 2) return kUnknown;
  std::mt19937_64 random(1);
  double total = 0, squares = 0;
  for (int resample = 0; resample < kResamples; ++resample) {
    double sum = 0, count = 0;
    for (size_t draw = 0; draw < sums.size(); ++draw) {
      const size_t window = static_cast<size_t>(random() % sums.size());
      sum += sums[window];
      count += counts[window];
    }
    const double mean = sum / count;
    total += mean;
    squares += mean * mean;
  }
  const double mean = total / kResamples;
  return std::sqrt(std::max(0.0, squares / kResamples - mean * mean) * kResamples / (kResamples - 1));
}

Estimate exponential(const Estimate& logarithm) {
  const double value = std::exp(logarithm.value);
  return {.value = value, .error = value * logarithm.error, .window_error = value * logarithm.window_error};
}

}  // namespace

TokenQuality judge_token(std::span<const float> logits, std::span<const float> reference, int32_t token) {
  const auto which = static_cast<size_t>(token);
  const double sum = log_sum(logits);
  TokenQuality quality{.nll = sum - static_cast<double>(logits[which])};
  if (reference.empty()) return quality;
  const double reference_sum = log_sum(reference);
  quality.reference_nll = reference_sum - static_cast<double>(reference[which]);
  for (size_t id = 0; id < logits.size(); ++id) {
    const double logprob = static_cast<double>(reference[id]) - reference_sum;
    quality.divergence += std::exp(logprob) * (logprob - (static_cast<double>(logits[id]) - sum));
  }
  quality.divergence = std::max(quality.divergence, 0.0);  // rounding alone can take it below
  quality.same_top = top(logits) == top(reference);
  return quality;
}

template <class Value>
Estimate QualityMeter::estimate(const Value& value) const {
  const auto count = static_cast<double>(tokens_.size());
  if (tokens_.empty()) return {kUnknown, kUnknown, kUnknown};
  std::vector<double> sums, counts;
  double total = 0;
  for (size_t window = 0; window < window_begins_.size(); ++window) {
    const size_t end = window + 1 < window_begins_.size() ? window_begins_[window + 1] : tokens_.size();
    double sum = 0;
    for (size_t index = window_begins_[window]; index < end; ++index) sum += value(tokens_[index]);
    sums.push_back(sum);
    counts.push_back(static_cast<double>(end - window_begins_[window]));
    total += sum;
  }
  Estimate result{.value = total / count, .error = kUnknown, .window_error = bootstrap_error(sums, counts)};
  if (tokens_.size() < 2) return result;
  double squares = 0;
  for (const TokenQuality& token : tokens_) {
    const double distance = value(token) - result.value;
    squares += distance * distance;
  }
  result.error = std::sqrt(squares / (count - 1) / count);
  return result;
}

Quality QualityMeter::summary() const {
  using Token = const TokenQuality&;
  Quality quality{.tokens = static_cast<int64_t>(tokens_.size()),
                  .windows = static_cast<int64_t>(window_begins_.size()),
                  .has_reference = has_reference_};
  quality.nll = estimate([](Token token) { return token.nll; });
  quality.perplexity = exponential(quality.nll);
  if (!has_reference_ || tokens_.empty()) return quality;
  quality.reference_nll = estimate([](Token token) { return token.reference_nll; });
  quality.reference_perplexity = exponential(quality.reference_nll);
  quality.nll_difference = estimate([](Token token) { return token.nll - token.reference_nll; });
  quality.divergence = estimate([](Token token) { return token.divergence; });
  quality.same_top = estimate([](Token token) { return token.same_top ? 1.0 : 0.0; });
  quality.probability_difference =
      estimate([](Token token) { return std::exp(-token.nll) - std::exp(-token.reference_nll); });
  std::vector<double> divergences;
  for (Token token : tokens_) divergences.push_back(token.divergence);
  std::sort(divergences.begin(), divergences.end());
  quality.divergence_median = quantile(divergences, 0.5);
  quality.divergence_p99 = quantile(divergences, 0.99);
  quality.divergence_max = divergences.back();
  return quality;
}

}  // namespace fathom
