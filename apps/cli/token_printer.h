// Writes a completion as text, ids or JSON lines, and keeps what is needed for log-probabilities.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "generation.h"
#include "output.h"
#include "text/stop_strings.h"

namespace fathom::cli {

enum class TokenFormat { kText, kIds, kJson };

/// A token is written once all of its text is known to be outside of a stop string.
class TokenPrinter {
 public:
  TokenPrinter(fathom_session* session, const fathom_tokenizer* tokenizer, TokenFormat format, int logprobs,
               std::vector<std::string> stop_strings, Output& output);

  Verdict take(int32_t id);
  void finish();
  /// Position, text and log-probability of each token, and the most likely ones beside it.
  void print_table(Output& output) const;

 private:
  struct Token {
    int32_t id = 0;
    size_t text_end = 0;  // released text must reach this for the token to be outside of a stop string
    double logprob = 0;
    std::vector<fathom_logprob> best;
  };

  std::string_view piece(int32_t id) const;
  Token describe(int32_t id) const;
  void release(const std::string& text);
  void write_token(const Token& token);

  fathom_session* session_;
  const fathom_tokenizer* tokenizer_;
  TokenFormat format_;
  int logprobs_;
  Utf8Stream characters_;
  StopStrings stop_strings_;
  Output& output_;
  std::vector<Token> tokens_;
  size_t written_ = 0;  // leading tokens_ that are out
  size_t decoded_bytes_ = 0, released_bytes_ = 0;
};

}  // namespace fathom::cli
