#include "text_source.h"

#include "failure.h"
#include "handles.h"
#include "model_options.h"
#include "output.h"
#include "sizes.h"

namespace fathom::cli {

void TextSource::add(CLI::App& app) {
  CLI::Option* text =
      app.add_option("text", text_file, "File with the text; - is standard input")->type_name("TEXT");
  app.add_option("--tokens", token_file, "File with token ids instead; a BOS token begins a document")
      ->type_name("FILE")
      ->excludes(text);
  app.add_flag("--special", parse_special, "Spellings of control tokens become those tokens");
  add_amount(app, "--limit", limit_tokens, parse_tokens, "Use only so many tokens of the text");
}

std::vector<int32_t> TextSource::read(const fathom_tokenizer* tokenizer) const {
  std::vector<int32_t> ids;
  if (!token_file.empty()) {
    ids = parse_ids(read_all(token_file));
  } else {
    if (text_file.empty()) fail_usage("no text: name a file, or - for standard input");
    if (tokenizer == nullptr) fail("the pack has no tokenizer: give token ids with --tokens");
    const std::string text = read_all(text_file);
    int32_t* memory = nullptr;
    size_t count = 0;
    require(fathom_tokenize(tokenizer, text.data(), text.size(), parse_special, &memory, &count));
    const Ids owner(memory);
    ids.assign(memory, memory + count);
  }
  if (limit_tokens > 0 && ids.size() > static_cast<size_t>(limit_tokens))
    ids.resize(static_cast<size_t>(limit_tokens));
  return ids;
}

}  // namespace fathom::cli
