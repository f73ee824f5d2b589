// Token ids of a prompt: what they may be, and how far two prompts agree.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/config.h"

namespace fathom {

/// kInvalidArgument: none, or an id outside of the vocabulary; kUnsupported: an image's.
Result<void> check_prompt_tokens(std::span<const int32_t> tokens, const ModelConfig& config);

/// Leading tokens that are the same.
int64_t count_common(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace fathom
