#include "text/chat_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/chat_template.h"
#include "text/chat_value.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

using Json = nlohmann::ordered_json;

class Writer {
 public:
  explicit Writer(RenderedPrompt& prompt) : prompt_(prompt) {}

  void control(std::string_view spelling) { prompt_.segments.push_back({true, std::string(spelling)}); }

  void text(std::string_view text) {
    if (text.empty()) return;
    if (prompt_.segments.empty() || prompt_.segments.back().is_control) prompt_.segments.push_back({});
    prompt_.segments.back().text += text;
  }

  /// Text of our own in which the spellings below are the control tokens.
  void template_text(std::string_view text_of_ours) {
    constexpr std::array kSpellings = {kThinkOpen, kThinkClose, kDsml};
    while (!text_of_ours.empty()) {
      size_t nearest = text_of_ours.size();
      std::string_view found;
      for (std::string_view spelling : kSpellings) {
        const size_t position = text_of_ours.find(spelling);
        if (position >= nearest) continue;
        nearest = position;
        found = spelling;
      }
      text(text_of_ours.substr(0, nearest));
      if (!found.empty()) control(found);
      text_of_ours.remove_prefix(nearest + found.size());
    }
  }

  void image(const std::string& url) {
    control(kImage);
    prompt_.image_urls.push_back(url);
  }

  RenderedPrompt& prompt() { return prompt_; }

 private:
  RenderedPrompt& prompt_;
};

/// "namespace::name" or "name", from a name that may be qualified already.
Result<std::string> qualified_name(const std::string& name, const std::string& namespace_name) {
  std::string space = namespace_name;
  std::string bare = name;
  if (const size_t separator = name.find("::"); separator != std::string::npos) {
    space = name.substr(0, separator);
    bare = name.substr(separator + 2);
    if (space.empty() || (!namespace_name.empty() && namespace_name != space))
      return Error::invalid("tool name \"{}\": expected namespace \"{}\", found \"{}\"", name, namespace_name,
                            space);
  }
  // The format escapes nothing, so a quote or a newline would end the tag that holds the name.
  constexpr std::string_view kForbidden("\"\n\r\0", 4);
  const std::string whole = space.empty() ? bare : space + "::" + bare;
  if (bare.empty() || bare.find("::") != std::string::npos || space.find("::") != std::string::npos ||
      whole.find_first_of(kForbidden) != std::string::npos)
    return Error::invalid("tool name \"{}\": expected NAME or NAMESPACE::NAME without quotes or newlines",
                          whole);
  return whole;
}

Result<std::string> tool_schema(const ChatTool& tool) {
  FATHOM_ASSIGN(Json function, parse_json_value(tool.function_json, "tool function"));
  if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
    return Error::invalid("tool function: expected an object with a name, found {}", tool.function_json);
  FATHOM_ASSIGN(function["name"], qualified_name(function["name"].get<std::string>(), tool.namespace_name));
  function.erase("namespace");
  if (!tool.namespace_description.empty()) {
    std::string description = tool.namespace_description + "\n";
    if (function.contains("description") && function["description"].is_string())
      description += function["description"].get<std::string>();
    function["description"] = description;
  }
  return write_python_json(function);
}

Result<void> write_tools(const std::vector<ChatTool>& tools, Writer& out) {
  out.template_text(kToolsBefore);
  for (size_t index = 0; index < tools.size(); ++index) {
    FATHOM_ASSIGN(std::string schema, tool_schema(tools[index]));
    if (index > 0) out.text("\n");
    out.text(schema);
  }
  out.text(kToolsAfter);
  return {};
}

/// The arguments as an object. Clients encode JSON in strings once too often, so a string is opened twice.
Json arguments_object(const std::string& text) {
  auto value = parse_json_value(text, "arguments");
  if (value.ok() && value->is_string()) value = parse_json_value(value->get<std::string>(), "arguments");
  if (value.ok() && value->is_object()) return *value;
  Json object = Json::object();
  object["arguments"] = text;
  return object;
}

Result<void> write_call(const ChatToolCall& call, Writer& out) {
  FATHOM_ASSIGN(std::string name, qualified_name(call.name, call.namespace_name));
  const Json arguments = arguments_object(call.arguments);
  out.text("<");
  out.control(kDsml);
  out.text(fmt::format(" invoke name=\"{}\">\n", name));
  bool first = true;
  for (const auto& [key, value] : arguments.items()) {
    if (!first) out.text("\n");
    first = false;
    out.text("<");
    out.control(kDsml);
    out.text(fmt::format(" parameter name=\"{}\" string=\"{}\">", key, value.is_string()));
    out.text(value.is_string() ? value.get<std::string>() : write_python_json(value));
    out.text("</");
    out.control(kDsml);
    out.text(" parameter>");
  }
  out.text("\n</");
  out.control(kDsml);
  out.text(" invoke>");
  return {};
}

Result<void> write_calls(const std::vector<ChatToolCall>& calls, Writer& out) {
  out.text("\n\n<");
  out.control(kDsml);
  out.text(" calls>\n");
  for (size_t index = 0; index < calls.size(); ++index) {
    if (index > 0) out.text("\n");
    FATHOM_TRY(write_call(calls[index], out));
  }
  out.text("\n</");
  out.control(kDsml);
  out.text(" calls>");
  return {};
}

void write_blocks(const std::vector<ChatBlock>& blocks, Writer& out) {
  for (size_t index = 0; index < blocks.size(); ++index) {
    if (index > 0) out.text("\n\n");
    const ChatBlock& block = blocks[index];
    switch (block.kind) {
      case ChatBlockKind::kText: out.text(block.text); break;
      case ChatBlockKind::kImage: out.image(block.image_url); break;
      case ChatBlockKind::kToolResult:
        out.text("<tool_result>");
        write_blocks(block.content, out);
        out.text("</tool_result>");
    }
  }
}

/// Tools and response format of the request become the first system message's.
std::vector<ChatMessage> with_request_parts(const Conversation& conversation) {
  std::vector<ChatMessage> messages = conversation.messages;
  if (conversation.tools.empty() && conversation.response_format_json.empty()) return messages;
  if (messages.front().role != ChatRole::kSystem)
    messages.insert(messages.begin(), ChatMessage::make(ChatRole::kSystem, ""));
  ChatMessage& system = messages.front();
  system.tools.insert(system.tools.end(), conversation.tools.begin(), conversation.tools.end());
  if (!conversation.response_format_json.empty())
    system.response_format_json = conversation.response_format_json;
  return messages;
}

/// Tool messages become result blocks of a user message, and neighbouring user messages one message.
std::vector<ChatMessage> merge_user_messages(std::vector<ChatMessage> messages) {
  std::vector<ChatMessage> merged;
  for (ChatMessage& message : messages) {
    const bool after_user = !merged.empty() && merged.back().role == ChatRole::kUser;
    if (message.role == ChatRole::kTool) {
      ChatBlock result;
      result.kind = ChatBlockKind::kToolResult;
      result.tool_call_id = std::move(message.tool_call_id);
      result.content = std::move(message.content);
      if (!after_user) merged.emplace_back();
      merged.back().content.push_back(std::move(result));
    } else if (message.role == ChatRole::kUser && after_user && merged.back().task == ChatTask::kNone) {
      auto& content = merged.back().content;
      content.insert(content.end(), std::make_move_iterator(message.content.begin()),
                     std::make_move_iterator(message.content.end()));
    } else {
      merged.push_back(std::move(message));
    }
  }
  return merged;
}

/// Results stand in the order of the calls they answer; other blocks keep their places.
void order_tool_results(std::vector<ChatMessage>& messages) {
  std::map<std::string, size_t> call_order;
  for (ChatMessage& message : messages) {
    if (message.role == ChatRole::kAssistant && !message.tool_calls.empty()) {
      call_order.clear();
      for (size_t call = 0; call < message.tool_calls.size(); ++call)
        if (!message.tool_calls[call].id.empty()) call_order[message.tool_calls[call].id] = call;
    }
    if (message.role != ChatRole::kUser || call_order.empty()) continue;
    // Rank and former place: equal ranks keep their order. A result that answers no known call counts as an
    // answer to the first.
    std::vector<std::pair<size_t, size_t>> order;
    const std::vector<ChatBlock> before = message.content;
    for (size_t index = 0; index < before.size(); ++index) {
      if (before[index].kind != ChatBlockKind::kToolResult) continue;
      auto found = call_order.find(before[index].tool_call_id);
      order.emplace_back(found == call_order.end() ? 0 : found->second, index);
    }
    std::sort(order.begin(), order.end());
    auto next = order.begin();
    for (ChatBlock& block : message.content)
      if (block.kind == ChatBlockKind::kToolResult) block = before[(next++)->second];
  }
}

std::string_view task_token(ChatTask task) {
  switch (task) {
    case ChatTask::kAction: return "<｜action｜>";
    case ChatTask::kQuery: return "<｜query｜>";
    case ChatTask::kAuthority: return "<｜authority｜>";
    case ChatTask::kDomain: return "<｜domain｜>";
    case ChatTask::kTitle: return "<｜title｜>";
    case ChatTask::kReadUrl: return "<｜read_url｜>";
    case ChatTask::kNone: break;
  }
  return {};
}

/// Renders one message after the other; what a message looks like depends on its place.
class ConversationWriter {
 public:
  ConversationWriter(std::vector<ChatMessage> messages, const Conversation& options, RenderedPrompt& prompt)
      : messages_(std::move(messages)), thinking_(options.thinking), effort_(options.effort), out_(prompt) {
    drop_reasoning_ = options.drop_reasoning;
    for (size_t index = 0; index < messages_.size(); ++index) {
      // With tools the model reasons between calls and may look back at it, so nothing is dropped.
      if (!messages_[index].tools.empty()) drop_reasoning_ = false;
      if (is_asking(index)) last_asking_ = index;
    }
  }

  Result<void> write() {
    out_.control(kBos);
    for (size_t index = 0; index < messages_.size(); ++index) {
      FATHOM_TRY(write_message(index));
      write_transition(index);
    }
    RenderedPrompt& prompt = out_.prompt();
    if (prompt.stable_segments == 0) prompt.stable_segments = prompt.segments.size();
    // Text at the end may grow, and its last token with it.
    if (!prompt.segments[prompt.stable_segments - 1].is_control) --prompt.stable_segments;
    prompt.starts_in_thinking = prompt.segments.back() == PromptSegment{true, std::string(kThinkOpen)};
    return {};
  }

 private:
  /// User messages and later system messages ask for an answer.
  bool is_asking(size_t index) const {
    const ChatRole role = messages_[index].role;
    return role == ChatRole::kUser || (role == ChatRole::kSystem && index > 0);
  }

  Result<void> write_message(size_t index) {
    const ChatMessage& message = messages_[index];
    if (index == 0 && (thinking_ || message.role == ChatRole::kSystem)) out_.control(kSystem);
    if (index == 0 && thinking_) out_.text(fmt::format(kEffortLine, effort_));
    switch (message.role) {
      case ChatRole::kSystem: return write_system(message, index);
      case ChatRole::kUser: out_.control(kUser); break;
      case ChatRole::kLatestReminder: out_.control(kLatestReminder); break;
      case ChatRole::kAssistant: return write_assistant(message, index);
      case ChatRole::kTool: return Error::internal("a tool message was not merged");
    }
    write_blocks(message.content, out_);
    return {};
  }

  Result<void> write_system(const ChatMessage& message, size_t index) {
    if (index > 0) out_.control(kSystem);
    write_blocks(message.content, out_);
    if (!message.tools.empty()) {
      out_.text("\n\n");
      FATHOM_TRY(write_tools(message.tools, out_));
    }
    if (!message.response_format_json.empty()) {
      FATHOM_ASSIGN(Json schema, parse_json_value(message.response_format_json, "response format"));
      out_.text("\n\n");
      out_.text(kResponseFormat);
      out_.text(write_python_json(schema));
    }
    return {};
  }

  bool is_after_last_asking(size_t index) const { return !last_asking_ || index > *last_asking_; }

  Result<void> write_assistant(const ChatMessage& message, size_t index) {
    const bool answers_task = index > 0 && messages_[index - 1].task != ChatTask::kNone;
    if (thinking_ && !answers_task && (!drop_reasoning_ || is_after_last_asking(index))) {
      out_.text(message.reasoning);
      out_.control(kThinkClose);
    }
    write_blocks(message.content, out_);
    if (!message.tool_calls.empty()) FATHOM_TRY(write_calls(message.tool_calls, out_));
    if (!message.without_eos) out_.control(kEos);
    return {};
  }

  /// What stands between a message and the answer to it.
  void write_transition(size_t index) {
    if (index + 1 < messages_.size()) {
      const ChatRole next = messages_[index + 1].role;
      if (next != ChatRole::kAssistant && next != ChatRole::kLatestReminder) return;
    }
    const ChatTask task = messages_[index].task;
    if (task != ChatTask::kNone) {
      if (task == ChatTask::kAction) {
        out_.control(kAssistant);
        out_.control(thinking_ ? kThinkOpen : kThinkClose);
      }
      out_.control(task_token(task));
    } else if (is_asking(index)) {
      out_.control(kAssistant);
      const bool is_last = index == *last_asking_;
      if (thinking_ && drop_reasoning_ && is_last)
        out_.prompt().stable_segments = out_.prompt().segments.size();
      out_.control(thinking_ && (!drop_reasoning_ || is_last) ? kThinkOpen : kThinkClose);
    }
  }

  std::vector<ChatMessage> messages_;
  bool thinking_;
  int effort_;
  bool drop_reasoning_;
  std::optional<size_t> last_asking_;
  Writer out_;
};

Result<void> append_tokens(std::span<const PromptSegment> segments, const Tokenizer& tokenizer,
                           std::vector<int32_t>& tokens) {
  for (const PromptSegment& segment : segments) {
    if (!segment.is_control) {
      tokenizer.encode_append(segment.text, tokens);
      continue;
    }
    const std::optional<int32_t> token = tokenizer.id_of(segment.text);
    if (!token || !tokenizer.is_added(*token))
      return Error::unsupported("tokenizer: expected control token {}, found none", segment.text);
    tokens.push_back(*token);
  }
  return {};
}

}  // namespace

Result<RenderedPrompt> render_conversation(const Conversation& conversation) {
  if (conversation.messages.empty()) return Error::invalid("messages: expected at least one, found none");
  if (conversation.effort < 1 || conversation.effort > 100)
    return Error::invalid("reasoning effort: expected 1 to 100, found {}", conversation.effort);
  std::vector<ChatMessage> messages = merge_user_messages(with_request_parts(conversation));
  order_tool_results(messages);
  RenderedPrompt prompt;
  FATHOM_TRY(ConversationWriter(std::move(messages), conversation, prompt).write());
  return prompt;
}

Result<std::vector<int32_t>> encode_prompt(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  FATHOM_TRY(append_tokens(prompt.segments, tokenizer, tokens));
  return tokens;
}

Result<size_t> stable_prefix_tokens(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  FATHOM_TRY(append_tokens(std::span(prompt.segments).first(prompt.stable_segments), tokenizer, tokens));
  return tokens.size();
}

std::string prompt_text(const RenderedPrompt& prompt) {
  std::string text;
  for (const PromptSegment& segment : prompt.segments) text += segment.text;
  return text;
}

}  // namespace fathom
