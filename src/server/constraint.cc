#include "server/constraint.h"

#include <algorithm>

#include "server/tool_grammar.h"

namespace fathom {
namespace {

constexpr size_t kKeptGrammars = 16;

void clear_bit(std::span<uint64_t> bits, int32_t id) {
  if (id >= 0) bits[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64));
}

void keep_only(std::span<uint64_t> bits, int32_t id) {
  const size_t word = static_cast<size_t>(id) / 64;
  const uint64_t kept = bits[word] & uint64_t{1} << (id % 64);
  std::fill(bits.begin(), bits.end(), 0);
  bits[word] = kept;
}

/// The rules of one answer, in order: reasoning up to its budget, then the form of the rest.
struct MaskRules {
  NamedTokens named;
  bool starts_in_thinking = false;
  int64_t reasoning_tokens_max = -1;
  bool bans_calls = false;
  std::shared_ptr<const Grammar> grammar;  // of what follows the reasoning; null: free
};

class AnswerMask : public TokenMask {
 public:
  explicit AnswerMask(const MaskRules& rules) : rules_(rules), in_reasoning_(rules.starts_in_thinking) {
    if (rules_.grammar != nullptr) form_ = rules_.grammar->new_mask();
  }

  void restrict(std::span<uint64_t> bits) override {
    if (rules_.bans_calls) clear_bit(bits, rules_.named.dsml);
    if (!in_reasoning_) {
      if (form_ != nullptr) form_->restrict(bits);
      return;
    }
    if (rules_.reasoning_tokens_max >= 0 && reasoning_tokens_ >= rules_.reasoning_tokens_max)
      return keep_only(bits, rules_.named.think_close);
    if (form_ == nullptr) return;
    // An answer that must have a form has to come to it: nothing may end the turn before.
    const NamedTokens& named = rules_.named;
    for (const int32_t id : {named.eos, named.end_of_turn, named.user, named.assistant, named.system,
                             named.latest_reminder, named.dsml})
      clear_bit(bits, id);
  }

  void accept(int32_t id) override {
    if (!in_reasoning_) {
      if (form_ != nullptr) form_->accept(id);
      return;
    }
    ++reasoning_tokens_;
    // A call may begin while thinking; from there on it is not to be cut by the budget.
    if (id == rules_.named.think_close || id == rules_.named.dsml) in_reasoning_ = false;
  }

 private:
  const MaskRules rules_;
  std::unique_ptr<TokenMask> form_;
  bool in_reasoning_;
  int64_t reasoning_tokens_ = 0;
};

/// Prefixes an error of the grammar room with the member of the request it comes from.
Error at_member(const char* member, const Error& error) {
  std::string_view message = error.message;
  // "grammar, line 3, ..." says it already.
  const std::string doubled = std::string(member) + ", ";
  if (message.starts_with(doubled)) message.remove_prefix(doubled.size());
  return Error::invalid("{}: {}", member, message);
}

Result<std::string> form_rules(const GenerationFields& fields, const std::string& rule) {
  if (fields.form == AnswerForm::kJsonObject) return json_object_gbnf(rule);
  Result<std::string> rules = json_schema_gbnf(fields.schema, rule);
  if (!rules.ok()) return at_member("response_format.json_schema.schema", rules.error());
  return rules;
}

/// GBNF of the part after the reasoning; empty: free.
Result<std::string> answer_rules(const ConstraintInput& input, const NamedTokens& named) {
  const GenerationFields& fields = input.fields;
  const bool must_call =
      fields.tool_choice == ToolChoice::kRequired || fields.tool_choice == ToolChoice::kNamed;
  if (must_call && fields.form == AnswerForm::kGrammar)
    return Error::invalid("grammar: expected no tool_choice that demands a call beside it, found one");
  if (fields.form == AnswerForm::kGrammar) return fields.schema;
  if (must_call && input.tools.empty())
    return Error::invalid("tool_choice: expected tools beside it, found none");
  const bool has_form = fields.form != AnswerForm::kFree;
  if (!must_call && !has_form) return std::string();
  if (!must_call && (input.tools.empty() || fields.tool_choice == ToolChoice::kNone || !input.is_chat))
    return form_rules(fields, "root");

  ToolGrammarOptions options{.dsml_id = named.dsml, .parallel = fields.parallel_tool_calls, .only = {}};
  if (fields.tool_choice == ToolChoice::kNamed) options.only = fields.tool_name;
  if (named.dsml < 0) return Error::unsupported("tools: the model's vocabulary has no token for calls");
  FATHOM_ASSIGN(std::string rules, tool_calls_gbnf(input.tools, options, must_call ? "root" : "calls"));
  if (must_call) return rules;
  FATHOM_ASSIGN(const std::string form, form_rules(fields, "form"));
  return "root ::= form | calls\n" + form + "\n" + rules;
}

// Where a form is complete, only the end may follow.
Result<void> check_may_end(const GenerationFields& fields) {
  if (!fields.ignore_eos && fields.min_tokens == 0) return {};
  return Error::invalid("{}: expected no demand on the form of the answer beside it, found one",
                        fields.ignore_eos ? "ignore_eos" : "min_tokens");
}

}  // namespace

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const std::string& gbnf) {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::find_if(latest_.begin(), latest_.end(), [&](const auto& one) { return one.first == gbnf; });
    if (known != latest_.end()) {
      std::rotate(known, known + 1, latest_.end());
      return latest_.back().second;
    }
    if (vocabulary_ == nullptr) {
      std::vector<std::string> tokens(static_cast<size_t>(tokenizer_.vocab_size()));
      for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id)
        if (!tokenizer_.is_added(id)) tokens[static_cast<size_t>(id)] = tokenizer_.token_bytes(id);
      vocabulary_ = GrammarVocabulary::make(std::move(tokens), {tokenizer_.named().eos});
    }
    vocabulary = vocabulary_;
  }
  Result<std::shared_ptr<const Grammar>> grammar = compile_gbnf(gbnf, vocabulary);
  const std::lock_guard lock(mutex_);
  if (latest_.size() == kKeptGrammars) latest_.erase(latest_.begin());
  latest_.emplace_back(gbnf, grammar);
  return grammar;
}

Result<MaskFactory> make_constraint(const ConstraintInput& input, const NamedTokens& named,
                                    GrammarCompiler& compiler) {
  MaskRules rules{.named = named,
                  .starts_in_thinking = input.starts_in_thinking,
                  .reasoning_tokens_max = input.starts_in_thinking ? input.fields.reasoning_tokens_max : -1,
                  .bans_calls = input.fields.tool_choice == ToolChoice::kNone,
                  .grammar = nullptr};
  FATHOM_ASSIGN(const std::string gbnf, answer_rules(input, named));
  if (!gbnf.empty()) {
    FATHOM_TRY(check_may_end(input.fields));
    Result<std::shared_ptr<const Grammar>> grammar = compiler.compile(gbnf);
    if (!grammar.ok()) {
      const AnswerForm form = input.fields.form;
      return at_member(form == AnswerForm::kGrammar ? "grammar"
                       : form == AnswerForm::kFree  ? "tools"
                                                    : "response_format",
                       grammar.error());
    }
    rules.grammar = *grammar;
  }
  if (rules.grammar == nullptr && !rules.bans_calls && rules.reasoning_tokens_max < 0) return MaskFactory();
  return MaskFactory([rules] { return std::make_unique<AnswerMask>(rules); });
}

}  // namespace fathom
