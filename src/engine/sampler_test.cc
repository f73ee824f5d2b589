#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace fathom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Logits whose softmax is exactly these numbers.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double probability : probabilities) logits.push_back(static_cast<float>(std::log(probability)));
  return logits;
}

// No filter unless a test sets one.
SamplerOptions plain() {
  SamplerOptions options;
  options.top_p = 1;
  return options;
}

Sampler make(const SamplerOptions& options, size_t vocab) {
  Result<Sampler> sampler = Sampler::make(options, static_cast<int32_t>(vocab));
  EXPECT_TRUE(sampler.ok()) << sampler.error().message;
  return std::move(sampler).value();
}

std::map<int32_t, double> kept(const SamplerOptions& options, const std::vector<float>& logits,
                               const std::vector<int32_t>& tokens = {}) {
  Sampler sampler = make(options, logits.size());
  const auto choices = sampler.distribution(logits, tokens);
  EXPECT_TRUE(choices.ok()) << choices.error().message;
  std::map<int32_t, double> result;
  for (const TokenProbability& choice : *choices) result[choice.id] = choice.probability;
  return result;
}

std::vector<int32_t> ids_of(const std::map<int32_t, double>& choices) {
  std::vector<int32_t> ids;
  for (const auto& [id, probability] : choices) ids.push_back(id);
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  SamplerOptions options = plain();
  options.temperature = 0;
  Sampler sampler = make(options, 4);
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 3, 3, 2}, {}), 1);
  EXPECT_EQ(*argmax(std::vector<float>{1, 3, 3, 2}), 1);
  const Ids excluded = {1};
  EXPECT_EQ(*argmax(std::vector<float>{1, 3, 3, 2}, excluded), 2);
}

TEST(Sampler, TopKKeepsTheLargestAndRenormalises) {
  SamplerOptions options = plain();
  options.top_k = 2;
  const auto choices = kept(options, logits_of({0.1, 0.4, 0.2, 0.3}));
  ASSERT_EQ(ids_of(choices), (Ids{1, 3}));
  EXPECT_NEAR(choices.at(1), 0.4 / 0.7, 1e-6);
  EXPECT_NEAR(choices.at(3), 0.3 / 0.7, 1e-6);
}

TEST(Sampler, TopKCutsEqualsByLowerId) {
  SamplerOptions options = plain();
  options.top_k = 2;
  EXPECT_EQ(ids_of(kept(options, {2, 5, 2, 2})), (Ids{0, 1}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  SamplerOptions options = plain();
  const std::vector<float> logits = logits_of({0.05, 0.5, 0.15, 0.3});
  options.top_p = 0.45f;
  EXPECT_EQ(ids_of(kept(options, logits)), (Ids{1}));
  options.top_p = 0.55f;
  EXPECT_EQ(ids_of(kept(options, logits)), (Ids{1, 3}));
  options.top_p = 0.9f;
  EXPECT_EQ(ids_of(kept(options, logits)), (Ids{1, 2, 3}));
  options.top_p = 0.96f;
  EXPECT_EQ(ids_of(kept(options, logits)), (Ids{0, 1, 2, 3}));
  options.top_p = 1e-6f;
  EXPECT_EQ(ids_of(kept(options, logits)), (Ids{1}));
}

TEST(Sampler, TopPWorksOnWhatTopKLeft) {
  // Of 0.4 and 0.3, renormalised to 0.57 and 0.43, the first alone reaches 0.55, which it does not of all.
  SamplerOptions options = plain();
  options.top_k = 2;
  options.top_p = 0.55f;
  EXPECT_EQ(ids_of(kept(options, logits_of({0.1, 0.4, 0.2, 0.3}))), (Ids{1}));
}

TEST(Sampler, TopPSortsFarEnoughForFlatDistributions) {
  SamplerOptions options = plain();
  options.top_p = 0.5f;
  std::vector<float> logits(5000);
  for (size_t id = 0; id < logits.size(); ++id) logits[id] = static_cast<float>(id % 7) * 1e-4f;
  const auto choices = kept(options, logits);
  EXPECT_NEAR(static_cast<double>(choices.size()), 2500, 2);
  for (const auto& [id, probability] : choices) EXPECT_GE(id % 7, 3) << id;
}

TEST(Sampler, MinPIsRelativeToTheLargest) {
  SamplerOptions options = plain();
  options.min_p = 0.45f;
  EXPECT_EQ(ids_of(kept(options, logits_of({0.1, 0.4, 0.2, 0.3}))), (Ids{1, 2, 3}));
  options.min_p = 0.55f;
  EXPECT_EQ(ids_of(kept(options, logits_of({0.1, 0.4, 0.2, 0.3}))), (Ids{1, 3}));
  options.min_p = 1;
  EXPECT_EQ(ids_of(kept(options, logits_of({0.1, 0.4, 0.2, 0.3}))), (Ids{1}));
}

TEST(Sampler, TemperatureComesBeforeTopP) {
  // At temperature 0.5 the probabilities are squared: 0.36 / 0.46 = 0.78 for the first.
  SamplerOptions options = plain();
  options.temperature = 0.5f;
  options.top_p = 0.75f;
  const std::vector<float> logits = logits_of({0.6, 0.3, 0.1});
  EXPECT_EQ(ids_of(kept(options, logits)), (Ids{0}));
  options.top_p = 1;
  EXPECT_NEAR(kept(options, logits).at(1), 0.09 / 0.46, 1e-6);
}

TEST(Sampler, TinyTemperatureIsGreedyWithoutOverflow) {
  SamplerOptions options = plain();
  options.temperature = 1e-30f;
  Sampler sampler = make(options, 3);
  for (int position = 0; position < 100; ++position)
    EXPECT_EQ(*sampler.sample(std::vector<float>{-5, 100, 99}, Ids(static_cast<size_t>(position), 0)), 1);
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegative) {
  SamplerOptions options = plain();
  options.repeat_penalty = 2;
  const auto choices = kept(options, {2, -1, 2, -1}, {0, 1, 0});
  // Logits 1, -2, 2, -1.
  const double norm = std::exp(1) + std::exp(-2) + std::exp(2) + std::exp(-1);
  EXPECT_NEAR(choices.at(0), std::exp(1) / norm, 1e-9);
  EXPECT_NEAR(choices.at(1), std::exp(-2) / norm, 1e-9);
  EXPECT_NEAR(choices.at(2), std::exp(2) / norm, 1e-9);
}

TEST(Sampler, PresenceOnceAndFrequencyEachTimeAfterThePrompt) {
  SamplerOptions options = plain();
  options.presence_penalty = 0.5f;
  options.frequency_penalty = 0.25f;
  options.prompt_tokens = 2;
  const auto choices = kept(options, {0, 0, 0, 0}, {3, 0, 0, 1, 0});
  // Token 0 twice and token 1 once after the prompt; token 3 in the prompt only.
  const double norm = std::exp(-1.0) + std::exp(-0.75) + 2;
  EXPECT_NEAR(choices.at(0), std::exp(-1.0) / norm, 1e-9);
  EXPECT_NEAR(choices.at(1), std::exp(-0.75) / norm, 1e-9);
  EXPECT_NEAR(choices.at(3), 1 / norm, 1e-9);
}

TEST(Sampler, PenaltiesForgetWhatLeftTheWindow) {
  SamplerOptions options = plain();
  options.repeat_penalty = 100;
  options.repeat_last_n = 2;
  Sampler sampler = make(options, 3);
  const std::vector<float> logits = {3, 3, 3};
  const auto first = *sampler.distribution(logits, Ids{0, 1, 2});
  EXPECT_GT(first[0].probability, 0.9);  // token 0 is out of the window
  const auto second = *sampler.distribution(logits, Ids{1, 1, 1});
  EXPECT_NEAR(second[0].probability, second[2].probability, 1e-12);  // no count was left over
  EXPECT_LT(second[1].probability, 0.05);
  options.repeat_last_n = -1;
  const auto all = kept(options, logits, {0, 1, 1, 1, 1});
  EXPECT_NEAR(all.at(0), all.at(1), 1e-12);
}

TEST(Sampler, BiasAddsAndBans) {
  SamplerOptions options = plain();
  options.bias = {{.id = 0, .bias = -kInfinity}, {.id = 1, .bias = -100}, {.id = 2, .bias = 1}};
  const auto choices = kept(options, {10, 10, 0, 0});
  ASSERT_EQ(ids_of(choices), (Ids{2, 3}));
  EXPECT_NEAR(choices.at(2) / choices.at(3), std::exp(1), 1e-6);
  options.temperature = 0;
  EXPECT_EQ(ids_of(kept(options, {10, 10, 0, 0.5f})), (Ids{2}));
}

TEST(Sampler, AllBannedIsAnError) {
  SamplerOptions options = plain();
  for (const float temperature : {0.0f, 1.0f}) {
    options.temperature = temperature;
    options.bias = {{.id = 0, .bias = -100}, {.id = 1, .bias = -kInfinity}};
    Sampler sampler = make(options, 2);
    const auto token = sampler.sample(std::vector<float>{1, 2}, {});
    ASSERT_FALSE(token.ok());
    EXPECT_EQ(token.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(token.error().message, "logit bias bans every token");
  }
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  Sampler sampler = make(plain(), 3);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    const std::vector<float> logits = {1, bad, 2};
    for (const Error& error : {sampler.sample(logits, {}).error(), argmax(logits).error(),
                               top_logprobs(logits, 2).error(), token_logprob(logits, 0).error()}) {
      EXPECT_EQ(error.code, ErrorCode::kBadPack);
      EXPECT_NE(error.message.find("token 1"), std::string::npos) << error.message;
    }
  }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto message = [](auto change) {
    SamplerOptions options;
    change(options);
    const Result<Sampler> sampler = Sampler::make(options, 10);
    return sampler.ok() ? std::string("accepted") : sampler.error().message;
  };
  EXPECT_EQ(message([](auto& o) { o.top_p = 1.5f; }).substr(0, 6), "top_p:");
  EXPECT_EQ(message([](auto& o) { o.top_p = 0; }).substr(0, 6), "top_p:");
  EXPECT_EQ(message([](auto& o) { o.temperature = -1; }).substr(0, 12), "temperature:");
  EXPECT_EQ(message([](auto& o) { o.temperature = std::nanf(""); }).substr(0, 12), "temperature:");
  EXPECT_EQ(message([](auto& o) { o.top_k = -1; }).substr(0, 6), "top_k:");
  EXPECT_EQ(message([](auto& o) { o.min_p = 2; }).substr(0, 6), "min_p:");
  EXPECT_EQ(message([](auto& o) { o.repeat_penalty = 0; }).substr(0, 15), "repeat_penalty:");
  EXPECT_EQ(message([](auto& o) { o.bias = {{.id = 10, .bias = 1}}; }).substr(0, 11), "logit bias:");
  EXPECT_EQ(message([](auto&) {}), "accepted");
}

TEST(Sampler, DrawDependsOnSeedAndPositionOnly) {
  EXPECT_EQ(uniform_draw(7, 3), uniform_draw(7, 3));
  EXPECT_NE(uniform_draw(7, 3), uniform_draw(7, 4));
  EXPECT_NE(uniform_draw(7, 3), uniform_draw(8, 3));
  SamplerOptions options = plain();
  options.seed = 42;
  const std::vector<float> logits(1000, 0.0f);
  Sampler once = make(options, logits.size());
  Sampler twice = make(options, logits.size());
  Ids tokens;
  for (int position = 0; position < 50; ++position) {
    const int32_t token = *once.sample(logits, tokens);
    ASSERT_TRUE(twice.sample(logits, Ids(tokens.size() + 17, 0)).ok());  // a draw elsewhere changes nothing
    EXPECT_EQ(*twice.sample(logits, tokens), token);
    tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  EXPECT_GT(std::unique(tokens.begin(), tokens.end()) - tokens.begin(), 40);
}

// Pearson's statistic of draws at many positions against the probabilities.
double chi_square(const SamplerOptions& options, const std::vector<float>& logits,
                  const std::vector<double>& expected) {
  constexpr int kDraws = 20000;
  Sampler sampler = make(options, logits.size());
  std::vector<int> counts(logits.size());
  std::vector<int32_t> tokens;
  for (int draw = 0; draw < kDraws; ++draw) {
    counts[static_cast<size_t>(*sampler.sample(logits, tokens))]++;
    tokens.push_back(0);
  }
  double sum = 0;
  for (size_t id = 0; id < expected.size(); ++id) {
    const double wanted = expected[id] * kDraws;
    if (wanted == 0) {
      EXPECT_EQ(counts[id], 0) << id;
    } else {
      sum += (counts[id] - wanted) * (counts[id] - wanted) / wanted;
    }
  }
  return sum;
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<double> probabilities = {0.02, 0.3, 0.08, 0.25, 0.15, 0.2};
  const std::vector<float> logits = logits_of(probabilities);
  for (const uint64_t seed : {0u, 1u, 12345u}) {
    SamplerOptions options = plain();
    options.seed = seed;
    // 5 degrees of freedom: 20.5 is exceeded once in a thousand.
    EXPECT_LT(chi_square(options, logits, probabilities), 20.5) << seed;
    options.top_k = 4;  // drops 0.02 and 0.08; 3 degrees of freedom: 16.3
    EXPECT_LT(chi_square(options, logits, {0, 0.3 / 0.9, 0, 0.25 / 0.9, 0.15 / 0.9, 0.2 / 0.9}), 16.3)
        << seed;
    options.top_k = 0;
    options.temperature = 2;
    std::vector<double> roots;
    double total = 0;
    for (double probability : probabilities) total += std::sqrt(probability);
    for (double probability : probabilities) roots.push_back(std::sqrt(probability) / total);
    EXPECT_LT(chi_square(options, logits, roots), 20.5) << seed;
  }
}

TEST(Sampler, UniformDrawsAreUniform) {
  // 64 cells over positions and, apart, over seeds; 63 degrees of freedom: 103.4 once in a thousand.
  for (const bool over_seeds : {false, true}) {
    std::vector<int> cells(64);
    for (int draw = 0; draw < 64000; ++draw) {
      const double number = over_seeds ? uniform_draw(static_cast<uint64_t>(draw), 5) : uniform_draw(5, draw);
      ASSERT_GE(number, 0);
      ASSERT_LT(number, 1);
      cells[static_cast<size_t>(number * 64)]++;
    }
    double sum = 0;
    for (const int count : cells) sum += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(sum, 103.4);
    EXPECT_GT(sum, 30.0);  // nor more even than chance
  }
}

TEST(Logprobs, AreOfTheLogitsAsTheyAre) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  const auto best = *top_logprobs(logits, 3);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 3);
  EXPECT_EQ(best[2].id, 2);
  EXPECT_NEAR(best[0].logprob, std::log(0.4), 1e-6);
  EXPECT_NEAR(*token_logprob(logits, 0), std::log(0.1), 1e-6);
  EXPECT_EQ(top_logprobs(logits, 100)->size(), 4u);
  EXPECT_FALSE(token_logprob(logits, 4).ok());
  EXPECT_FALSE(token_logprob(logits, -1).ok());
  // Large logits neither overflow nor lose the small ones.
  EXPECT_NEAR(*token_logprob(std::vector<float>{1000, 1001}, 0), -std::log1p(std::exp(1.0)), 1e-12);
}

TEST(Sampler, ChoosesAmongTheAllowed) {
  std::vector<float> logits(130, 0.0f);
  logits[3] = 5, logits[70] = 4, logits[129] = 3;
  auto sampler = Sampler::make({.temperature = 0}, 130).value();
  std::vector<uint64_t> allowed = {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};
  EXPECT_EQ(*sampler.sample(logits, {}, allowed), 3);
  allowed[0] &= ~(uint64_t{1} << 3);
  EXPECT_EQ(*sampler.sample(logits, {}, allowed), 70);
  allowed = {0, 0, 2};
  EXPECT_EQ(*sampler.sample(logits, {}, allowed), 129);
  allowed = {0, 0, ~uint64_t{3}};  // only bits that stand for no token
  EXPECT_EQ(sampler.sample(logits, {}, allowed).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(sampler.sample(logits, {}, std::span(allowed).first(2)).error().message,
            "allowed tokens: expected 3 words, found 2");
  auto biased = Sampler::make({.temperature = 1, .top_p = 1, .bias = {{.id = 129, .bias = -100}}}, 130).value();
  allowed = {8, 0, 2};
  const auto left = biased.distribution(logits, {}, allowed);
  ASSERT_TRUE(left.ok());
  ASSERT_EQ(left->size(), 1u);
  EXPECT_EQ((*left)[0].id, 3);
  EXPECT_EQ(*sampler.sample(logits, {}), 3);  // nothing is remembered
}

}  // namespace
}  // namespace fathom
