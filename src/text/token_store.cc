#include "text/token_store.h"

#include <algorithm>
#include <bit>

#include "text/bpe.h"

namespace fathom {
namespace {

Result<void> check_id(int32_t id, std::string_view text, std::string_view origin) {
  if (id >= 0 && id < kTokenIdLimit) return {};
  return Error::bad_pack("{}: token '{}' has id {}, expected less than {}", origin, text, id, kTokenIdLimit);
}

}  // namespace

Result<RawVocabulary> read_gguf_vocabulary(const GgufVocabulary& vocabulary, std::string_view origin) {
  if (vocabulary.pre != "joyai-llm" && vocabulary.pre != "deepseek-v3")
    return Error::unsupported(
        "{}: tokenizer.ggml.pre is '{}', only 'joyai-llm' and 'deepseek-v3' are supported", origin,
        vocabulary.pre);
  if (vocabulary.token_types.size() != vocabulary.tokens.size())
    return Error::bad_pack("{}: tokenizer.ggml.token_type has {} entries, expected {} as in .tokens", origin,
                           vocabulary.token_types.size(), vocabulary.tokens.size());
  enum { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };
  RawVocabulary raw;
  for (size_t place = 0; place < vocabulary.tokens.size(); ++place) {
    const std::string_view token = vocabulary.tokens[place];
    const int32_t id = static_cast<int32_t>(place);
    switch (const int32_t type = vocabulary.token_types[place]) {
      case kNormal:
        raw.tokens.push_back({raw.store(token), id});
        break;
      case kControl:
      case kUserDefined:
        raw.added.push_back({std::string(token), id, type == kControl});
        break;
      case kUnused:
        break;
      default:
        return Error::unsupported("{}: token {} '{}' has type {}, expected 1, 3, 4 or 5", origin, id, token,
                                  type);
    }
  }
  for (const std::string_view pair : vocabulary.merges) {
    const auto merge = store_merge(pair, raw);
    if (!merge) return Error::bad_pack("{}: merge '{}' is not two tokens and a space", origin, pair);
    raw.merges.push_back(*merge);
  }
  return raw;
}

Result<TokenStore> TokenStore::build(const RawVocabulary& raw, std::string_view origin) {
  TokenStore store;
  FATHOM_TRY(store.add_regular(raw, origin));
  FATHOM_TRY(store.add_added(raw, origin));
  return store;
}

std::string_view TokenStore::bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return std::string_view(text_).substr(tokens_[id].offset, tokens_[id].length);
}

void TokenStore::define(int32_t id, std::string_view bytes) {
  if (id >= size()) tokens_.resize(id + 1);
  tokens_[id] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(bytes.size()), kDefined};
  text_.append(bytes);
}

Result<void> TokenStore::add_regular(const RawVocabulary& raw, std::string_view origin) {
  slots_.assign(std::bit_ceil(2 * raw.tokens.size() + 2), -1);
  std::string decoded;
  for (const RawVocabulary::Token& token : raw.tokens) {
    const std::string_view spelling = raw.view(token.spelling);
    FATHOM_TRY(check_id(token.id, spelling, origin));
    if (has_flag(token.id, kDefined))
      return Error::bad_pack("{}: id {} belongs to '{}' and to '{}'", origin, token.id, bytes(token.id),
                             spelling);
    decoded.clear();
    // Control tokens may be listed among the regular ones, in plain text; BPE cannot reach those.
    const bool reachable = append_spelled(spelling, decoded);
    define(token.id, reachable ? decoded : spelling);
    if (reachable) index_regular(token.id);
  }
  return {};
}

Result<void> TokenStore::add_added(const RawVocabulary& raw, std::string_view origin) {
  for (const RawVocabulary::Added& token : raw.added) {
    FATHOM_TRY(check_id(token.id, token.content, origin));
    if (token.content.empty()) return Error::bad_pack("{}: added token {} is empty", origin, token.id);
    if (has_flag(token.id, kDefined) && bytes(token.id) != token.content)
      return Error::bad_pack("{}: id {} belongs to '{}' and to added token '{}'", origin, token.id,
                             bytes(token.id), token.content);
    if (has_flag(token.id, kAdded)) continue;
    if (!has_flag(token.id, kDefined)) define(token.id, token.content);
    tokens_[token.id].flags |= kAdded | (token.special ? kSpecial : 0);
    added_.push_back(token.id);
    starts_added_[static_cast<uint8_t>(token.content[0])] = true;
  }
  std::sort(added_.begin(), added_.end(), [this](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  const auto same = [this](int32_t a, int32_t b) { return bytes(a) == bytes(b); };
  if (const auto twice = std::adjacent_find(added_.begin(), added_.end(), same); twice != added_.end())
    return Error::bad_pack("{}: added token '{}' has two ids, {} and {}", origin, bytes(*twice), twice[0],
                           twice[1]);
  return {};
}

void TokenStore::index_regular(int32_t id) {
  const size_t mask = slots_.size() - 1;
  const std::string_view wanted = bytes(id);
  size_t slot = std::hash<std::string_view>()(wanted) & mask;
  while (slots_[slot] >= 0 && bytes(slots_[slot]) != wanted) slot = (slot + 1) & mask;
  if (slots_[slot] < 0) slots_[slot] = id;
}

std::optional<int32_t> TokenStore::find_regular(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(wanted) & mask;
  for (; slots_[slot] >= 0; slot = (slot + 1) & mask)
    if (bytes(slots_[slot]) == wanted) return slots_[slot];
  return {};
}

std::optional<int32_t> TokenStore::find_added(std::string_view content) const {
  const auto before = [this](int32_t id, std::string_view wanted) { return bytes(id) < wanted; };
  const auto found = std::lower_bound(added_.begin(), added_.end(), content, before);
  if (found == added_.end() || bytes(*found) != content) return {};
  return *found;
}

TokenStore::Match TokenStore::match_added(std::string_view text) const {
  Match longest;
  if (text.empty() || !starts_added_[static_cast<uint8_t>(text[0])]) return longest;
  // Narrow the sorted list byte by byte; whenever its first entry ends here, that is a match.
  auto first = added_.begin(), last = added_.end();
  for (size_t length = 0; length < text.size(); ++length) {
    const uint8_t wanted = static_cast<uint8_t>(text[length]);
    const auto byte_of = [&](int32_t id) { return static_cast<uint8_t>(bytes(id)[length]); };
    if (bytes(*first).size() == length) ++first;
    first = std::partition_point(first, last, [&](int32_t id) { return byte_of(id) < wanted; });
    last = std::partition_point(first, last, [&](int32_t id) { return byte_of(id) == wanted; });
    if (first == last) break;
    if (bytes(*first).size() == length + 1) longest = {*first, length + 1};
  }
  return longest;
}

}  // namespace fathom
