#include "server/messages_stream.h"

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "server/chat_conversion.h"
#include "text/utf8.h"

namespace fathom {
namespace {

// Clients check that there is one and send it back; nobody but its maker could tell more of it.
std::string signature_of(const std::string& thinking) {
  return "fathom-" + hex_string(sha256(std::as_bytes(std::span(thinking))));
}

}  // namespace

void MessageBlocks::open(Kind kind, Json block) {
  if (open_ != Kind::kNone) close();
  open_ = kind;
  ++index_;
  text_.clear();
  block_ = std::move(block);
  emit_({{"type", "content_block_start"}, {"index", index_}, {"content_block", block_}});
}

void MessageBlocks::open_call(const ChatEvent& event) {
  call_is_whole_ = false;
  open(Kind::kCall, {{"type", "tool_use"},
                     {"id", fmt::format("{}_{}", call_prefix_, event.call)},
                     {"name", qualified_name(event.namespace_name, event.name)},
                     {"input", Json::object()}});
}

void MessageBlocks::delta(Json delta) {
  emit_({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
}

void MessageBlocks::take(const ChatEvent& event) {
  switch (event.kind) {
    case ChatEventKind::kReasoning:
      if (event.text.empty()) return;
      if (open_ != Kind::kThinking)
        open(Kind::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      text_ += event.text;
      if (shows_thinking_) delta({{"type", "thinking_delta"}, {"thinking", event.text}});
      return;
    case ChatEventKind::kContent:
      if (event.text.empty()) return;
      if (open_ != Kind::kText) open(Kind::kText, {{"type", "text"}, {"text", ""}});
      text_ += event.text;
      return delta({{"type", "text_delta"}, {"text", event.text}});
    case ChatEventKind::kCallStart:
      return open_call(event);
    case ChatEventKind::kCallArguments:
      text_ += event.text;
      return delta({{"type", "input_json_delta"}, {"partial_json", event.text}});
    case ChatEventKind::kCallEnd:
      call_is_whole_ = true;
      return close();
    case ChatEventKind::kCallDropped:
      return close();
  }
}

void MessageBlocks::close() {
  const Kind kind = std::exchange(open_, Kind::kNone);
  if (kind == Kind::kNone) return;
  if (kind == Kind::kText) block_["text"] = text_;
  if (kind == Kind::kThinking) {
    block_["signature"] = signature_of(text_);
    if (shows_thinking_) block_["thinking"] = text_;
    delta({{"type", "signature_delta"}, {"signature", block_["signature"]}});
  }
  if (kind == Kind::kCall) block_["input"] = arguments_object(text_);
  emit_({{"type", "content_block_stop"}, {"index", index_}});
  if (kind != Kind::kCall || call_is_whole_) content_.push_back(std::move(block_));
}

std::string_view message_stop_reason(const Answer& answer, const AnswerEnd& end, LoopFinishReason loop_reason) {
  const std::string_view type = finish_type(answer, end);
  if (type == "stop_string" || type == "stop_token") return "stop_sequence";
  if (type == "tool_calls") return "tool_use";
  if (type == "stop") return "end_turn";
  if (type == "context_full") return "model_context_window_exceeded";
  if (type != "loop" || loop_reason == LoopFinishReason::kLength) return "max_tokens";
  return loop_reason == LoopFinishReason::kStop ? "end_turn" : "refusal";
}

Json message_stop_sequence(const Answer& answer, const AnswerEnd& end, const Tokenizer& tokenizer) {
  if (!end.stop_string.empty()) return end.stop_string;
  if (finish_type(answer, end) == "stop_token") return replace_invalid_utf8(tokenizer.token_bytes(end.stop_id));
  return nullptr;
}

Json message_usage(const GenerationUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.generated_tokens},
          {"output_tokens_details", {{"thinking_tokens", usage.reasoning_tokens}}},
          {"server_tool_use", nullptr},
          {"service_tier", "standard"}};
}

}  // namespace fathom
