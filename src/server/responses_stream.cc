#include "server/responses_stream.h"

#include <nlohmann/json.hpp>

#include "server/chat_conversion.h"
#include "server/responses_request.h"

namespace fathom {

// ---- Beginning and growing ----

Json ResponseOutput::event(const char* type) const {
  Json event{{"type", type}, {"item_id", item_["id"]}, {"output_index", index_}};
  return event;
}

void ResponseOutput::open(Kind kind, const char* prefix, Json item) {
  if (open_ != Kind::kNone) finish("completed");
  open_ = kind;
  ++index_;
  text_.clear();
  logprobs_ = Json::array();
  item_ = {{"id", fmt::format("{}_{}_{}", prefix, options_.key, index_)}};
  item_.update(item);
  item_["status"] = "in_progress";
  emit_({{"type", "response.output_item.added"}, {"output_index", index_}, {"item", item_}});
}

void ResponseOutput::open_part(Json part) {
  Json added = event("response.content_part.added");
  added["content_index"] = 0;
  added["part"] = std::move(part);
  emit_(std::move(added));
}

void ResponseOutput::open_call(const ChatEvent& event) {
  const bool is_custom = options_.custom_tools.contains(qualified_name(event.namespace_name, event.name));
  Json item{{"type", is_custom ? "custom_tool_call" : "function_call"},
            {"call_id", fmt::format("call_{}_{}", options_.key, event.call)},
            {"name", event.name},
            {is_custom ? kCustomToolInput : "arguments", ""}};
  if (!event.namespace_name.empty()) item["namespace"] = event.namespace_name;
  open(is_custom ? Kind::kCustomCall : Kind::kCall, is_custom ? "ctc" : "fc", std::move(item));
}

void ResponseOutput::add_text(const ChatEvent& piece, const char* type, Json logprobs) {
  text_ += piece.text;
  Json delta = event(type);
  if (open_ != Kind::kCall) delta["content_index"] = 0;
  delta["delta"] = piece.text;
  if (open_ == Kind::kMessage) {
    for (const Json& logprob : logprobs) logprobs_.push_back(logprob);
    delta["logprobs"] = std::move(logprobs);
  }
  emit_(std::move(delta));
}

void ResponseOutput::take(const ChatEvent& event, Json logprobs) {
  switch (event.kind) {
    case ChatEventKind::kReasoning:
      if (event.text.empty()) return;
      if (open_ != Kind::kReasoning) {
        open(Kind::kReasoning, "rs",
             {{"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}});
        open_part(part());
      }
      return add_text(event, "response.reasoning_text.delta", {});
    case ChatEventKind::kContent:
      if (event.text.empty()) return;
      if (open_ != Kind::kMessage) {
        open(Kind::kMessage, "msg", {{"type", "message"}, {"role", "assistant"}, {"content", Json::array()}});
        open_part(part());
      }
      return add_text(event, "response.output_text.delta", std::move(logprobs));
    case ChatEventKind::kCallStart:
      return open_call(event);
    case ChatEventKind::kCallArguments:
      if (open_ == Kind::kCall) return add_text(event, "response.function_call_arguments.delta", {});
      // The text is inside of the arguments' JSON, and told when that is whole.
      text_ += event.text;
      return;
    case ChatEventKind::kCallEnd:
      return finish("completed");
    case ChatEventKind::kCallDropped:
      return finish("incomplete");
  }
}

// ---- Ending ----

Json ResponseOutput::part() const {
  if (open_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}, {"logprobs", logprobs_}};
}

Json ResponseOutput::current() const {
  Json item = item_;
  switch (open_) {
    case Kind::kNone: break;
    case Kind::kReasoning:
    case Kind::kMessage: item["content"] = Json::array({part()}); break;
    case Kind::kCall: item["arguments"] = text_; break;
    case Kind::kCustomCall: break;
  }
  return item;
}

void ResponseOutput::finish_text() {
  const bool is_message = open_ == Kind::kMessage;
  Json done = event(is_message ? "response.output_text.done" : "response.reasoning_text.done");
  done["content_index"] = 0;
  done["text"] = text_;
  if (is_message) done["logprobs"] = logprobs_;
  emit_(std::move(done));
  Json part_done = event("response.content_part.done");
  part_done["content_index"] = 0;
  part_done["part"] = part();
  emit_(std::move(part_done));
  if (!is_message && options_.encrypted_reasoning) item_["encrypted_content"] = wrap_reasoning(text_);
}

// Of a call that is not whole, no event says that its arguments are done.
void ResponseOutput::finish_call(bool is_whole) {
  if (!is_whole) return;
  if (open_ == Kind::kCall) {
    Json done = event("response.function_call_arguments.done");
    done["name"] = item_["name"];
    done["arguments"] = text_;
    emit_(std::move(done));
    return;
  }
  const Json arguments = arguments_object(text_);
  const auto input = arguments.find(kCustomToolInput);
  const bool is_text = input != arguments.end() && input->is_string();
  item_[kCustomToolInput] = is_text ? input->get<std::string>() : text_;
  Json delta = event("response.custom_tool_call_input.delta");
  delta["delta"] = item_[kCustomToolInput];
  emit_(std::move(delta));
  Json done = event("response.custom_tool_call_input.done");
  done["input"] = item_[kCustomToolInput];
  emit_(std::move(done));
}

void ResponseOutput::finish(const char* status) {
  if (open_ == Kind::kNone) return;
  if (open_ == Kind::kReasoning || open_ == Kind::kMessage)
    finish_text();
  else
    finish_call(std::string_view(status) == "completed");
  item_["status"] = status;
  done_.push_back(current());
  open_ = Kind::kNone;
  emit_({{"type", "response.output_item.done"}, {"output_index", index_}, {"item", done_.back()}});
}

// A call is whole only if it said so itself.
void ResponseOutput::close(bool is_whole) {
  const bool is_call = open_ == Kind::kCall || open_ == Kind::kCustomCall;
  finish(is_whole && !is_call ? "completed" : "incomplete");
}

Json ResponseOutput::items() const {
  Json items = done_;
  if (open_ != Kind::kNone) items.push_back(current());
  return items;
}

std::string_view response_status(const AnswerEnd& end) {
  if (end.cause == FinishCause::kError) return "failed";
  return ended_whole(end) ? "completed" : "incomplete";
}

Json incomplete_details(const AnswerEnd& end, LoopFinishReason loop_reason) {
  const auto reason = [](const char* word) -> Json { return {{"reason", word}}; };
  switch (end.cause) {
    case FinishCause::kStopId:
    case FinishCause::kSink:
    case FinishCause::kError: return nullptr;
    case FinishCause::kMaxTokens:
    case FinishCause::kContextFull:
    case FinishCause::kDeadline: return reason("max_output_tokens");
    case FinishCause::kLoop:
      return reason(loop_reason == LoopFinishReason::kLength ? "max_output_tokens" : "content_filter");
    case FinishCause::kCancelled:
    case FinishCause::kShutdown: return reason("content_filter");
  }
  return nullptr;
}

Json response_usage(const GenerationUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens}};
}

}  // namespace fathom
