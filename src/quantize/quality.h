// How well a model predicts a text, and how far its predictions are from another's; docs/eval.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom {

/// One token that was predicted. Natural logarithms.
struct TokenQuality {
  double nll = 0;            // -log p(token)
  double reference_nll = 0;  // the rest: only with a reference
  double divergence = 0;     // KL(reference || model) of the whole distribution
  bool same_top = false;     // both find the same token most likely; ties go to the lower id
};

/// `logits` [vocab] of the model, `reference` [vocab] logits or log-probabilities (they are normalised
/// anew), or empty. All finite.
TokenQuality judge_token(std::span<const float> logits, std::span<const float> reference, int32_t token);

/// A mean over tokens and two standard errors of it: as if tokens were independent, and from a bootstrap that
/// draws whole windows, whose tokens are not. NaN where there are too few (below two).
struct Estimate {
  double value = 0;
  double error = 0;
  double window_error = 0;
};

struct Quality {
  int64_t tokens = 0;
  int64_t windows = 0;
  bool has_reference = false;
  Estimate nll;
  Estimate perplexity;  // exp(nll); its errors are those of nll times it
  // Only with a reference.
  Estimate reference_nll;
  Estimate reference_perplexity;
  Estimate nll_difference;  // paired: model - reference
  Estimate divergence;
  double divergence_median = 0;
  double divergence_p99 = 0;
  double divergence_max = 0;
  Estimate same_top;                // fraction of tokens
  Estimate probability_difference;  // p_model - p_reference of the token
};

/// Collects tokens window by window. Memory: 40 bytes a token.
class QualityMeter {
 public:
  explicit QualityMeter(bool has_reference) : has_reference_(has_reference) {}
  void begin_window() { window_begins_.push_back(tokens_.size()); }
  void add(const TokenQuality& token) { tokens_.push_back(token); }
  Quality summary() const;

 private:
  template <class Value>
  Estimate estimate(const Value& value) const;

  bool has_reference_;
  std::vector<TokenQuality> tokens_;
  std::vector<size_t> window_begins_;
};

}  // namespace fathom
