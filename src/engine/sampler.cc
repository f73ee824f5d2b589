#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kBanBias = -100;      // what clients of the OpenAI API send to ban a token
constexpr float kLargestBias = 1e4f;  // keeps biased logits finite

// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes every bit into every other.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

template <class Number>
Result<void> check_range(const char* name, Number value, Number low, Number high) {
  if (!(value >= low && value <= high))  // also refuses NaN
    return Error::invalid("{}: expected {} to {}, found {}", name, low, high, value);
  return {};
}

Result<void> check_finite(std::span<const float> logits) {
  if (logits.empty()) return Error::invalid("no logits");
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id]))
      return Error::bad_pack("the logit of token {} is {}: weights or state are damaged", id, logits[id]);
  }
  return {};
}

bool falls(const TokenProbability& a, const TokenProbability& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

// Natural logarithm of the sum of exp(logits).
double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

}  // namespace

double uniform_draw(uint64_t seed, int64_t position) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  const uint64_t bits = mix(mix(seed + kGolden) + kGolden * (static_cast<uint64_t>(position) + 1));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Result<void> Sampler::check(const SamplerOptions& options, int32_t vocab_size) {
  constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
  if (vocab_size <= 0) return Error::invalid("vocabulary size: expected at least 1, found {}", vocab_size);
  FATHOM_TRY(check_range("temperature", options.temperature, 0.0f, 1e6f));
  FATHOM_TRY(check_range("top_k", options.top_k, 0, kMaxInt));
  FATHOM_TRY(check_range("top_p", options.top_p, std::numeric_limits<float>::min(), 1.0f));
  FATHOM_TRY(check_range("min_p", options.min_p, 0.0f, 1.0f));
  FATHOM_TRY(check_range("repeat_penalty", options.repeat_penalty, 0.01f, 100.0f));
  FATHOM_TRY(check_range("presence_penalty", options.presence_penalty, -100.0f, 100.0f));
  FATHOM_TRY(check_range("frequency_penalty", options.frequency_penalty, -100.0f, 100.0f));
  FATHOM_TRY(check_range("repeat_last_n", options.repeat_last_n, -1, kMaxInt));
  FATHOM_TRY(check_range("prompt_tokens", options.prompt_tokens, int64_t{0}, int64_t{1} << 62));
  for (const LogitBias& bias : options.bias) {
    FATHOM_TRY(check_range("logit bias: token id", bias.id, 0, vocab_size - 1));
    FATHOM_TRY(check_range("logit bias", bias.bias, kBanned, kLargestBias));
  }
  return {};
}

Result<Sampler> Sampler::make(SamplerOptions options, int32_t vocab_size) {
  FATHOM_TRY(check(options, vocab_size));
  return Sampler(std::move(options), vocab_size);
}

Sampler::Sampler(SamplerOptions options, int32_t vocab_size)
    : options_(std::move(options)),
      logits_(static_cast<size_t>(vocab_size)),
      counts_(static_cast<size_t>(vocab_size)) {}

void Sampler::apply_bias() {
  for (const LogitBias& bias : options_.bias) {
    float& logit = logits_[static_cast<size_t>(bias.id)];
    logit = bias.bias <= kBanBias ? kBanned : logit + bias.bias;
  }
}

void Sampler::apply_allowed(std::span<const uint64_t> allowed) {
  for (size_t word = 0; word < allowed.size(); ++word) {
    if (allowed[word] == ~uint64_t{0}) continue;
    const size_t end = std::min(logits_.size(), (word + 1) * 64);
    for (size_t id = word * 64; id < end; ++id)
      if ((allowed[word] >> (id % 64) & 1) == 0) logits_[id] = kBanned;
  }
}

// Two walks over the window and no map: the first counts, the second applies and clears each count.
void Sampler::apply_penalties(std::span<const int32_t> tokens) {
  const bool additive = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
  if (options_.repeat_penalty == 1 && !additive) return;
  const auto total = static_cast<int64_t>(tokens.size());
  const int64_t begin = options_.repeat_last_n < 0 ? 0 : std::max<int64_t>(0, total - options_.repeat_last_n);
  constexpr int32_t kSeen = 1 << 30;  // in the window; the bits below count occurrences after the prompt

  for (int64_t position = begin; position < total; ++position) {
    const auto id = static_cast<size_t>(tokens[static_cast<size_t>(position)]);
    if (id >= counts_.size()) continue;
    counts_[id] |= kSeen;
    if (position >= options_.prompt_tokens) ++counts_[id];
  }
  for (int64_t position = begin; position < total; ++position) {
    const auto id = static_cast<size_t>(tokens[static_cast<size_t>(position)]);
    if (id >= counts_.size() || counts_[id] == 0) continue;
    const int32_t count = counts_[id] & ~kSeen;
    counts_[id] = 0;
    float& logit = logits_[id];
    logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    if (count > 0) {
      logit -= options_.presence_penalty;
      logit -= options_.frequency_penalty * static_cast<float>(count);
    }
  }
}

// Candidates with weights exp((logit - largest) / temperature); the largest has weight 1.
void Sampler::gather_candidates() {
  const double largest = *std::max_element(logits_.begin(), logits_.end());
  const double scale = 1.0 / static_cast<double>(options_.temperature);
  candidates_.clear();
  for (size_t id = 0; id < logits_.size(); ++id) {
    if (logits_[id] == kBanned) continue;
    // The difference first: with a tiny temperature the product may overflow, the difference is then 0 or
    // -infinity after scaling, never NaN.
    const double below = static_cast<double>(logits_[id]) - largest;
    candidates_.push_back({static_cast<int32_t>(id), below == 0 ? 1.0 : std::exp(below * scale)});
  }
  sorted_ = false;
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  std::partial_sort(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), falls);
  candidates_.resize(k);
  sorted_ = true;
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  for (const TokenProbability& candidate : candidates_) total += candidate.probability;
  const double goal = total * static_cast<double>(options_.top_p);
  // Sorts only as far as the sum needs: usually a few of 129,280.
  size_t sorted = sorted_ ? candidates_.size() : 0;
  size_t kept = 0;
  double sum = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < goal)) {
    if (kept == sorted) {
      sorted = std::min(candidates_.size(), 64 + 4 * sorted);
      std::partial_sort(candidates_.begin() + static_cast<ptrdiff_t>(kept),
                        candidates_.begin() + static_cast<ptrdiff_t>(sorted), candidates_.end(), falls);
    }
    sum += candidates_[kept++].probability;
  }
  candidates_.resize(kept);
  sorted_ = true;
}

void Sampler::keep_min_p() {
  const auto limit = static_cast<double>(options_.min_p);  // of the largest, whose weight is 1
  std::erase_if(candidates_, [&](const TokenProbability& choice) { return choice.probability < limit; });
}

void Sampler::normalise() {
  double total = 0;
  for (const TokenProbability& candidate : candidates_) total += candidate.probability;
  for (TokenProbability& candidate : candidates_) candidate.probability /= total;
}

Result<std::span<const TokenProbability>> Sampler::distribution(std::span<const float> logits,
                                                                std::span<const int32_t> tokens,
                                                                std::span<const uint64_t> allowed) {
  if (logits.size() != logits_.size())
    return Error::invalid("logits: expected {}, found {}", logits_.size(), logits.size());
  const size_t words = (logits_.size() + 63) / 64;
  if (!allowed.empty() && allowed.size() != words)
    return Error::invalid("allowed tokens: expected {} words, found {}", words, allowed.size());
  FATHOM_TRY(check_finite(logits));
  std::copy(logits.begin(), logits.end(), logits_.begin());
  apply_bias();
  apply_allowed(allowed);
  apply_penalties(tokens);
  const auto best = std::max_element(logits_.begin(), logits_.end());
  if (*best == kBanned)
    return allowed.empty() ? Error::invalid("logit bias bans every token")
                           : Error::invalid("no token may come next: the form of the answer, bans and logit bias "
                                            "together leave none");
  if (options_.temperature == 0) {
    candidates_.assign(1, {static_cast<int32_t>(best - logits_.begin()), 1.0});
    return std::span<const TokenProbability>(candidates_);
  }
  gather_candidates();
  keep_top_k();
  keep_top_p();
  keep_min_p();
  normalise();
  return std::span<const TokenProbability>(candidates_);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> tokens,
                                std::span<const uint64_t> allowed) {
  FATHOM_ASSIGN(const std::span<const TokenProbability> choices, distribution(logits, tokens, allowed));
  double rest = uniform_draw(options_.seed, static_cast<int64_t>(tokens.size()));
  for (const TokenProbability& choice : choices) {
    rest -= choice.probability;
    if (rest < 0) return choice.id;
  }
  // Rounding left a crumb: it belongs to the last token that can be drawn at all.
  for (size_t index = choices.size(); index-- > 0;) {
    if (choices[index].probability > 0) return choices[index].id;
  }
  return Error::internal("no token has a probability above 0");
}

Result<int32_t> argmax(std::span<const float> logits, std::span<const int32_t> excluded) {
  FATHOM_TRY(check_finite(logits));
  int64_t best = -1;
  for (int64_t id = 0; id < static_cast<int64_t>(logits.size()); ++id) {
    if (best >= 0 && logits[static_cast<size_t>(id)] <= logits[static_cast<size_t>(best)]) continue;
    if (std::find(excluded.begin(), excluded.end(), static_cast<int32_t>(id)) == excluded.end()) best = id;
  }
  if (best < 0) return Error::invalid("every token is excluded");
  return static_cast<int32_t>(best);
}

Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, int64_t count) {
  FATHOM_TRY(check_finite(logits));
  if (count < 0) return Error::invalid("number of log-probabilities: expected at least 0, found {}", count);
  const auto kept = std::min(static_cast<size_t>(count), logits.size());
  std::vector<int32_t> ids(logits.size());
  for (size_t id = 0; id < ids.size(); ++id) ids[id] = static_cast<int32_t>(id);
  const auto better = [&](int32_t a, int32_t b) {
    const float logit_a = logits[static_cast<size_t>(a)], logit_b = logits[static_cast<size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(kept), ids.end(), better);
  const double norm = log_sum_exp(logits);
  std::vector<TokenLogprob> best;
  for (size_t rank = 0; rank < kept; ++rank)
    best.push_back({ids[rank], static_cast<double>(logits[static_cast<size_t>(ids[rank])]) - norm});
  return best;
}

Result<double> token_logprob(std::span<const float> logits, int32_t id) {
  FATHOM_TRY(check_finite(logits));
  FATHOM_TRY(
      check_range("token id", static_cast<int64_t>(id), int64_t{0}, static_cast<int64_t>(logits.size()) - 1));
  return static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum_exp(logits);
}

}  // namespace fathom
