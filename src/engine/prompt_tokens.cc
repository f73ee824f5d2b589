#include "engine/prompt_tokens.h"

#include <algorithm>

namespace fathom {

Result<void> check_prompt_tokens(std::span<const int32_t> tokens, const ModelConfig& config) {
  if (tokens.empty()) return Error::invalid("the prompt is empty: expected at least one token");
  for (size_t position = 0; position < tokens.size(); ++position) {
    const int32_t id = tokens[position];
    if (id < 0 || id >= config.vocab_size)
      return Error::invalid("token {} at position {}: expected 0 to {}", id, position, config.vocab_size - 1);
    if (id == config.image_token_id)
      return Error::unsupported(
          "token {} at position {} stands for a piece of an image, which cannot be given", id, position);
  }
  return {};
}

int64_t count_common(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t shorter = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(shorter), b.begin()).first - a.begin();
}

}  // namespace fathom
