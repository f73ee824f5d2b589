#include "quantize/pack_tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "format/gguf.h"
#include "text/engram_map.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

using Json = nlohmann::json;  // finds keys by tree: a vocabulary has 128,000

constexpr uint64_t kTokenizerLimitBytes = uint64_t{1} << 28;
enum { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

Result<Tokenizer> load(const VocabularyData& vocabulary, const std::string& origin) {
  std::vector<std::string_view> tokens(vocabulary.tokens.begin(), vocabulary.tokens.end());
  std::vector<std::string_view> merges(vocabulary.merges.begin(), vocabulary.merges.end());
  return Tokenizer::from_gguf(
      {.tokens = tokens, .merges = merges, .token_types = vocabulary.types, .pre = "joyai-llm"}, origin);
}

// Puts a token at its id; false if the id is outside.
bool define(VocabularyData& vocabulary, const Json& id, std::string text, int32_t type) {
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary.tokens.size()) return false;
  const size_t place = id.get<size_t>();
  vocabulary.tokens[place] = std::move(text);
  vocabulary.types[place] = type;
  return true;
}

void fill_unused(VocabularyData& vocabulary) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (vocabulary.types[id] == kUnused) vocabulary.tokens[id] = fmt::format("[unused{}]", id);
}

Json split(std::string_view expression) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", std::string(expression)}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Result<VocabularyData> vocabulary_from_gguf(const std::string& path, int vocab_size) {
  FATHOM_ASSIGN(const GgufFile file, open_gguf(path));
  FATHOM_ASSIGN(const std::vector<std::string_view> tokens, file.keys.strings("tokenizer.ggml.tokens"));
  FATHOM_ASSIGN(const std::vector<std::string_view> merges, file.keys.strings("tokenizer.ggml.merges"));
  FATHOM_ASSIGN(const std::vector<int64_t> types, file.keys.integers("tokenizer.ggml.token_type"));
  if (tokens.size() > static_cast<size_t>(vocab_size) || types.size() != tokens.size())
    return Error::bad_pack(
        "{}: tokenizer.ggml.tokens: expected at most {} tokens with types, found {} and {}", path, vocab_size,
        tokens.size(), types.size());
  VocabularyData vocabulary{.tokens = {tokens.begin(), tokens.end()},
                            .types = {types.begin(), types.end()},
                            .merges = {merges.begin(), merges.end()}};
  vocabulary.tokens.resize(static_cast<size_t>(vocab_size));
  vocabulary.types.resize(static_cast<size_t>(vocab_size), kUnused);
  fill_unused(vocabulary);
  return vocabulary;
}

}  // namespace

Result<VocabularyData> vocabulary_from_json(std::string_view json, const std::string& origin,
                                            int vocab_size) {
  // The tokenizer's own reader is the one that judges; afterwards the document is known to be sound.
  FATHOM_TRY(Tokenizer::from_json(json, origin));
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return Error::bad_pack("{}: not valid JSON", origin);
  if (root["pre_tokenizer"]["type"] != "Sequence")
    return Error::unsupported(
        "{}: its split rules are not those of the release, which a GGUF's name stands for", origin);
  VocabularyData vocabulary;
  vocabulary.tokens.resize(static_cast<size_t>(vocab_size));
  vocabulary.types.resize(static_cast<size_t>(vocab_size), kUnused);
  const auto outside = [&](const std::string& token) {
    return Error::bad_pack("{}: token '{}': expected an id below {} (vocab_size)", origin, token, vocab_size);
  };
  for (const auto& [token, id] : root["model"]["vocab"].items())
    if (!define(vocabulary, id, token, kNormal)) return outside(token);
  if (root.contains("added_tokens")) {
    for (const Json& added : root["added_tokens"]) {
      const std::string content = added.at("content").get<std::string>();
      const bool is_special = added.contains("special") && added["special"] == true;
      if (!define(vocabulary, added.at("id"), content, is_special ? kControl : kUserDefined))
        return outside(content);
    }
  }
  for (const Json& merge : root["model"]["merges"])
    vocabulary.merges.push_back(merge.is_string()
                                    ? merge.get<std::string>()
                                    : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  fill_unused(vocabulary);
  return vocabulary;
}

Result<VocabularyData> read_vocabulary(const TokenizerSource& source, int vocab_size) {
  if (source.path.empty()) return Error::not_found("the pack has no tokenizer");
  if (source.is_gguf) return vocabulary_from_gguf(source.path, vocab_size);
  FATHOM_ASSIGN(const std::string text, read_text_file(source.path, kTokenizerLimitBytes));
  return vocabulary_from_json(text, source.path, vocab_size);
}

std::string vocabulary_to_json(const VocabularyData& vocabulary) {
  Json added = Json::array(), vocab = Json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int32_t type = vocabulary.types[id];
    if (type == kNormal) {
      vocab[vocabulary.tokens[id]] = id;
    } else if (type != kUnused) {
      added.push_back({{"id", id},
                       {"content", vocabulary.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type == kControl}});
    }
  }
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array()}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", {split(kSplitNumbers), split(kSplitCjk), split(kSplitWords), bytes}}}},
      {"post_processor",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}}},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", std::move(vocab)},
        {"merges", vocabulary.merges}}}};
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<int32_t>> engram_token_map(const VocabularyData& vocabulary, const std::string& origin) {
  FATHOM_ASSIGN(const Tokenizer tokenizer, load(vocabulary, origin));
  return build_engram_token_map(tokenizer, static_cast<int32_t>(vocabulary.tokens.size())).ids;
}

}  // namespace fathom
