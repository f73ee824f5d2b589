// From what was seen of a request to the figures of a stage.
#pragma once

#include <cstdint>
#include <optional>

#include "measure/result.h"
#include "measure/target.h"

namespace fathom::measure {

/// What a request should have been like.
struct Expectation {
  int64_t sent_tokens = 0;       // ids of the prompt; 0: text was sent, the target counts
  int64_t known_tokens = 0;      // leading tokens of the prompt that the target should have kept
  int64_t output_tokens = 0;     // exactly
  std::optional<double> cold_tokens_per_s;  // prefill rate of the run's first stage, where nothing was kept
};

/// F1 and F2 below; none where all tokens came at one time.
struct GenerationRates {
  std::optional<double> f1_tokens_per_s, f2_tokens_per_s;
};
/// `seen` has at least one token; `tokens` is how many there were, which need not be its number of times.
GenerationRates generation_rates(const Generation& seen, int64_t tokens);

/// Fills the figures of `stage`, or its error: a request that failed, that has not exactly the tokens that were
/// asked for, or whose times or counts contradict each other gives no figure at all.
///
///   prefill    = evaluated tokens / (first token - sent)
///   generation = n / (last token - end of prefill)           "F1"
///              = (n - 1) / (last token - first token)        "F2"
///
/// The end of prefill is the target's word or else the first token's arrival, in which case F1 is n / (n - 1) of
/// F2. Tokens that arrive together share a time: figures of gaps are then those of the pieces.
void fill_figures(const Generation& generation, const Expectation& expectation, Stage& stage);

/// SHA-256 of the ids as little-endian int32; of the text where there are no ids. Hexadecimal.
std::string output_hash(const Generation& generation);

}  // namespace fathom::measure
