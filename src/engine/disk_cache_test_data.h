// States for tests of the prefix cache: their bytes follow from their tokens, so each can be told right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/sha256.h"
#include "engine/saved_state.h"

namespace fathom::disk_cache_test {

inline SavedStateOwner owner() {
  SavedStateOwner owner{.vocab_size = 1000, .context_tokens = 4096, .state_bytes_max = 1 << 20};
  owner.fingerprint.fill(0x5a);
  return owner;
}

inline SavedState state_of(std::vector<int32_t> tokens, bool with_logits, size_t state_bytes = 333) {
  SavedState saved{.tokens = std::move(tokens), .logits = {}, .state = {}};
  const auto digest = sha256(std::as_bytes(std::span(saved.tokens)));
  for (size_t at = 0; at < state_bytes; ++at)
    saved.state.push_back(static_cast<std::byte>(digest[at % digest.size()] + at / digest.size()));
  if (with_logits)
    for (size_t at = 0; at < 1000; ++at)
      saved.logits.push_back(static_cast<float>(digest[at % digest.size()]) + 0.5f);
  return saved;
}

/// Tokens of one line of talk: those of another have no prefix in common.
inline std::vector<int32_t> run_of(int32_t line, size_t count) {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < count; ++at)
    tokens.push_back((line * 37 + static_cast<int32_t>(at) * 11) % 900);
  return tokens;
}

inline std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

}  // namespace fathom::disk_cache_test
