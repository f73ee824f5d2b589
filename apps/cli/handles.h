// Owners of what the C API creates.
#pragma once

#include <memory>
#include <span>

#include "fathom/fathom.h"

namespace fathom::cli {

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};

using Engine = std::unique_ptr<fathom_engine, Release<fathom_engine_close>>;
using Session = std::unique_ptr<fathom_session, Release<fathom_session_free>>;
using Tokenizer = std::unique_ptr<fathom_tokenizer, Release<fathom_tokenizer_close>>;
using Parser = std::unique_ptr<fathom_parser, Release<fathom_parser_free>>;
using Text = std::unique_ptr<char, Release<fathom_free>>;
using Ids = std::unique_ptr<int32_t, Release<fathom_free>>;

/// A rendered conversation.
class Prompt {
 public:
  Prompt(const fathom_tokenizer* tokenizer, const char* conversation_json);  // throws Failure
  ~Prompt() { fathom_prompt_free(&prompt_); }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  std::span<const int32_t> ids() const { return {prompt_.ids, prompt_.count}; }
  const fathom_prompt* operator->() const { return &prompt_; }

 private:
  fathom_prompt prompt_{};
};

}  // namespace fathom::cli
