#include "sampling_options.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <random>

#include "failure.h"
#include "model_options.h"

namespace fathom::cli {
namespace {

/// The option parser would take 2^64 and -1 for the largest seed.
std::string seed_error(const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seed);
  if (error == std::errc() && stop == end) return "";
  return fmt::format("expected a whole number from 0 to {}, found \"{}\"", UINT64_MAX, text);
}

}  // namespace

SamplingOptions::SamplingOptions() { fathom_sampling_init(&values_); }

void SamplingOptions::add_to(CLI::App& app) {
  add_number(app, "--temp", values_.temperature, 0, 100, "Temperature; 0: the most likely token (default 1)");
  add_number(app, "--top-k", values_.top_k, 0, 1 << 30, "Only the K most likely tokens; 0: all (default)");
  add_number(app, "--top-p", values_.top_p, 1e-6, 1,
             "Fewest tokens that reach this probability (default 0.95)");
  add_number(app, "--min-p", values_.min_p, 0, 1, "Least share of the best token's probability (default 0)");
  seed_option_ = app.add_option("--seed", values_.seed, "Of the draws (default: random, and told at the end)")
                     ->check(CLI::Validator(seed_error, ""));
  add_number(app, "--repeat-penalty", values_.repeat_penalty, 0.01, 100,
             "Divides positive logits of tokens seen (default 1: none)");
  add_number(app, "--repeat-last-n", values_.repeat_last_n, -1, 1 << 30,
             "How many tokens count as seen; -1: all (default 64)");
  add_number(app, "--presence-penalty", values_.presence_penalty, -100, 100,
             "Taken from logits of tokens already written (default 0)");
  add_number(app, "--frequency-penalty", values_.frequency_penalty, -100, 100,
             "The same once for each time written (default 0)");
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [this](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) add_bias(text);
         },
         "Add B to the logit of token ID; -100 and below ban it. Repeatable")
      ->type_name("ID:B")
      ->expected(1)
      ->take_all();
}

void SamplingOptions::add_bias(const std::string& text) {
  fathom_logit_bias bias{};
  const char* end = text.data() + text.size();
  const auto [colon, id_error] = std::from_chars(text.data(), end, bias.id);
  bool good = id_error == std::errc() && bias.id >= 0 && colon != end && *colon == ':';
  if (good) {
    const char* number = colon + 1 != end && colon[1] == '+' ? colon + 2 : colon + 1;
    const auto [stop, bias_error] = std::from_chars(number, end, bias.bias);
    good = bias_error == std::errc() && stop == end && !std::isnan(bias.bias);
  }
  if (!good)
    throw CLI::ValidationError("--logit-bias",
                               fmt::format("expected ID:B, e.g. 15:-2.5, found \"{}\"", text));
  given_bias_.push_back(bias);
}

void SamplingOptions::choose_seed() {
  if (seed_option_ != nullptr && seed_option_->count() > 0) return;
  // 32 bits: short enough to be typed again.
  values_.seed = std::random_device{}();
}

fathom_sampling SamplingOptions::resolve(const fathom_tokenizer* tokenizer, bool ignore_eos,
                                         int64_t prompt_tokens) {
  bias_ = given_bias_;
  const int32_t vocab_size = fathom_vocab_size(tokenizer);
  for (const fathom_logit_bias& bias : bias_)
    if (bias.id >= vocab_size)
      fail_usage("--logit-bias: token {} is not in the vocabulary of {} tokens", bias.id, vocab_size);
  for (int32_t id = 0; ignore_eos && id < vocab_size; ++id)
    if (fathom_is_stop(tokenizer, id)) bias_.push_back({id, -1000});
  fathom_sampling sampling = values_;
  sampling.prompt_tokens = prompt_tokens;
  sampling.bias = bias_.data();
  sampling.bias_count = bias_.size();
  return sampling;
}

}  // namespace fathom::cli
