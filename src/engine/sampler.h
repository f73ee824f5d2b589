// Chooses the next token from the logits, and tells probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace fathom {

struct LogitBias {
  int32_t id = 0;
  float bias = 0;  // -100 and below, and -infinity, ban the token
  bool operator==(const LogitBias&) const = default;
};

struct SamplerOptions {
  float temperature = 1;        // 0: the most likely token
  int32_t top_k = 0;            // 0: all
  float top_p = 0.95f;          // in (0, 1]; 1: all
  float min_p = 0;              // in [0, 1], of the most likely token's probability
  float repeat_penalty = 1;     // in [0.01, 100]
  float presence_penalty = 0;   // in [-100, 100]
  float frequency_penalty = 0;  // in [-100, 100]
  int32_t repeat_last_n = 64;   // the newest tokens that count as seen; -1: all
  int64_t prompt_tokens = 0;    // the first tokens, which presence and frequency do not count
  uint64_t seed = 0;
  std::vector<LogitBias> bias;
  bool operator==(const SamplerOptions&) const = default;
};

struct TokenProbability {
  int32_t id;
  double probability;
};

/// A uniform number in [0, 1) with 53 random bits that depends on nothing but its arguments. So the token at
/// a position is the same whatever was speculated, batched or drawn before, on any number of threads.
double uniform_draw(uint64_t seed, int64_t position);

/// Order of the steps, each on what the one before left:
///   1. bias: added; a banned token is gone, and so is one whose bit in `allowed` is not set.
///   2. penalties, on tokens seen: logit > 0 ? logit / repeat : logit * repeat; then, counted after the
///      prompt, - presence - frequency * count.
///   3. temperature 0: the largest logit, ties to the lower id, and done. Otherwise logits / temperature.
///   4. top_k: the k largest.
///   5. top_p: after softmax, the fewest of the largest whose sum reaches p; at least one.
///   6. min_p: those with at least p times the largest probability.
///   7. the draw, from what is left in its own proportions.
/// Equal logits count as ordered by id. One thread at a time uses a Sampler; it keeps no memory of draws.
class Sampler {
 public:
  /// kInvalidArgument names the option that is out of range.
  static Result<void> check(const SamplerOptions& options, int32_t vocab_size);
  static Result<Sampler> make(SamplerOptions options, int32_t vocab_size);

  /// The token at position tokens.size(); `logits` [vocab_size]. `allowed`: [ceil(vocab_size / 64)], id i is bit
  /// i % 64 of word i / 64; empty: all. Errors: a logit that is not finite (kBadPack: weights or state are
  /// damaged), no token left (kInvalidArgument).
  Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> tokens,
                         std::span<const uint64_t> allowed = {});

  /// What sample() draws from: at least one token, probabilities that sum to 1. Valid until the next call.
  Result<std::span<const TokenProbability>> distribution(std::span<const float> logits,
                                                         std::span<const int32_t> tokens,
                                                         std::span<const uint64_t> allowed = {});

  const SamplerOptions& options() const { return options_; }

 private:
  Sampler(SamplerOptions options, int32_t vocab_size);
  void apply_bias();
  void apply_allowed(std::span<const uint64_t> allowed);
  void apply_penalties(std::span<const int32_t> tokens);
  void gather_candidates();
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void normalise();

  SamplerOptions options_;
  std::vector<float> logits_;    // [vocab]
  std::vector<int32_t> counts_;  // [vocab] zero between calls; see apply_penalties
  std::vector<TokenProbability> candidates_;
  bool sorted_ = false;  // candidates_ by falling probability
};

/// Largest logit whose id is not in `excluded`; ties to the lower id.
Result<int32_t> argmax(std::span<const float> logits, std::span<const int32_t> excluded = {});

struct TokenLogprob {
  int32_t id;
  double logprob;
};
/// The `count` most likely tokens, best first, with natural log-probabilities of the logits as they are,
/// summed in double.
Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, int64_t count);
Result<double> token_logprob(std::span<const float> logits, int32_t id);

}  // namespace fathom
