// An answer as the content blocks of the messages API, and the events that tell of them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "server/answer.h"
#include "server/finish.h"
#include "server/json_fields.h"

namespace fathom {

/// Turns what an answer brings into blocks. One is open at a time: it is closed before another opens.
class MessageBlocks {
 public:
  /// Gets events in order; `type` names each.
  using Emit = std::function<void(Json event)>;

  /// `call_prefix`: of the ids of tool_use blocks. Unless it shows thinking, its blocks have a signature only.
  MessageBlocks(std::string call_prefix, bool shows_thinking, Emit emit)
      : call_prefix_(std::move(call_prefix)), shows_thinking_(shows_thinking), emit_(std::move(emit)) {}

  void take(const ChatEvent& event);
  /// Closes the open block, if there is one.
  void close();
  /// The closed blocks. A call that was cut or proved malformed is none of them, although it was told as it came.
  const Json& content() const { return content_; }

 private:
  enum class Kind : uint8_t { kNone, kThinking, kText, kCall };
  void open(Kind kind, Json block);
  void open_call(const ChatEvent& event);
  void delta(Json delta);

  const std::string call_prefix_;
  const bool shows_thinking_;
  const Emit emit_;
  Kind open_ = Kind::kNone;
  bool call_is_whole_ = false;
  int index_ = -1;  // of the open block, or of the last one
  Json block_;      // the open one
  std::string text_;
  Json content_ = Json::array();
};

/// "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded" or "refusal".
std::string_view message_stop_reason(const Answer& answer, const AnswerEnd& end, LoopFinishReason loop_reason);
/// The string, or the text of the token, that ended the answer on request; otherwise null.
Json message_stop_sequence(const Answer& answer, const AnswerEnd& end, const Tokenizer& tokenizer);
/// "input_tokens" are those that no cache had, as in Anthropic's API.
Json message_usage(const GenerationUsage& usage);

}  // namespace fathom
