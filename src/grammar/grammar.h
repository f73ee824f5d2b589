// A grammar over the bytes and control tokens of an answer, compiled once for a vocabulary and used by any
// number of answers at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/token_mask.h"

namespace fathom {

/// The bytes of every token, arranged for walking; made once a vocabulary. Immutable, any thread.
class GrammarVocabulary {
 public:
  /// `tokens[id]`: its bytes; empty for ids that text never has (control tokens: they match by id only).
  /// `end_ids`: what ends an answer; allowed exactly where the grammar can end.
  static std::shared_ptr<const GrammarVocabulary> make(std::vector<std::string> tokens,
                                                       std::vector<int32_t> end_ids);
  virtual ~GrammarVocabulary() = default;
  virtual int32_t size() const = 0;
};

/// Immutable after compiling; any number of masks on any thread.
class Grammar {
 public:
  virtual ~Grammar() = default;
  /// A walker at the start of an answer; keeps the grammar alive. After a token that the grammar does not
  /// allow, after an end id, and where the vocabulary cannot spell what has to follow it allows nothing but
  /// the end ids.
  virtual std::unique_ptr<TokenMask> new_mask() const = 0;
};

/// GBNF, as llama.cpp documents it, with token literals `<[id]>` and `!<[id]>`; docs/formats/grammar.md. The
/// root is "root". kInvalidArgument with line and column; the same for left recursion, unknown rules, token
/// ids that the vocabulary does not have or that end an answer, and grammars above the limits that the page
/// states.
Result<std::shared_ptr<const Grammar>> compile_gbnf(std::string_view text,
                                                    std::shared_ptr<const GrammarVocabulary> vocabulary);

/// A literal of GBNF that matches exactly `bytes`, in its quotes; any bytes, also those that are no UTF-8.
std::string gbnf_literal(std::string_view bytes);

/// A JSON Schema (2020-12 keywords listed in docs/formats/grammar.md) as GBNF text whose rules begin with
/// `prefix`, with the rule `prefix` (letters, digits, - and _) for the whole value; texts with different
/// prefixes, none of which begins with another one and a '-', can be put into one grammar. Members come in
/// the order of "properties". kInvalidArgument names the place (`#/properties/age/minimum`) of a keyword that
/// is not supported or contradicts itself.
Result<std::string> json_schema_gbnf(std::string_view schema_json, std::string_view prefix = "root");
/// Any JSON object.
std::string json_object_gbnf(std::string_view prefix = "root");

}  // namespace fathom
