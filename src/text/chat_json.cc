#include "text/chat_json.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "text/chat_value.h"

namespace fathom {
namespace {

using Json = nlohmann::ordered_json;
using Blocks = std::vector<ChatBlock>;

std::string describe(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = write_python_json(value);
  constexpr size_t kShownBytes = 60;
  if (text.size() <= kShownBytes) return text;
  size_t cut = kShownBytes;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

Error wrong(std::string_view path, std::string_view expected, const Json& found) {
  return Error::invalid("{}: expected {}, found {}", path, expected, describe(found));
}

/// The member, or null if it is absent or JSON null: clients write both for "not given".
const Json* given(const Json& object, const char* name) {
  auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> string_or_empty(const Json& object, const char* name, const std::string& path) {
  const Json* value = given(object, name);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return wrong(fmt::format("{}.{}", path, name), "a string", *value);
  return value->get<std::string>();
}

Result<std::string> required_string(const Json& object, const char* name, const std::string& path) {
  if (given(object, name) == nullptr)
    return Error::invalid("{}.{}: expected a string, found nothing", path, name);
  return string_or_empty(object, name, path);
}

std::string data_url(const std::string& media_type, const std::string& base64) {
  return fmt::format("data:{};base64,{}", media_type.empty() ? "application/octet-stream" : media_type,
                     base64);
}

/// {"type": "image", "source" | "url" | "data": ...}: the shapes of Anthropic's API and of plain records.
Result<std::string> image_source(const Json& block, const std::string& path) {
  const Json* source = given(block, "source");
  if (source != nullptr && source->is_object()) {
    const std::string source_path = path + ".source";
    if (given(*source, "url") != nullptr) return required_string(*source, "url", source_path);
    FATHOM_ASSIGN(std::string data, required_string(*source, "data", source_path));
    FATHOM_ASSIGN(std::string media_type, string_or_empty(*source, "media_type", source_path));
    return data_url(media_type, data);
  }
  if (source != nullptr) return required_string(block, "source", path);
  if (given(block, "url") != nullptr) return required_string(block, "url", path);
  if (given(block, "data") == nullptr)
    return Error::invalid("{}: expected an image's source, url or data, found none", path);
  FATHOM_ASSIGN(std::string data, required_string(block, "data", path));
  FATHOM_ASSIGN(std::string media_type, string_or_empty(block, "media_type", path));
  return data_url(media_type, data);
}

Result<std::string> image_url(const Json& block, const std::string& path) {
  const Json* value = given(block, "image_url");
  if (value != nullptr && value->is_object()) return required_string(*value, "url", path + ".image_url");
  return required_string(block, "image_url", path);
}

Result<Blocks> parse_content(const Json* value, const std::string& path, bool in_tool_result);

Result<ChatBlock> parse_block(const Json& block, const std::string& path, bool in_tool_result) {
  if (!block.is_object()) return wrong(path, "a content block", block);
  FATHOM_ASSIGN(std::string type, required_string(block, "type", path));
  if (type == "text") {
    FATHOM_ASSIGN(std::string text, required_string(block, "text", path));
    return ChatBlock::make_text(std::move(text));
  }
  if (type == "image_url" || type == "image") {
    FATHOM_ASSIGN(std::string url, type == "image" ? image_source(block, path) : image_url(block, path));
    if (url.empty()) return Error::invalid("{}: expected an image address, found an empty one", path);
    return ChatBlock::make_image(std::move(url));
  }
  if (type == "tool_result" && !in_tool_result) {
    ChatBlock result;
    result.kind = ChatBlockKind::kToolResult;
    const char* id = given(block, "tool_use_id") != nullptr ? "tool_use_id" : "tool_call_id";
    FATHOM_ASSIGN(result.tool_call_id, string_or_empty(block, id, path));
    FATHOM_ASSIGN(result.content, parse_content(given(block, "content"), path + ".content", true));
    return result;
  }
  const char* expected = in_tool_result ? "\"text\", \"image_url\" or \"image\""
                                        : "\"text\", \"image_url\", \"image\" or \"tool_result\"";
  return wrong(path + ".type", expected, block["type"]);
}

Result<Blocks> parse_content(const Json* value, const std::string& path, bool in_tool_result) {
  if (value == nullptr) return Blocks{};
  if (value->is_string()) return Blocks{ChatBlock::make_text(value->get<std::string>())};
  if (!value->is_array()) return wrong(path, "a string or an array of content blocks", *value);
  Blocks blocks;
  for (size_t index = 0; index < value->size(); ++index) {
    FATHOM_ASSIGN(ChatBlock block,
                  parse_block((*value)[index], fmt::format("{}[{}]", path, index), in_tool_result));
    blocks.push_back(std::move(block));
  }
  return blocks;
}

Result<ChatRole> parse_role(const Json& message, const std::string& path) {
  FATHOM_ASSIGN(std::string role, required_string(message, "role", path));
  if (role == "system" || role == "developer") return ChatRole::kSystem;
  if (role == "user") return ChatRole::kUser;
  if (role == "assistant") return ChatRole::kAssistant;
  if (role == "tool") return ChatRole::kTool;
  if (role == "latest_reminder") return ChatRole::kLatestReminder;
  return wrong(path + ".role", "system, developer, user, assistant, tool or latest_reminder",
               message["role"]);
}

Result<ChatTask> parse_task(const Json& message, const std::string& path) {
  FATHOM_ASSIGN(std::string task, string_or_empty(message, "task", path));
  if (given(message, "task") == nullptr) return ChatTask::kNone;
  if (task == "action") return ChatTask::kAction;
  if (task == "query") return ChatTask::kQuery;
  if (task == "authority") return ChatTask::kAuthority;
  if (task == "domain") return ChatTask::kDomain;
  if (task == "title") return ChatTask::kTitle;
  if (task == "read_url") return ChatTask::kReadUrl;
  return wrong(path + ".task", "action, query, authority, domain, title or read_url", message["task"]);
}

struct Namespace {
  std::string name;
  std::string description;
};

/// "namespace" beside the function outranks the one inside it; a string, or {"name", "description"}.
Result<Namespace> parse_namespace(const Json& outer, const Json& function, const std::string& path) {
  const bool is_outer = given(outer, "namespace") != nullptr;
  const Json* value = is_outer ? given(outer, "namespace") : given(function, "namespace");
  const std::string where = path + (is_outer ? ".namespace" : ".function.namespace");
  if (value == nullptr) return Namespace{};
  if (value->is_string()) return Namespace{value->get<std::string>(), ""};
  if (!value->is_object()) return wrong(where, "a string or an object with a name", *value);
  Namespace result;
  FATHOM_ASSIGN(result.name, required_string(*value, "name", where));
  FATHOM_ASSIGN(result.description, string_or_empty(*value, "description", where));
  return result;
}

Result<const Json*> function_of(const Json& item, const std::string& path) {
  const Json* function = given(item, "function");
  if (function == nullptr) return Error::invalid("{}.function: expected an object, found nothing", path);
  if (!function->is_object()) return wrong(path + ".function", "an object", *function);
  return function;
}

Result<ChatToolCall> parse_call(const Json& call, const std::string& path) {
  if (!call.is_object()) return wrong(path, "a tool call", call);
  FATHOM_ASSIGN(const Json* function, function_of(call, path));
  ChatToolCall result;
  FATHOM_ASSIGN(result.id, string_or_empty(call, "id", path));
  if (result.id.empty()) {
    FATHOM_ASSIGN(result.id, string_or_empty(*function, "id", path + ".function"));
  }
  FATHOM_ASSIGN(result.name, required_string(*function, "name", path + ".function"));
  FATHOM_ASSIGN(Namespace space, parse_namespace(call, *function, path));
  result.namespace_name = std::move(space.name);
  const Json* arguments = given(*function, "arguments");
  if (arguments == nullptr)
    result.arguments = "{}";
  else if (arguments->is_string())
    result.arguments = arguments->get<std::string>();
  else if (arguments->is_object())
    result.arguments = write_python_json(*arguments);
  else
    return wrong(path + ".function.arguments", "a string or an object", *arguments);
  return result;
}

Result<std::vector<ChatTool>> parse_tools(const Json* tools, const std::string& path,
                                          std::vector<std::string>& ignored) {
  std::vector<ChatTool> result;
  if (tools == nullptr) return result;
  if (!tools->is_array()) return wrong(path, "an array of tools", *tools);
  for (size_t index = 0; index < tools->size(); ++index) {
    const Json& tool = (*tools)[index];
    const std::string where = fmt::format("{}[{}]", path, index);
    if (!tool.is_object()) return wrong(where, "a tool", tool);
    FATHOM_ASSIGN(std::string type, string_or_empty(tool, "type", where));
    if (!type.empty() && type != "function") {
      // Agents offer kinds only their vendor's servers know (web_search, ...) and work without them.
      ignored.push_back(fmt::format("{} of type {}", where, describe(tool["type"])));
      continue;
    }
    FATHOM_ASSIGN(const Json* function, function_of(tool, where));
    FATHOM_TRY(required_string(*function, "name", where + ".function"));
    FATHOM_ASSIGN(Namespace space, parse_namespace(tool, *function, where));
    result.push_back({write_python_json(*function), std::move(space.name), std::move(space.description)});
  }
  return result;
}

Result<void> parse_calls(const Json& message, const std::string& path, ChatMessage& result) {
  const Json* calls = given(message, "tool_calls");
  if (calls == nullptr) return {};
  if (!calls->is_array()) return wrong(path + ".tool_calls", "an array of tool calls", *calls);
  for (size_t index = 0; index < calls->size(); ++index) {
    FATHOM_ASSIGN(ChatToolCall call,
                  parse_call((*calls)[index], fmt::format("{}.tool_calls[{}]", path, index)));
    result.tool_calls.push_back(std::move(call));
  }
  return {};
}

/// Members that belong to another role are refused: leaving them out would change what the model sees.
Result<void> check_members(const Json& message, const std::string& path, ChatRole role) {
  struct Rule {
    const char* member;
    ChatRole role;
    const char* role_name;
  };
  constexpr Rule kRules[] = {
      {"tool_calls", ChatRole::kAssistant, "an assistant"},
      {"tool_call_id", ChatRole::kTool, "a tool"},
      {"tools", ChatRole::kSystem, "a system"},
      {"response_format", ChatRole::kSystem, "a system"},
      {"wo_eos", ChatRole::kAssistant, "an assistant"},
      {"prefix", ChatRole::kAssistant, "an assistant"},
      {"reasoning_content", ChatRole::kAssistant, "an assistant"},
  };
  for (const Rule& rule : kRules) {
    const Json* value = given(message, rule.member);
    if (value == nullptr || role == rule.role || value->empty()) continue;
    if (*value == false || *value == "") continue;
    return Error::invalid("{}.{}: expected only on {} message, found {}", path, rule.member, rule.role_name,
                          describe(*value));
  }
  return {};
}

Result<bool> bool_or(const Json& object, const char* name, const std::string& path, bool otherwise) {
  const Json* value = given(object, name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return wrong(fmt::format("{}.{}", path, name), "true or false", *value);
  return value->get<bool>();
}

Result<ChatMessage> parse_message(const Json& message, const std::string& path,
                                  std::vector<std::string>& ignored) {
  if (!message.is_object()) return wrong(path, "a message", message);
  ChatMessage result;
  FATHOM_ASSIGN(result.role, parse_role(message, path));
  FATHOM_TRY(check_members(message, path, result.role));
  FATHOM_ASSIGN(result.content,
                parse_content(given(message, "content"), path + ".content", result.role != ChatRole::kUser));
  // A user who says nothing still takes a place between tool results.
  if (result.role == ChatRole::kUser && given(message, "content") == nullptr)
    result.content.push_back(ChatBlock::make_text(""));
  FATHOM_ASSIGN(result.task, parse_task(message, path));
  if (result.role == ChatRole::kAssistant) {
    FATHOM_ASSIGN(result.reasoning, string_or_empty(message, "reasoning_content", path));
    FATHOM_TRY(parse_calls(message, path, result));
    FATHOM_ASSIGN(bool prefix, bool_or(message, "prefix", path, false));
    FATHOM_ASSIGN(result.without_eos, bool_or(message, "wo_eos", path, prefix));
  }
  if (result.role == ChatRole::kTool) {
    FATHOM_ASSIGN(result.tool_call_id, string_or_empty(message, "tool_call_id", path));
  }
  if (result.role == ChatRole::kSystem) {
    FATHOM_ASSIGN(result.tools, parse_tools(given(message, "tools"), path + ".tools", ignored));
    if (const Json* format = given(message, "response_format"); format != nullptr && !format->empty())
      result.response_format_json = write_python_json(*format);
  }
  return result;
}

/// The schema text for the prompt; empty for free text.
Result<std::string> parse_response_format(const Json* format) {
  if (format == nullptr) return std::string();
  if (!format->is_object()) return wrong("response_format", "an object", *format);
  FATHOM_ASSIGN(std::string type, required_string(*format, "type", "response_format"));
  if (type == "text") return std::string();
  if (type == "json_object") return std::string(R"({"type": "object"})");
  if (type != "json_schema")
    return wrong("response_format.type", "text, json_object or json_schema", (*format)["type"]);
  const Json* wrapper = given(*format, "json_schema");
  const Json* schema = wrapper != nullptr && wrapper->is_object() ? given(*wrapper, "schema") : nullptr;
  if (schema == nullptr)
    return Error::invalid("response_format.json_schema.schema: expected an object, found nothing");
  if (!schema->is_object()) return wrong("response_format.json_schema.schema", "an object", *schema);
  return write_python_json(*schema);
}

Result<void> parse_thinking(const Json& request, Conversation& result) {
  if (const Json* mode = given(request, "thinking_mode")) {
    if (*mode != "chat" && *mode != "thinking") return wrong("thinking_mode", "chat or thinking", *mode);
    result.thinking = *mode == "thinking";
  }
  if (const Json* thinking = given(request, "thinking")) {
    const Json* type = thinking->is_object() ? given(*thinking, "type") : thinking;
    if (type == nullptr || !(type->is_boolean() || *type == "enabled" || *type == "disabled"))
      return wrong(thinking->is_object() ? "thinking.type" : "thinking", "enabled or disabled",
                   type == nullptr ? *thinking : *type);
    result.thinking = *type == true || *type == "enabled";
  }
  const Json* effort = given(request, "reasoning_effort");
  if (effort == nullptr) return {};
  if (*effort == "none") {
    result.thinking = false;
    return {};
  }
  const std::string word = effort->is_string() ? effort->get<std::string>() : write_python_json(*effort);
  auto level = parse_effort(word);
  if (!level.ok() || !(effort->is_string() || effort->is_number_integer()))
    return wrong("reasoning_effort",
                 "an integer from 1 to 100 or none, minimal, low, medium, high, xhigh, max, ultra", *effort);
  result.effort = *level;
  return {};
}

}  // namespace

Result<int> parse_effort(std::string_view word) {
  if (word == "minimal" || word == "low") return kEffortLow;
  if (word == "medium" || word == "high" || word == "xhigh") return kEffortHigh;
  if (word == "max" || word == "ultra") return kEffortMax;
  int level = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), level);
  if (failure != std::errc() || end != word.data() + word.size() || level < 1 || level > 100)
    return Error::invalid("reasoning effort: expected 1 to 100, low, high or max, found \"{}\"", word);
  return level;
}

Result<Conversation> parse_conversation(std::string_view json) {
  FATHOM_ASSIGN(Json request, parse_json_value(json, "conversation"));
  if (!request.is_object()) return wrong("conversation", "an object", request);
  Conversation result;
  const Json* messages = given(request, "messages");
  if (messages == nullptr) return Error::invalid("messages: expected an array of messages, found nothing");
  if (!messages->is_array()) return wrong("messages", "an array of messages", *messages);
  if (messages->empty()) return Error::invalid("messages: expected at least one message, found none");
  for (size_t index = 0; index < messages->size(); ++index) {
    FATHOM_ASSIGN(ChatMessage message,
                  parse_message((*messages)[index], fmt::format("messages[{}]", index), result.ignored));
    result.messages.push_back(std::move(message));
  }
  FATHOM_ASSIGN(result.tools, parse_tools(given(request, "tools"), "tools", result.ignored));
  FATHOM_ASSIGN(result.response_format_json, parse_response_format(given(request, "response_format")));
  FATHOM_TRY(parse_thinking(request, result));
  return result;
}

}  // namespace fathom
