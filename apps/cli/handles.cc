#include "handles.h"

#include "failure.h"

namespace fathom::cli {

Prompt::Prompt(const fathom_tokenizer* tokenizer, const char* conversation_json) {
  require(fathom_chat_render(tokenizer, conversation_json, &prompt_));
}

}  // namespace fathom::cli
