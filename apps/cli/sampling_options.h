// Options that say how the next token is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "fathom/fathom.h"

namespace fathom::cli {

class SamplingOptions {
 public:
  SamplingOptions();
  void add_to(CLI::App& app);
  /// Draws a seed if none was given.
  void choose_seed();
  bool is_greedy() const { return values_.temperature == 0; }
  uint64_t seed() const { return values_.seed; }
  /// Borrows the biases from this object. With `ignore_eos` tokens that end an answer are banned.
  fathom_sampling resolve(const fathom_tokenizer* tokenizer, bool ignore_eos, int64_t prompt_tokens);

 private:
  void add_bias(const std::string& text);

  fathom_sampling values_;
  CLI::Option* seed_option_ = nullptr;
  std::vector<fathom_logit_bias> given_bias_, bias_;
};

}  // namespace fathom::cli
