#include "server/messages_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/chat_conversion.h"
#include "text/chat_json.h"

namespace fathom {
namespace {

/// Reads the conversation; collects what is left out.
class MessagesReader {
 public:
  MessagesReader(const Fields& request, bool drops_billing_header)
      : request_(request), drops_billing_header_(drops_billing_header) {}

  Result<Json> read_messages();
  Result<Json> read_tools();
  std::vector<std::string> take_ignored() { return std::move(ignored_); }

 private:
  Result<void> read_system(Json& messages);
  Result<void> read_message(const Fields& message, Json& messages);
  Result<Json> read_blocks(const Json& content, const std::string& path, bool in_result);
  Result<void> read_user_block(const Fields& block, const std::string& type, bool in_result, Json& blocks);
  Result<Json> read_result(const Fields& block);
  Result<Json> read_assistant(const Json& content, const std::string& path);
  Result<void> read_assistant_block(const Fields& block, Json& message);
  void ignore(const Fields& thing, const std::string& type) {
    ignored_.push_back(fmt::format("{} of type {}", thing.path(), describe_json(Json(type))));
  }

  const Fields& request_;
  const bool drops_billing_header_;
  std::vector<std::string> ignored_;
};

// ---- Blocks that users and tools write ----

Result<Json> read_image(const Fields& block) {
  FATHOM_ASSIGN(const Json* source, block.object("source"));
  if (source == nullptr) return Error::invalid("{}: expected an object, found nothing", block.path_of("source"));
  const Fields members(*source, block.path_of("source"));
  FATHOM_ASSIGN(const std::string type, required_text(members, "type"));
  if (type == "url") {
    FATHOM_TRY(required_text(members, "url"));
  } else if (type == "base64") {
    FATHOM_TRY(required_text(members, "media_type"));
    FATHOM_TRY(required_text(members, "data"));
  } else {
    return wrong_json(members.path_of("type"), "base64 or url", Json(type));
  }
  return Json{{"type", "image"}, {"source", *source}};
}

Result<std::string> texts_of(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return wrong_json(path, "a string or an array of text blocks", content);
  std::string text;
  for (size_t index = 0; index < content.size(); ++index) {
    FATHOM_ASSIGN(const Fields block, Fields::of(content[index], fmt::format("{}[{}]", path, index)));
    FATHOM_ASSIGN(const std::string type, required_text(block, "type"));
    if (type != "text") return wrong_json(block.path_of("type"), "\"text\"", Json(type));
    FATHOM_ASSIGN(const std::string piece, required_text(block, "text"));
    text.append(text.empty() ? "" : "\n\n").append(piece);
  }
  return text;
}

Result<Json> read_document(const Fields& block) {
  FATHOM_ASSIGN(const Json* source, block.object("source"));
  if (source == nullptr) return Error::invalid("{}: expected an object, found nothing", block.path_of("source"));
  const Fields members(*source, block.path_of("source"));
  FATHOM_ASSIGN(const std::string type, required_text(members, "type"));
  FATHOM_ASSIGN(const auto title, block.text("title"));
  std::string text;
  if (type == "text") {
    FATHOM_ASSIGN(text, required_text(members, "data"));
  } else if (type == "content" && members.find("content") != nullptr) {
    FATHOM_ASSIGN(text, texts_of(*members.find("content"), members.path_of("content")));
  } else {
    return wrong_json(members.path_of("type"), "text or content, since only plain text can be read", Json(type));
  }
  return text_block(title ? *title + "\n\n" + text : text);
}

Result<Json> read_search_result(const Fields& block) {
  FATHOM_ASSIGN(const std::string source, required_text(block, "source"));
  FATHOM_ASSIGN(const std::string title, required_text(block, "title"));
  const Json* content = block.find("content");
  if (content == nullptr)
    return Error::invalid("{}: expected text blocks, found nothing", block.path_of("content"));
  FATHOM_ASSIGN(const std::string text, texts_of(*content, block.path_of("content")));
  return text_block(title + "\n" + source + "\n\n" + text);
}

Result<Json> MessagesReader::read_result(const Fields& block) {
  FATHOM_ASSIGN(std::string id, required_text(block, "tool_use_id"));
  Json content = Json::array();
  if (const Json* value = block.find("content")) {
    FATHOM_ASSIGN(content, read_blocks(*value, block.path_of("content"), true));
  }
  return Json{{"type", "tool_result"}, {"tool_use_id", std::move(id)}, {"content", std::move(content)}};
}

Result<void> MessagesReader::read_user_block(const Fields& block, const std::string& type, bool in_result,
                                             Json& blocks) {
  Result<Json> read = Json();
  if (type == "text") {
    FATHOM_ASSIGN(std::string text, required_text(block, "text"));
    read = text_block(std::move(text));
  } else if (type == "image") {
    read = read_image(block);
  } else if (type == "document") {
    read = read_document(block);
  } else if (type == "search_result") {
    read = read_search_result(block);
  } else if (type == "tool_result" && !in_result) {
    read = read_result(block);
  } else if (type == "tool_reference" && in_result) {
    // Points at a tool that the client shows in "tools" as well.
    FATHOM_ASSIGN(std::string name, required_text(block, "tool_name"));
    read = text_block(std::move(name));
  } else {
    return wrong_json(block.path_of("type"),
                      in_result ? "text, image, document, search_result or tool_reference"
                                : "text, image, document, search_result or tool_result",
                      Json(type));
  }
  if (!read.ok()) return std::move(read).error();
  blocks.push_back(std::move(*read));
  return {};
}

Result<Json> MessagesReader::read_blocks(const Json& content, const std::string& path, bool in_result) {
  Json blocks = Json::array();
  if (content.is_string()) {
    blocks.push_back(text_block(content.get<std::string>()));
    return blocks;
  }
  if (!content.is_array()) return wrong_json(path, "a string or an array of content blocks", content);
  for (size_t index = 0; index < content.size(); ++index) {
    FATHOM_ASSIGN(const Fields block, Fields::of(content[index], fmt::format("{}[{}]", path, index)));
    FATHOM_ASSIGN(const std::string type, required_text(block, "type"));
    FATHOM_TRY(read_user_block(block, type, in_result, blocks));
  }
  return blocks;
}

// ---- Blocks that the assistant wrote ----

Result<void> MessagesReader::read_assistant_block(const Fields& block, Json& message) {
  FATHOM_ASSIGN(const std::string type, required_text(block, "type"));
  const auto append = [&message](const char* member, const std::string& text) {
    message[member] = message.value(member, "") + text;
  };
  if (type == "text") {
    FATHOM_ASSIGN(const std::string text, required_text(block, "text"));
    append("content", text);
  } else if (type == "thinking") {
    FATHOM_ASSIGN(const std::string text, required_text(block, "thinking"));
    append("reasoning_content", text);
  } else if (type == "tool_use") {
    FATHOM_ASSIGN(std::string id, required_text(block, "id"));
    FATHOM_ASSIGN(std::string name, required_tool_name(block));
    FATHOM_ASSIGN(const Json* input, block.object("input"));
    if (input == nullptr) return Error::invalid("{}: expected an object, found nothing", block.path_of("input"));
    Json& calls = message["tool_calls"];
    if (calls.is_null()) calls = Json::array();
    calls.push_back(chat_call(std::move(id), std::move(name), "", *input));
  } else if (type == "redacted_thinking" || type == "server_tool_use" || type.ends_with("_tool_result")) {
    // Another server wrote it and only that can read it.
    ignore(block, type);
  } else {
    return wrong_json(block.path_of("type"), "text, thinking, redacted_thinking or tool_use", Json(type));
  }
  return {};
}

Result<Json> MessagesReader::read_assistant(const Json& content, const std::string& path) {
  Json message{{"role", "assistant"}, {"content", ""}};
  if (content.is_string()) {
    message["content"] = content;
    return message;
  }
  if (!content.is_array()) return wrong_json(path, "a string or an array of content blocks", content);
  for (size_t index = 0; index < content.size(); ++index) {
    FATHOM_ASSIGN(const Fields block, Fields::of(content[index], fmt::format("{}[{}]", path, index)));
    FATHOM_TRY(read_assistant_block(block, message));
  }
  return message;
}

// ---- Messages ----

Result<void> MessagesReader::read_system(Json& messages) {
  const Json* system = request_.find("system");
  if (system == nullptr) return {};
  if (!system->is_string() && !system->is_array())
    return wrong_json("system", "a string or an array of text blocks", *system);
  Json blocks = Json::array();
  const auto add = [&](const std::string& text) {
    const bool is_first = blocks.empty() && drops_billing_header_;
    std::string kept = is_first ? without_billing_lines(text) : text;
    if (!kept.empty()) blocks.push_back(text_block(std::move(kept)));
  };
  if (system->is_string()) add(system->get<std::string>());
  for (size_t index = 0; system->is_array() && index < system->size(); ++index) {
    FATHOM_ASSIGN(const Fields block, Fields::of((*system)[index], fmt::format("system[{}]", index)));
    FATHOM_ASSIGN(const std::string type, required_text(block, "type"));
    if (type != "text") return wrong_json(block.path_of("type"), "\"text\"", Json(type));
    FATHOM_ASSIGN(const std::string text, required_text(block, "text"));
    add(text);
  }
  if (!blocks.empty()) messages.push_back({{"role", "system"}, {"content", std::move(blocks)}});
  return {};
}

Result<void> MessagesReader::read_message(const Fields& message, Json& messages) {
  FATHOM_ASSIGN(const std::string role, required_text(message, "role"));
  if (role != "user" && role != "assistant" && role != "system")
    return wrong_json(message.path_of("role"), "user, assistant or system", Json(role));
  const Json* content = message.find("content");
  const std::string path = message.path_of("content");
  if (content == nullptr) return Error::invalid("{}: expected a string or an array, found nothing", path);
  if (role == "assistant") {
    FATHOM_ASSIGN(Json turn, read_assistant(*content, path));
    append_assistant(messages, std::move(turn));
  } else if (role == "system") {
    FATHOM_ASSIGN(const std::string text, texts_of(*content, path));
    messages.push_back({{"role", "system"}, {"content", text}});
  } else {
    FATHOM_ASSIGN(Json blocks, read_blocks(*content, path, false));
    messages.push_back({{"role", "user"}, {"content", std::move(blocks)}});
  }
  return {};
}

Result<Json> MessagesReader::read_messages() {
  Json messages = Json::array();
  FATHOM_TRY(read_system(messages));
  FATHOM_ASSIGN(const Json* given, request_.array("messages"));
  if (given == nullptr) return Error::invalid("messages: expected an array of messages, found nothing");
  if (given->empty()) return Error::invalid("messages: expected at least one message, found none");
  for (size_t index = 0; index < given->size(); ++index) {
    FATHOM_ASSIGN(const Fields message, Fields::of((*given)[index], fmt::format("messages[{}]", index)));
    FATHOM_TRY(read_message(message, messages));
  }
  // An assistant's message at the end is the beginning of the answer.
  if (messages.back()["role"] == "assistant") messages.back()["prefix"] = true;
  return messages;
}

Result<Json> MessagesReader::read_tools() {
  Json tools = Json::array();
  FATHOM_ASSIGN(const Json* given, request_.array("tools"));
  for (size_t index = 0; given != nullptr && index < given->size(); ++index) {
    FATHOM_ASSIGN(const Fields tool, Fields::of((*given)[index], fmt::format("tools[{}]", index)));
    FATHOM_ASSIGN(const auto type, tool.text("type"));
    if (type && *type != "custom") {
      // Tools that Anthropic's server runs, or whose schema only its models know.
      ignore(tool, *type);
      continue;
    }
    if (tool.find("input_schema") == nullptr)
      return Error::invalid("{}: expected a schema, found nothing", tool.path_of("input_schema"));
    FATHOM_ASSIGN(Json converted, chat_tool(tool, "input_schema"));
    tools.push_back(std::move(converted));
  }
  return tools;
}

// ---- The rest ----

Result<void> read_thinking(const Fields& request, Json& chat, bool& shows_thinking) {
  FATHOM_ASSIGN(const Json* thinking, request.object("thinking"));
  chat["thinking"] = "disabled";
  if (thinking == nullptr) return {};
  const Fields members(*thinking, "thinking");
  FATHOM_ASSIGN(const std::string type, required_text(members, "type"));
  FATHOM_ASSIGN(const auto display, members.text("display"));
  FATHOM_TRY(members.integer("budget_tokens", 0, INT64_MAX));
  if (type == "enabled" || type == "adaptive" || type == "between_tools") chat["thinking"] = "enabled";
  else if (type != "disabled") return wrong_json("thinking.type", "enabled, disabled or adaptive", Json(type));
  if (display && *display != "summarized" && *display != "omitted")
    return wrong_json("thinking.display", "summarized or omitted", Json(*display));
  shows_thinking = display != "omitted";
  return {};
}

Result<Json> read_output_config(const Fields& request, Json& chat) {
  FATHOM_ASSIGN(const Json* config, request.object("output_config"));
  Json format = request.find("response_format") != nullptr ? *request.find("response_format") : Json();
  if (config == nullptr) return format;
  const Fields members(*config, "output_config");
  FATHOM_ASSIGN(const auto effort, members.text("effort"));
  if (effort) {
    if (!parse_effort(*effort).ok())
      return wrong_json("output_config.effort", "low, medium, high, xhigh, max or a number from 1 to 100",
                        Json(*effort));
    chat["reasoning_effort"] = *effort;
  }
  FATHOM_ASSIGN(const Json* own, members.object("format"));
  if (own == nullptr) return format;
  const Fields shape(*own, "output_config.format");
  FATHOM_ASSIGN(const std::string type, required_text(shape, "type"));
  if (type != "json_schema") return wrong_json(shape.path_of("type"), "json_schema", Json(type));
  FATHOM_ASSIGN(const Json* schema, shape.object("schema"));
  if (schema == nullptr) return Error::invalid("{}: expected a schema, found nothing", shape.path_of("schema"));
  return Json{{"type", "json_schema"}, {"json_schema", {{"name", "output"}, {"schema", *schema}}}};
}

}  // namespace

std::string without_billing_lines(std::string_view text) {
  constexpr std::string_view kName = "x-anthropic-billing-header:";
  std::string kept;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    if (!line.starts_with(kName)) kept += line;
    text.remove_prefix(end);
  }
  return kept;
}

Error in_messages_words(Error error) {
  return with_client_names(std::move(error), {{"response_format.json_schema", "output_config.format"},
                                              {"response_format", "output_config.format"},
                                              {"reasoning_effort", "output_config.effort"}});
}

Result<MessagesRequest> read_messages_request(const Json& json, const MessagesReading& reading) {
  const Fields request(json);
  MessagesRequest result;
  result.chat = Json::object();
  MessagesReader reader(request, reading.drops_billing_header);
  const Json* ids = request.find("prompt_token_ids");
  if (ids != nullptr) result.chat["prompt_token_ids"] = *ids;
  if (ids == nullptr || request.find("messages") != nullptr) {
    FATHOM_ASSIGN(result.chat["messages"], reader.read_messages());
  }
  FATHOM_ASSIGN(result.chat["tools"], reader.read_tools());
  FATHOM_TRY(read_thinking(request, result.chat, result.shows_thinking));
  FATHOM_ASSIGN(const Json format, read_output_config(request, result.chat));
  if (!format.is_null()) result.chat["response_format"] = format;
  Json beside = members_beside(json, {"messages", "system", "tools"});
  if (!format.is_null()) beside["response_format"] = format;
  Result<GenerationFields> fields = read_one_answer_fields(beside, reading.defaults, reading.vocab_size);
  if (!fields.ok()) return in_messages_words(std::move(fields).error());
  result.fields = std::move(*fields);
  if (reading.needs_max_tokens && !result.fields.max_tokens)
    return Error::invalid("max_tokens: expected a whole number, found nothing");
  result.ignored = reader.take_ignored();
  if (const Json* servers = request.find("mcp_servers"); servers != nullptr && !servers->empty())
    result.ignored.emplace_back("mcp_servers");
  return result;
}

}  // namespace fathom
