// What a request demands of the form of its answers, as masks for the sampler.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/token_mask.h"
#include "grammar/grammar.h"
#include "server/generation_fields.h"
#include "text/chat_message.h"
#include "text/tokenizer.h"

namespace fathom {

/// Compiles grammars for one vocabulary and keeps those used last, those that were refused too. Any thread.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  Result<std::shared_ptr<const Grammar>> compile(const std::string& gbnf);

 private:
  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;  // made for the first grammar
  /// Least recently used first.
  std::vector<std::pair<std::string, Result<std::shared_ptr<const Grammar>>>> latest_;
};

/// Makes the mask of one answer; null when anything is allowed.
using MaskFactory = std::function<std::unique_ptr<TokenMask>()>;

struct ConstraintInput {
  const GenerationFields& fields;
  const std::vector<ChatTool>& tools;
  bool is_chat = true;
  bool starts_in_thinking = false;
};

/// kInvalidArgument: a schema or grammar that cannot be followed exactly, a tool that does not exist.
Result<MaskFactory> make_constraint(const ConstraintInput& input, const NamedTokens& named,
                                    GrammarCompiler& compiler);

}  // namespace fathom
