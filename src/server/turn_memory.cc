#include "server/turn_memory.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "text/chat_parser.h"

namespace fathom {
namespace {

std::span<const std::byte> as_bytes(std::span<const int32_t> ids) { return std::as_bytes(ids); }

bool same_arguments(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto left = nlohmann::json::parse(a, nullptr, false);
  const auto right = nlohmann::json::parse(b, nullptr, false);
  return !left.is_discarded() && left == right;
}

bool same_turn(const ParsedTurn& sampled, const ParsedTurn& sent) {
  if (sampled.content != sent.content || sampled.calls.size() != sent.calls.size()) return false;
  const bool reasoning_was_dropped = sent.reasoning.empty() && !sent.calls.empty();
  if (sampled.reasoning != sent.reasoning && !reasoning_was_dropped) return false;
  for (size_t call = 0; call < sent.calls.size(); ++call) {
    const ParsedCall& a = sampled.calls[call];
    const ParsedCall& b = sent.calls[call];
    if (!a.complete || a.name != b.name || a.namespace_name != b.namespace_name ||
        !same_arguments(a.arguments, b.arguments))
      return false;
  }
  return true;
}

}  // namespace

void TurnMemory::remember(std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  if (answer.empty() || answer.size() > ids_max_) return;
  const Key key = sha256(as_bytes(prompt));
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(key); known != index_.end()) {
    ids_ -= known->second->answer.size();
    entries_.erase(known->second);
    index_.erase(known);
  }
  entries_.push_back({key, {answer.begin(), answer.end()}});
  index_[key] = std::prev(entries_.end());
  ids_ += answer.size();
  while (ids_ > ids_max_) {
    ids_ -= entries_.front().answer.size();
    index_.erase(entries_.front().prompt);
    entries_.pop_front();
  }
}

std::vector<int32_t> TurnMemory::find(const Key& prompt) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(prompt);
  if (found == index_.end()) return {};
  entries_.splice(entries_.end(), entries_, found->second);
  return found->second->answer;
}

std::vector<int32_t> TurnMemory::restore(std::vector<int32_t> prompt, std::vector<int64_t>* boundaries) {
  const NamedTokens& named = tokenizer_.named();
  Sha256 hash;
  size_t hashed = 0;
  // An answer begins behind the assistant's header: its role token, then a think token.
  for (size_t begin = 2; begin < prompt.size(); ++begin) {
    const int32_t header = prompt[begin - 1];
    if (prompt[begin - 2] != named.assistant || (header != named.think_open && header != named.think_close))
      continue;
    const auto end = std::find(prompt.begin() + static_cast<ptrdiff_t>(begin), prompt.end(), named.eos);
    if (end == prompt.end()) break;  // the answer to come
    hash.update(as_bytes(std::span(prompt).subspan(hashed, begin - hashed)));
    hashed = begin;
    std::vector<int32_t> sampled = find(Sha256(hash).finish());
    if (sampled.empty()) continue;
    // An answer that was cut was sent back as a whole one.
    if (sampled.back() != named.eos) sampled.push_back(named.eos);
    const auto sent_size = static_cast<size_t>(end - prompt.begin()) + 1 - begin;
    const std::span<const int32_t> sent = std::span(prompt).subspan(begin, sent_size);
    if (std::equal(sampled.begin(), sampled.end(), sent.begin(), sent.end())) continue;
    const bool thinking = header == named.think_open;
    if (!same_turn(parse_completion(sampled, tokenizer_, thinking), parse_completion(sent, tokenizer_, thinking)))
      continue;
    const auto shift = static_cast<int64_t>(sampled.size()) - static_cast<int64_t>(sent_size);
    if (boundaries != nullptr) {
      for (int64_t& boundary : *boundaries)
        if (boundary >= static_cast<int64_t>(begin + sent_size)) boundary += shift;
    }
    const auto first = prompt.begin() + static_cast<ptrdiff_t>(begin);
    prompt.insert(prompt.erase(first, first + static_cast<ptrdiff_t>(sent_size)), sampled.begin(), sampled.end());
  }
  return prompt;
}

}  // namespace fathom
