#include "token_printer.h"

#include <nlohmann/json.hpp>

#include "failure.h"

namespace fathom::cli {

TokenPrinter::TokenPrinter(fathom_session* session, const fathom_tokenizer* tokenizer, TokenFormat format,
                           int logprobs, std::vector<std::string> stop_strings, Output& output)
    : session_(session),
      tokenizer_(tokenizer),
      format_(format),
      logprobs_(logprobs),
      stop_strings_(std::move(stop_strings)),
      output_(output) {}

std::string_view TokenPrinter::piece(int32_t id) const {
  size_t bytes = 0;
  const char* text = fathom_token_bytes(tokenizer_, id, &bytes);
  return text == nullptr ? std::string_view() : std::string_view(text, bytes);
}

TokenPrinter::Token TokenPrinter::describe(int32_t id) const {
  Token token;
  token.id = id;
  if (logprobs_ == 0) return token;
  require(fathom_token_logprob(session_, id, &token.logprob));
  auto count = std::min(static_cast<size_t>(logprobs_), static_cast<size_t>(fathom_vocab_size(tokenizer_)));
  token.best.resize(count);
  require(fathom_top_logprobs(session_, token.best.data(), &count));
  token.best.resize(count);
  return token;
}

Verdict TokenPrinter::take(int32_t id) {
  Token token = describe(id);
  const std::string text = characters_.take(piece(id));
  decoded_bytes_ += text.size();
  token.text_end = decoded_bytes_ + (characters_.holding() ? 1 : 0);
  tokens_.push_back(std::move(token));
  release(stop_strings_.take(text));
  if (output_.is_closed()) return Verdict::kOutputClosed;
  return stop_strings_.found() ? Verdict::kStopString : Verdict::kGoOn;
}

void TokenPrinter::finish() {
  if (!stop_strings_.found()) {
    release(stop_strings_.take(characters_.finish()));
    release(stop_strings_.finish());
  }
  if (format_ == TokenFormat::kIds && written_ > 0) output_.write("\n");
}

void TokenPrinter::release(const std::string& text) {
  released_bytes_ += text.size();
  if (format_ == TokenFormat::kText) output_.write(text);
  while (written_ < tokens_.size() && tokens_[written_].text_end <= released_bytes_)
    write_token(tokens_[written_++]);
}

void TokenPrinter::write_token(const Token& token) {
  if (format_ == TokenFormat::kIds) output_.write(fmt::format("{}{}", written_ > 1 ? " " : "", token.id));
  if (format_ != TokenFormat::kJson) return;
  const std::string_view bytes = piece(token.id);
  nlohmann::ordered_json line = {{"id", token.id}, {"text", printable(bytes)}};
  line["bytes"] = std::vector<uint8_t>(bytes.begin(), bytes.end());
  if (logprobs_ > 0) {
    line["logprob"] = token.logprob;
    for (const fathom_logprob& best : token.best)
      line["top"].push_back(
          {{"id", best.id}, {"text", printable(piece(best.id))}, {"logprob", best.logprob}});
  }
  output_.write(line.dump() + "\n");
}

void TokenPrinter::print_table(Output& output) const {
  if (!output.at_line_start() || !output_.at_line_start()) output.write("\n");
  for (size_t at = 0; at < written_; ++at) {
    const Token& token = tokens_[at];
    std::string line = fmt::format("{:>6}  {:>9.4f}  {:<20}", at, token.logprob, quoted(piece(token.id)));
    for (const fathom_logprob& best : token.best)
      line += fmt::format("  {} {:.4f}", quoted(piece(best.id)), best.logprob);
    output.write(line + "\n");
  }
}

}  // namespace fathom::cli
