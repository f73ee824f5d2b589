// Remembers the tokens of answers, so that a conversation that comes back as text continues where it stopped.
//
// Clients send back what they were shown, as text. Encoded again it may become other tokens than those that were
// sampled (a call spelled with another space, a word cut elsewhere), and the state that was kept could not go on.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace fathom {

/// Any thread.
class TurnMemory {
 public:
  /// `ids_max`: tokens held, prompts not counted; an answer counts as 64 more than it has, for what it costs beside
  /// them. The least recently used answers go first.
  TurnMemory(const Tokenizer& tokenizer, size_t ids_max) : tokenizer_(tokenizer), ids_max_(ids_max) {}

  /// `answer`: as sampled after `prompt`, with the token that ended it if there was one.
  void remember(std::span<const int32_t> prompt, std::span<const int32_t> answer);

  /// A rendered prompt in which answers that mean the same as remembered ones, behind the same prompts, are
  /// replaced by the sampled tokens. Same meaning: same content and the same calls with the same arguments as
  /// values; same reasoning, or none if a call follows (clients that drop it get it back). `boundaries`: ascending
  /// lengths of prefixes of `prompt`; they are moved with what they follow.
  std::vector<int32_t> restore(std::vector<int32_t> prompt, std::vector<int64_t>* boundaries);

 private:
  using Key = std::array<uint8_t, 32>;
  struct Entry {
    Key prompt;
    std::vector<int32_t> answer;
  };
  std::vector<int32_t> find(const Key& prompt);

  const Tokenizer& tokenizer_;
  const size_t ids_max_;
  std::mutex mutex_;
  size_t ids_ = 0;
  std::list<Entry> entries_;  // least recently used first
  std::map<Key, std::list<Entry>::iterator> index_;
};

}  // namespace fathom
