// Shows an answer of the chat format while it is written.
#pragma once

#include <string>
#include <vector>

#include "generation.h"
#include "handles.h"
#include "output.h"
#include "text/stop_strings.h"

namespace fathom::cli {

/// Content goes to `content`. Reasoning and tool calls go to `aside`, dimmed where that has style; both may
/// be the same output. Stop strings are looked for in the content.
class AnswerPrinter {
 public:
  struct Options {
    const fathom_tokenizer* tokenizer = nullptr;
    bool starts_in_thinking = false;
    const char* conversation_json = nullptr;  // for the types of tool arguments
    std::vector<std::string> stop_strings;
  };
  AnswerPrinter(const Options& options, Output& content, Output& aside);

  Verdict take(int32_t id);
  /// Ends the answer with the token that ended it, or -1 if it was cut.
  void finish(int32_t end_id);
  /// The answer as a message of the conversation.
  std::string message_json() const;

 private:
  void show(const fathom_event* events, size_t count);
  void show_aside(std::string_view text);
  void show_content(std::string_view text);
  void leave_aside();

  Parser parser_;
  StopStrings stop_strings_;
  Output& content_;
  Output& aside_;
  bool in_aside_ = false;
};

}  // namespace fathom::cli
