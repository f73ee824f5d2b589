// The Engram token map: token id -> compressed id, tokens that normalise to the same text sharing one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace fathom {

struct EngramTokenMap {
  std::vector<int32_t> ids;  // [vocab_size] compressed id of each token
  int32_t compressed_vocab_size = 0;
};

/// Compressed ids are given in the order in which a normalised text first appears. `vocab_size` is the
/// model's; ids that the tokenizer lacks count as empty text. About 60 ms for 129,280 tokens.
EngramTokenMap build_engram_token_map(const Tokenizer& tokenizer, int32_t vocab_size);

/// The normalisation behind the map: NFKC, NFD, all marks removed, lower case, runs of space, TAB, CR and LF
/// to one space, outer white space removed (but a lone space stays). `text` must be valid UTF-8.
std::string normalize_for_engram(std::string_view text);

}  // namespace fathom
