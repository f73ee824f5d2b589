// fathom tokenize, fathom detokenize: text to ids and back.
#include <unistd.h>

#include "commands.h"
#include "failure.h"
#include "model_options.h"
#include "output.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

struct TokenizeOptions {
  ModelOptions model;
  std::string text;
  CLI::Option* text_option = nullptr;
  bool parse_special = false, bos = false, ids_only = false, pieces = false;
};

std::string_view piece(const fathom_tokenizer* tokenizer, int32_t id) {
  size_t bytes = 0;
  const char* text = fathom_token_bytes(tokenizer, id, &bytes);
  return text == nullptr ? std::string_view() : std::string_view(text, bytes);
}

int tokenize(TokenizeOptions& options) {
  if (options.text_option->count() == 0) {
    if (isatty(STDIN_FILENO)) fail_usage("no text: name one, or send it to standard input");
    options.text = read_all("-");
  }
  const Tokenizer tokenizer = open_tokenizer(options.model);
  int32_t* memory = nullptr;
  size_t count = 0;
  require(fathom_tokenize(tokenizer.get(), options.text.data(), options.text.size(), options.parse_special,
                          &memory, &count));
  const Ids owner(memory);
  std::vector<int32_t> ids(memory, memory + count);
  const int32_t bos = fathom_token_id(tokenizer.get(), FATHOM_TOKEN_BOS);
  if (options.bos && bos >= 0) ids.insert(ids.begin(), bos);

  std::string text;
  if (options.ids_only) {
    text = fmt::format("{}\n", fmt::join(ids, " "));
  } else {
    for (const int32_t id : ids) {
      if (!options.pieces) text += fmt::format("{}\t", id);
      text += quoted(piece(tokenizer.get(), id)) + "\n";
    }
  }
  Output output(STDOUT_FILENO);
  return output.write(text) ? 0 : kExitOutputClosed;
}

struct DetokenizeOptions {
  ModelOptions model;
  std::vector<std::string> words;
};

int detokenize(const DetokenizeOptions& options) {
  if (options.words.empty() && isatty(STDIN_FILENO))
    fail_usage("no ids: name some, or send them to standard input");
  const std::vector<int32_t> ids =
      parse_ids(options.words.empty() ? read_all("-") : fmt::format("{}", fmt::join(options.words, " ")));
  const Tokenizer tokenizer = open_tokenizer(options.model);
  const int32_t vocab_size = fathom_vocab_size(tokenizer.get());
  for (const int32_t id : ids)
    if (id >= vocab_size) fail("token {} is not in the vocabulary of {} tokens", id, vocab_size);
  char* memory = nullptr;
  size_t bytes = 0;
  require(fathom_detokenize(tokenizer.get(), ids.data(), ids.size(), &memory, &bytes));
  const Text text(memory);
  Output output(STDOUT_FILENO);
  output.write({text.get(), bytes});
  if (output.is_terminal() && !output.at_line_start()) output.write("\n");
  return output.is_closed() ? kExitOutputClosed : 0;
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids");
  auto options = std::make_shared<TokenizeOptions>();
  options->model.add_path(*command);
  options->text_option =
      command->add_option("text", options->text, "Text (default: standard input, every byte of it)");
  command->add_flag("--special", options->parse_special, "Spellings of control tokens become those tokens");
  command->add_flag("--bos", options->bos, "Put the token that begins a text in front");
  CLI::Option* ids_only =
      command->add_flag("--ids-only", options->ids_only, "Ids on one line, for detokenize");
  command->add_flag("--pieces", options->pieces, "The pieces of text only")->excludes(ids_only);
  command->footer(
      "Prints a line for each token: its id, a tab, its text as a JSON string.\n\n"
      "Examples:\n"
      "  fathom tokenize \"Hello there\"\n"
      "  fathom tokenize --ids-only < story.txt | fathom detokenize\n");
  return {command, [options] { return tokenize(*options); }};
}

Command add_detokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("detokenize", "Turn token ids into text");
  auto options = std::make_shared<DetokenizeOptions>();
  options->model.add_path(*command);
  command->add_option("ids", options->words, "Token ids (default: from standard input)")->type_name("ID");
  command->footer(
      "Ids are separated by white space or commas, or form a JSON array. Prints exactly the tokens' "
      "bytes.\n\n"
      "Example:\n"
      "  fathom detokenize 71 279 1340\n");
  return {command, [options] { return detokenize(*options); }};
}

}  // namespace fathom::cli
