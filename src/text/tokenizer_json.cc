// tokenizer.json -> RawVocabulary. The two large members (model.vocab, model.merges) are taken as they
// stream by, which is twice as fast as building a document of them; the rest becomes a small document
// that is then checked.
#include <nlohmann/json.hpp>

#include <string>

#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace fathom {
namespace {

using Json = nlohmann::json;

class Reader final : public nlohmann::json_sax<Json> {
 public:
  RawVocabulary vocabulary;
  Json document;  // without model.vocab and model.merges
  std::string problem;

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool binary(binary_t&) override { return fail("binary value"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (mode_ != Mode::kVocab) return scalar(value);
    if (value > INT32_MAX) return fail(fmt::format("model.vocab: id {} is too large", value));
    vocabulary.tokens.push_back({token_, static_cast<int32_t>(value)});
    return true;
  }
  bool string(string_t& value) override {
    if (mode_ == Mode::kPair) {
      if (pair_size_ >= 2) return fail("model.merges: an entry has more than two parts");
      pair_[pair_size_++] = vocabulary.store(value);
      return true;
    }
    if (mode_ != Mode::kMerges) return scalar(std::move(value));
    const auto merge = store_merge(value, vocabulary);
    if (!merge) return fail(fmt::format("model.merges: '{}' is not two tokens and a space", value));
    vocabulary.merges.push_back(*merge);
    return true;
  }
  bool key(string_t& value) override {
    if (mode_ == Mode::kVocab) {
      token_ = vocabulary.store(value);
    } else {
      key_ = std::move(value);
    }
    return true;
  }
  bool start_object(size_t) override {
    if (mode_ != Mode::kDocument) return fail("an object inside model.vocab or model.merges");
    if (in_model() && key_ == "vocab") {
      mode_ = Mode::kVocab;
    } else {
      return open(Json::object());
    }
    return true;
  }
  bool end_object() override {
    if (mode_ == Mode::kDocument) open_.pop_back();
    mode_ = Mode::kDocument;
    return true;
  }
  bool start_array(size_t) override {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kPair;
      pair_size_ = 0;
    } else if (mode_ != Mode::kDocument) {
      return fail("an array inside model.vocab or inside an entry of model.merges");
    } else if (in_model() && key_ == "merges") {
      mode_ = Mode::kMerges;
    } else {
      return open(Json::array());
    }
    return true;
  }
  bool end_array() override {
    if (mode_ == Mode::kPair) {
      if (pair_size_ != 2) return fail("model.merges: an entry has fewer than two parts");
      vocabulary.merges.push_back({pair_[0], pair_[1]});
      mode_ = Mode::kMerges;
    } else if (mode_ == Mode::kMerges) {
      mode_ = Mode::kDocument;
    } else {
      open_.pop_back();
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("not valid JSON at byte {}", position));
  }

 private:
  enum class Mode { kDocument, kVocab, kMerges, kPair };

  bool fail(std::string text) {
    if (problem.empty()) problem = std::move(text);
    return false;
  }
  bool open(Json container) {
    // Writing and comparing a document recurse; a real one is five levels deep.
    if (open_.size() >= 32) return fail("nested too deeply");
    open_.push_back(attach(std::move(container)));
    return true;
  }
  bool in_model() const { return open_.size() == 2 && open_[0]->is_object() && model_ == open_[1]; }
  bool scalar(Json value) {
    if (mode_ != Mode::kDocument)
      return fail("model.vocab must map strings to ids, model.merges hold strings or pairs");
    attach(std::move(value));
    return true;
  }
  Json* attach(Json value) {
    if (open_.empty()) {
      document = std::move(value);
      return &document;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& child = parent[key_];
    child = std::move(value);
    if (open_.size() == 1 && key_ == "model") model_ = &child;
    return &child;
  }

  Mode mode_ = Mode::kDocument;
  std::vector<Json*> open_;  // containers around the current place; only the innermost one grows
  const Json* model_ = nullptr;
  std::string key_;
  RawVocabulary::Text token_;
  RawVocabulary::Text pair_[2];
  int pair_size_ = 0;
};

// The member at a path of keys and array places, null where there is none.
template <class... Steps>
const Json& at(const Json& json, const Steps&... steps) {
  static const Json kNull;
  const Json* here = &json;
  const auto go = [&](const auto& step) {
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(step)>>) {
      here = here->is_array() && static_cast<size_t>(step) < here->size() ? &(*here)[step] : &kNull;
    } else {
      const auto found = here->is_object() ? here->find(step) : here->end();
      here = found != here->end() ? &*found : &kNull;
    }
  };
  (go(steps), ...);
  return *here;
}

std::string shown(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

struct Rule {
  const char* what;
  const Json& found;
  Json expected;
};

Result<void> check_rules(std::string_view origin, std::initializer_list<Rule> rules) {
  for (const Rule& rule : rules)
    if (rule.found != rule.expected)
      return Error::unsupported("{}: {} is {}, only {} is supported", origin, rule.what, shown(rule.found),
                                shown(rule.expected));
  return {};
}

// Members that change results absent, null, false or empty in the vocabularies we know.
Result<void> check_model(std::string_view origin, const Json& document) {
  for (const char* name : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                           "byte_fallback", "ignore_merges"}) {
    const Json& value = at(document, "model", name);
    if (!value.is_null() && value != false && value != "")
      return Error::unsupported("{}: model.{} is {}, only unset is supported", origin, name, shown(value));
  }
  const Json& normalizer = at(document, "normalizer");
  const Json& steps = at(normalizer, "normalizers");
  if (!normalizer.is_null() && !(at(normalizer, "type") == "Sequence" && steps.is_array() && steps.empty()))
    return Error::unsupported("{}: normalizer is {}, only none is supported", origin, shown(normalizer));
  FATHOM_TRY(check_rules(origin, {
      {"model.type", at(document, "model", "type"), "BPE"},
      {"decoder.type", at(document, "decoder", "type"), "ByteLevel"},
  }));
  return {};
}

Result<SplitRules> read_split_rules(std::string_view origin, const Json& document) {
  if (at(document, "pre_tokenizer", "type") == "ByteLevel") {
    FATHOM_TRY(check_rules(origin, {
        {"pre_tokenizer.add_prefix_space", at(document, "pre_tokenizer", "add_prefix_space"), false},
        {"pre_tokenizer.use_regex", at(document, "pre_tokenizer", "use_regex"), true},
    }));
    return SplitRules::kGpt2;
  }
  const Json& splits = at(document, "pre_tokenizer", "pretokenizers");
  FATHOM_TRY(check_rules(origin, {
      {"pre_tokenizer.type", at(document, "pre_tokenizer", "type"), "Sequence"},
      {"pre_tokenizer step 0 pattern", at(splits, 0, "pattern", "Regex"), std::string(kSplitNumbers)},
      {"pre_tokenizer step 1 pattern", at(splits, 1, "pattern", "Regex"), std::string(kSplitCjk)},
      {"pre_tokenizer step 2 pattern", at(splits, 2, "pattern", "Regex"), std::string(kSplitWords)},
      {"pre_tokenizer step 3 type", at(splits, 3, "type"), "ByteLevel"},
      {"pre_tokenizer step 3 add_prefix_space", at(splits, 3, "add_prefix_space"), false},
      {"pre_tokenizer step 3 use_regex", at(splits, 3, "use_regex"), false},
      {"pre_tokenizer step 4", at(splits, 4), nullptr},
  }));
  for (int step = 0; step < 3; ++step)
    FATHOM_TRY(check_rules(origin, {
        {"type of a split step", at(splits, step, "type"), "Split"},
        {"behavior of a split step", at(splits, step, "behavior"), "Isolated"},
        {"invert of a split step", at(splits, step, "invert"), false},
    }));
  return SplitRules::kDeepseek;
}

Result<void> read_added(std::string_view origin, const Json& list,
                        std::vector<RawVocabulary::Added>& added) {
  if (list.is_null()) return {};
  if (!list.is_array())
    return Error::bad_pack("{}: added_tokens is {}, expected a list", origin, shown(list));
  for (const Json& entry : list) {
    const Json& id = at(entry, "id");
    const Json& content = at(entry, "content");
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX || !content.is_string())
      return Error::bad_pack("{}: added token {} lacks an id or a content", origin, shown(entry));
    for (const char* flag : {"single_word", "lstrip", "rstrip"})
      if (at(entry, flag) == true)
        return Error::unsupported("{}: added token {} has {} set", origin, shown(content), flag);
    added.push_back({content.get<std::string>(), id.get<int32_t>(), at(entry, "special") == true});
  }
  return {};
}

}  // namespace

Result<RawVocabulary> parse_tokenizer_json(std::string_view json, std::string_view origin) {
  if (json.size() > INT32_MAX)
    return Error::bad_pack("{}: {} bytes, expected less than 2 GiB", origin, json.size());
  Reader reader;
  if (!Json::sax_parse(json.begin(), json.end(), &reader))
    return Error::bad_pack("{}: {}", origin, reader.problem.empty() ? "not valid JSON" : reader.problem);
  FATHOM_TRY(check_model(origin, reader.document));
  FATHOM_ASSIGN(reader.vocabulary.rules, read_split_rules(origin, reader.document));
  FATHOM_TRY(read_added(origin, at(reader.document, "added_tokens"), reader.vocabulary.added));
  return std::move(reader.vocabulary);
}

}  // namespace fathom
