// Splits what the model writes into reasoning, content and tool calls while it is being written.
//
// Structure is decided by control token ids, never by spelling: prose that spells "</think>" or a call block
// stays prose. The result and the concatenated events do not depend on how the stream was cut into feeds.
// The rules, also for malformed output, are in docs/formats/chat.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_message.h"
#include "text/chat_parameter_types.h"
#include "text/tokenizer.h"

namespace fathom {

enum class ChatEventKind : uint8_t {
  kReasoning,      // text: more reasoning
  kContent,        // text: more of the answer
  kCallStart,      // name, namespace_name
  kCallArguments,  // text: more of the arguments' JSON
  kCallEnd,        // the arguments are whole, valid JSON
  kCallDropped,    // the call proved malformed; forget it, its markup follows as text
};

struct ChatEvent {
  ChatEventKind kind = ChatEventKind::kContent;
  int call = -1;     // calls count from 0 in the order of their start, dropped ones included
  std::string text;  // whole UTF-8 characters
  std::string name;
  std::string namespace_name;
};

enum class TurnEnd : uint8_t {
  kOpen,       // not finished
  kEos,        // the model ended its turn
  kEndOfTurn,  // by <|EOT|>
  kRoleToken,  // it began to write another role's turn, which ends its own
  kCut,        // finish() came before any of these: token limit, stop string, cancellation
};

struct ParsedCall {
  int index = 0;  // ChatEvent::call
  std::string name;
  std::string namespace_name;
  std::string arguments;  // valid JSON object if complete, else the part that arrived
  bool complete = false;
};

struct ParsedTurn {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;         // without dropped ones; only the last can be incomplete
  std::vector<std::string> diagnostics;  // what was out of order, one line each
  bool reasoning_unclosed = false;       // ended while thinking, without a call
  TurnEnd end = TurnEnd::kOpen;
};

class ChatParser {
 public:
  /// `types` may be null and is borrowed for the parser's life.
  ChatParser(const NamedTokens& tokens, bool starts_in_thinking, const ParameterTypes* types = nullptr);
  ~ChatParser();
  ChatParser(ChatParser&&) noexcept;
  ChatParser& operator=(ChatParser&&) noexcept;

  /// Takes one token and its bytes, appends what it decided to `events`; a text event extends the last
  /// event if that is of the same kind and call. Tokens after the end of the turn are ignored.
  void feed(int32_t token, std::string_view bytes, std::vector<ChatEvent>& events);
  void feed(std::span<const int32_t> tokens, const Tokenizer& tokenizer, std::vector<ChatEvent>& events);
  /// Ends the stream: what was held back is decided. Does nothing the second time.
  void finish(std::vector<ChatEvent>& events);

  /// Whether the model ended its turn (end != kOpen).
  bool ended() const;
  /// Whether the next character belongs to reasoning; what a structured-output mask needs to know.
  bool in_reasoning() const;
  const ParsedTurn& turn() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Parses a whole completion.
ParsedTurn parse_completion(std::span<const int32_t> tokens, const Tokenizer& tokenizer,
                            bool starts_in_thinking, const ParameterTypes* types = nullptr);

/// The turn as a message to append to the conversation; incomplete calls are left out.
ChatMessage to_message(const ParsedTurn& turn);

}  // namespace fathom
