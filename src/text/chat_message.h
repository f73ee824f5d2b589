// A conversation as the chat format sees it: messages, content blocks, tools and tool calls. Plain data.
//
// JSON that a model or client wrote (schemas, arguments) is kept as text, so key order and numbers survive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fathom {

enum class ChatRole : uint8_t {
  kSystem,
  kUser,
  kAssistant,
  kTool,            // the result of one call; rendered inside a user message
  kLatestReminder,  // a note by the application, outranked by what follows it
};

/// What a single-purpose prompt asks of the model instead of an answer.
enum class ChatTask : uint8_t { kNone, kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

enum class ChatBlockKind : uint8_t { kText, kImage, kToolResult };

struct ChatBlock {
  ChatBlockKind kind = ChatBlockKind::kText;
  std::string text;                // kText
  std::string image_url;           // kImage: path, http(s) address or data: URL, as received
  std::string tool_call_id;        // kToolResult: the call it answers; may be empty
  std::vector<ChatBlock> content;  // kToolResult: text and image blocks

  static ChatBlock make_text(std::string text) {
    ChatBlock block;
    block.text = std::move(text);
    return block;
  }
  static ChatBlock make_image(std::string url) {
    ChatBlock block;
    block.kind = ChatBlockKind::kImage;
    block.image_url = std::move(url);
    return block;
  }
  bool operator==(const ChatBlock&) const = default;
};

struct ChatToolCall {
  std::string id;              // the client's; never rendered, only used to order results
  std::string name;            // may be written "namespace::name"
  std::string namespace_name;  // empty: none
  std::string arguments;       // JSON object text; other text becomes one parameter called "arguments"
  bool operator==(const ChatToolCall&) const = default;
};

struct ChatTool {
  std::string function_json;          // the "function" object: name, description, parameters, ...
  std::string namespace_name;         // empty: none
  std::string namespace_description;  // put in front of the tool's own description
  bool operator==(const ChatTool&) const = default;
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::vector<ChatBlock> content;
  std::string reasoning;                 // assistant
  std::vector<ChatToolCall> tool_calls;  // assistant
  std::string tool_call_id;              // tool
  ChatTask task = ChatTask::kNone;       // usually on the last user message
  bool without_eos = false;              // assistant: the model shall go on writing this message
  std::vector<ChatTool> tools;           // system
  std::string response_format_json;      // system: schema text, empty: none

  static ChatMessage make(ChatRole role, std::string text) {
    ChatMessage message;
    message.role = role;
    message.content.push_back(ChatBlock::make_text(std::move(text)));
    return message;
  }
  bool operator==(const ChatMessage&) const = default;
};

constexpr int kEffortLow = 50;
constexpr int kEffortHigh = 75;
constexpr int kEffortMax = 100;

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<ChatTool> tools;       // rendered in the system message at index 0, which is added if missing
  std::string response_format_json;  // likewise
  bool thinking = true;
  int effort = kEffortHigh;    // 1..100, rendered in thinking mode only
  bool drop_reasoning = true;  // without tools: forget the reasoning of turns before the last user message
  std::vector<std::string> ignored;  // parts of a request that were understood but left out, for a log
};

}  // namespace fathom
