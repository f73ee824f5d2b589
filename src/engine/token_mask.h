// Which tokens may come next in an answer that has to follow a form.
#pragma once

#include <cstdint>
#include <span>

namespace fathom {

/// Walks along one answer: allowed() says what may come, accept() takes what came. Used by one thread at a time.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  /// Clears the bits of ids that may not come next and leaves the others alone: masks can be put one on another.
  /// `bits`: [ceil(vocab_size / 64)], id i is bit i % 64 of word i / 64.
  virtual void restrict(std::span<uint64_t> bits) = 0;
  /// The token that came. Every generated token is shown, in order, also those that end the answer.
  virtual void accept(int32_t id) = 0;
};

}  // namespace fathom
