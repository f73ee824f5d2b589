#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "base/file.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/token_store.h"
#include "text/vocabulary.h"

namespace fathom {
namespace {

// Ids of words seen lately, so that a repeated word costs one look-up. Direct-mapped: a colliding word
// takes the place. 2 MiB.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;

  struct Entry {
    uint8_t length_bytes = 0;
    uint8_t id_count = 0;
    char bytes[kMaxBytes];
    int32_t ids[kMaxIds];
  };
  WordCache() : entries_(size_t{1} << 15) {}

  Entry& slot(std::string_view word) {
    return entries_[std::hash<std::string_view>()(word) & (entries_.size() - 1)];
  }
  static bool holds(const Entry& entry, std::string_view word) {
    return entry.length_bytes == word.size() && std::memcmp(entry.bytes, word.data(), word.size()) == 0;
  }
  static void fill(Entry& entry, std::string_view word, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    entry.length_bytes = static_cast<uint8_t>(word.size());
    entry.id_count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.bytes, word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids);
  }

 private:
  std::vector<Entry> entries_;
};

NamedTokens find_named(const TokenStore& store) {
  const auto id = [&](std::string_view text) { return store.find_added(text).value_or(-1); };
  return {.bos = id("<｜begin▁of▁sentence｜>"),
          .eos = id("<｜end▁of▁sentence｜>"),
          .pad = id("<｜▁pad▁｜>"),
          .system = id("<｜System｜>"),
          .user = id("<｜User｜>"),
          .assistant = id("<｜Assistant｜>"),
          .latest_reminder = id("<｜latest_reminder｜>"),
          .think_open = id("<think>"),
          .think_close = id("</think>"),
          .dsml = id("｜DSML｜"),
          .image = id("<｜deepseek_image｜>"),
          .end_of_turn = id("<|EOT|>"),
          .fim_begin = id("<｜fim▁begin｜>"),
          .fim_hole = id("<｜fim▁hole｜>"),
          .fim_end = id("<｜fim▁end｜>")};
}

}  // namespace

struct Tokenizer::State {
  State(TokenStore tokens, MergeTable table, SplitRules split_rules)
      : store(std::move(tokens)), merges(std::move(table)), rules(split_rules), named(find_named(store)) {}

  TokenStore store;
  MergeTable merges;
  SplitRules rules;
  NamedTokens named;
  // One encode at a time uses the cache; another that runs meanwhile does without instead of waiting.
  std::mutex cache_mutex;
  WordCache cache;

  void encode(std::string_view text, std::vector<int32_t>& ids);
  static Result<std::unique_ptr<State>> build(const RawVocabulary& raw, std::string_view origin);
};

Result<std::unique_ptr<Tokenizer::State>> Tokenizer::State::build(const RawVocabulary& raw,
                                                                  std::string_view origin) {
  FATHOM_ASSIGN(TokenStore store, TokenStore::build(raw, origin));
  std::array<int32_t, 256> byte_ids;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = store.find_regular({&text, 1});
    if (!id) return Error::bad_pack("{}: the vocabulary lacks the single byte {:#04x}", origin, byte);
    byte_ids[byte] = *id;
  }
  MergeTable merges(byte_ids, raw.merges.size());
  std::string bytes;
  for (const RawVocabulary::Merge& merge : raw.merges) {
    bytes.clear();
    const bool spelled = append_spelled(raw.view(merge.left), bytes);
    const size_t left_bytes = bytes.size();
    const bool both_spelled = spelled && append_spelled(raw.view(merge.right), bytes);
    const std::string_view whole = bytes;
    const auto left = store.find_regular(whole.substr(0, left_bytes));
    const auto right = store.find_regular(whole.substr(left_bytes));
    const auto merged = store.find_regular(whole);
    if (!both_spelled || !left || !right || !merged)
      return Error::bad_pack("{}: merge '{} {}' names a token that is not in the vocabulary", origin,
                             raw.view(merge.left), raw.view(merge.right));
    merges.add(*left, *right, *merged);
  }
  return std::make_unique<State>(std::move(store), std::move(merges), raw.rules);
}

void Tokenizer::State::encode(std::string_view text, std::vector<int32_t>& ids) {
  const std::unique_lock lock(cache_mutex, std::try_to_lock);
  PieceSplitter splitter(text, rules);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
    if (piece.size() == 1) {
      ids.push_back(merges.byte_id(static_cast<uint8_t>(piece[0])));
    } else if (!lock.owns_lock() || piece.size() > WordCache::kMaxBytes) {
      merges.encode(piece, ids);
    } else if (WordCache::Entry& entry = cache.slot(piece); WordCache::holds(entry, piece)) {
      ids.insert(ids.end(), entry.ids, entry.ids + entry.id_count);
    } else {
      const size_t before = ids.size();
      merges.encode(piece, ids);
      WordCache::fill(entry, piece, std::span(ids).subspan(before));
    }
  }
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&& other) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&& other) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  FATHOM_ASSIGN(const std::string json, read_text_file(path, kMaxBytes));
  return from_json(json, path);
}

Result<Tokenizer> Tokenizer::from_json(std::string_view json, std::string_view origin) {
  FATHOM_ASSIGN(const RawVocabulary raw, parse_tokenizer_json(json, origin));
  FATHOM_ASSIGN(auto state, State::build(raw, origin));
  return Tokenizer(std::move(state));
}

Result<Tokenizer> Tokenizer::from_gguf(const GgufVocabulary& vocabulary, std::string_view origin) {
  FATHOM_ASSIGN(const RawVocabulary raw, read_gguf_vocabulary(vocabulary, origin));
  FATHOM_ASSIGN(auto state, State::build(raw, origin));
  return Tokenizer(std::move(state));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode_append(text, ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view text, std::vector<int32_t>& ids) const {
  state_->encode(text, ids);
}

std::vector<int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<int32_t> ids;
  size_t plain_start = 0;
  for (size_t position = 0; position < text.size();) {
    const auto match = state_->store.match_added(text.substr(position));
    if (match.length_bytes == 0) {
      ++position;
      continue;
    }
    encode_append(text.substr(plain_start, position - plain_start), ids);
    ids.push_back(match.id);
    position += match.length_bytes;
    plain_start = position;
  }
  encode_append(text.substr(plain_start), ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes.append(token_bytes(id));
  return bytes;
}

std::string_view Tokenizer::token_bytes(int32_t id) const { return state_->store.bytes(id); }

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto added = state_->store.find_added(token);
  return added ? added : state_->store.find_regular(token);
}

bool Tokenizer::is_added(int32_t id) const { return state_->store.is_added(id); }
bool Tokenizer::is_special(int32_t id) const { return state_->store.is_special(id); }
int32_t Tokenizer::vocab_size() const { return state_->store.size(); }
const NamedTokens& Tokenizer::named() const { return state_->named; }

}  // namespace fathom
