// The texts that prompts are cut from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fathom/fathom.h"
#include "measure/result.h"

namespace fathom::measure {

/// A text, tokenised once and in one piece. The first id is BOS where the vocabulary has one, so "the first 32,768
/// tokens" are BOS and 32,767 of the text.
struct SourceText {
  Source source;
  std::vector<int32_t> ids;        // [tokens]
  std::string text;
  std::vector<size_t> text_ends;   // [tokens] bytes of the text up to and with this token

  /// Text of ids [from, to), both moved on to the next whole character, so that pieces that follow each other join
  /// to the text.
  std::string_view text_between(int64_t from, int64_t to) const;
};

/// `name` is a text that comes with the program ("novel", "code", "korean") or a path; other files are named by
/// their last component without suffix.
Result<SourceText> read_source(const std::string& name, const fathom_tokenizer* tokenizer);

/// Names of the texts that come with the program.
std::span<const char* const> source_names();

}  // namespace fathom::measure
