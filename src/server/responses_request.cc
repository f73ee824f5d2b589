#include "server/responses_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/chat_conversion.h"
#include "server/responses_tools.h"
#include "text/chat_json.h"

namespace fathom {
namespace {

constexpr std::string_view kReasoningMark = "fathom-reasoning:";

// Kinds of items that other servers and other tools leave in a conversation.
bool is_foreign(std::string_view type) {
  return type.ends_with("_call") || type.ends_with("_call_output") || type.starts_with("mcp_") ||
         type.starts_with("compaction") || type.starts_with("tool_search") || type == "program" ||
         type == "ghost_snapshot" || type == "context_compaction" || type == "additional_tools";
}

/// Reads the items of "input" as chat messages.
class InputReader {
 public:
  InputReader(ResponsesHistory history, std::vector<std::string>& ignored)
      : history_(std::move(history)), ignored_(ignored), messages_(std::move(history_.messages)) {}

  Result<void> read(const Json& input);
  Json take() { return std::move(messages_); }

 private:
  Result<void> read_item(const Fields& item, bool is_reference = false);
  Result<void> read_message(const Fields& item);
  Result<void> read_call(const Fields& item, bool is_custom);
  Result<void> read_output(const Fields& item);
  Result<void> read_reasoning(const Fields& item);
  Result<void> read_reference(const Fields& item);

  ResponsesHistory history_;
  std::vector<std::string>& ignored_;
  Json messages_;
};

Result<Json> read_part(const Fields& part) {
  FATHOM_ASSIGN(const std::string type, required_text(part, "type"));
  if (type == "input_text" || type == "output_text" || type == "text") {
    FATHOM_ASSIGN(std::string text, required_text(part, "text"));
    return text_block(std::move(text));
  }
  if (type == "refusal") {
    FATHOM_ASSIGN(std::string text, required_text(part, "refusal"));
    return text_block(std::move(text));
  }
  if (type != "input_image")
    return wrong_json(part.path_of("type"), "input_text, output_text, refusal or input_image", Json(type));
  FATHOM_ASSIGN(const std::string url, required_text(part, "image_url"));
  if (url.empty()) return Error::invalid("{}: expected an address, found an empty one", part.path_of("image_url"));
  return Json{{"type", "image_url"}, {"image_url", url}};
}

/// Text, or parts, as blocks of a chat message.
Result<Json> read_parts(const Fields& holder, const char* name) {
  const Json* content = holder.find(name);
  const std::string path = holder.path_of(name);
  if (content == nullptr) return Error::invalid("{}: expected a string or an array, found nothing", path);
  Json blocks = Json::array();
  if (content->is_string()) {
    blocks.push_back(text_block(content->get<std::string>()));
    return blocks;
  }
  if (!content->is_array()) return wrong_json(path, "a string or an array of content parts", *content);
  for (size_t index = 0; index < content->size(); ++index) {
    FATHOM_ASSIGN(const Fields part, Fields::of((*content)[index], fmt::format("{}[{}]", path, index)));
    FATHOM_ASSIGN(Json block, read_part(part));
    blocks.push_back(std::move(block));
  }
  return blocks;
}

Result<void> InputReader::read_message(const Fields& item) {
  FATHOM_ASSIGN(const std::string role, required_text(item, "role"));
  if (role != "user" && role != "assistant" && role != "system" && role != "developer")
    return wrong_json(item.path_of("role"), "user, assistant, system or developer", Json(role));
  FATHOM_ASSIGN(Json blocks, read_parts(item, "content"));
  const bool is_user = role == "user";
  std::string text;
  for (size_t index = 0; !is_user && index < blocks.size(); ++index) {
    if (blocks[index]["type"] != "text")
      return wrong_json(fmt::format("{}[{}].type", item.path_of("content"), index),
                        "text in a message of this role", Json("input_image"));
    text += blocks[index]["text"].get<std::string>();
  }
  if (is_user) messages_.push_back({{"role", "user"}, {"content", std::move(blocks)}});
  else if (role == "assistant") append_assistant(messages_, {{"role", "assistant"}, {"content", text}});
  else messages_.push_back({{"role", "system"}, {"content", text}});
  return {};
}

Result<void> InputReader::read_call(const Fields& item, bool is_custom) {
  FATHOM_ASSIGN(std::string id, required_text(item, "call_id"));
  FATHOM_ASSIGN(std::string name, required_tool_name(item));
  FATHOM_ASSIGN(const auto space, item.text("namespace"));
  FATHOM_ASSIGN(std::string arguments, required_text(item, is_custom ? kCustomToolInput : "arguments"));
  Json value = is_custom ? Json{{kCustomToolInput, std::move(arguments)}} : Json(std::move(arguments));
  Json call = chat_call(std::move(id), std::move(name), space.value_or(""), std::move(value));
  append_assistant(messages_, {{"role", "assistant"}, {"tool_calls", Json::array({std::move(call)})}});
  return {};
}

Result<void> InputReader::read_output(const Fields& item) {
  FATHOM_ASSIGN(std::string id, required_text(item, "call_id"));
  FATHOM_ASSIGN(Json blocks, read_parts(item, "output"));
  messages_.push_back({{"role", "tool"}, {"tool_call_id", std::move(id)}, {"content", std::move(blocks)}});
  return {};
}

Result<void> InputReader::read_reasoning(const Fields& item) {
  FATHOM_ASSIGN(const Json* content, item.array("content"));
  FATHOM_ASSIGN(const auto wrapped, item.text("encrypted_content"));
  std::string text;
  for (size_t index = 0; content != nullptr && index < content->size(); ++index) {
    FATHOM_ASSIGN(const Fields part,
                  Fields::of((*content)[index], fmt::format("{}[{}]", item.path_of("content"), index)));
    FATHOM_ASSIGN(const std::string piece, required_text(part, "text"));
    text += piece;
  }
  if (text.empty() && wrapped) {
    const auto own = unwrap_reasoning(*wrapped);
    if (!own) ignored_.push_back(item.path_of("encrypted_content") + " of another server");
    text = own.value_or("");
  }
  // A summary alone is not what was thought.
  if (!text.empty()) append_assistant(messages_, {{"role", "assistant"}, {"reasoning_content", text}});
  return {};
}

Result<void> InputReader::read_reference(const Fields& item) {
  FATHOM_ASSIGN(const std::string id, required_text(item, "id"));
  const Json found = history_.find_item ? history_.find_item(id) : Json();
  if (found.is_null())
    return Error::invalid("{}: expected an item of a stored response, found {}", item.path_of("id"),
                          describe_json(Json(id)));
  return read_item(Fields(found, item.path()), true);
}

Result<void> InputReader::read_item(const Fields& item, bool is_reference) {
  FATHOM_ASSIGN(const auto type, item.text("type"));
  if (!type && item.find("role") == nullptr)
    return Error::invalid("{}: expected the type of an item, found nothing", item.path_of("type"));
  if (!type || *type == "message") return read_message(item);
  if (*type == "function_call" || *type == "custom_tool_call") return read_call(item, *type != "function_call");
  if (*type == "function_call_output" || *type == "custom_tool_call_output") return read_output(item);
  if (*type == "reasoning") return read_reasoning(item);
  if (*type == "item_reference" && !is_reference) return read_reference(item);
  if (!is_foreign(*type))
    return wrong_json(item.path_of("type"),
                      "message, function_call, function_call_output, custom_tool_call, custom_tool_call_output, "
                      "reasoning or item_reference",
                      Json(*type));
  ignored_.push_back(fmt::format("{} of type {}", item.path(), describe_json(Json(*type))));
  return {};
}

Result<void> InputReader::read(const Json& input) {
  if (input.is_string()) {
    messages_.push_back({{"role", "user"}, {"content", input}});
    return {};
  }
  if (!input.is_array()) return wrong_json("input", "a string or an array of items", input);
  for (size_t index = 0; index < input.size(); ++index) {
    FATHOM_ASSIGN(const Fields item, Fields::of(input[index], fmt::format("input[{}]", index)));
    FATHOM_TRY(read_item(item));
  }
  return {};
}

// ---- The rest ----

/// Instructions and what developers say before anybody else are one text in front.
Json with_instructions(const Json& messages, const std::string& instructions) {
  std::string front = instructions;
  size_t begin = 0;
  for (; begin < messages.size() && messages[begin]["role"] == "system"; ++begin) {
    const std::string text = messages[begin]["content"].get<std::string>();
    front.append(front.empty() || text.empty() ? "" : "\n\n").append(text);
  }
  Json result = Json::array();
  if (!front.empty()) result.push_back({{"role", "system"}, {"content", front}});
  for (; begin < messages.size(); ++begin) result.push_back(messages[begin]);
  return result;
}

Result<void> refuse_what_cannot_be(const Fields& request, std::vector<std::string>& ignored) {
  FATHOM_ASSIGN(const auto background, request.boolean("background"));
  if (background && *background)
    return Error::unsupported(
        "background: expected false, since answers end with their connection here, found true");
  if (request.find("conversation") != nullptr)
    return Error::unsupported("conversation: there are none here; previous_response_id continues a response");
  if (request.find("prompt") != nullptr)
    return Error::unsupported("prompt: there are no stored prompts here; give input and instructions");
  FATHOM_ASSIGN(const auto truncation, request.text("truncation"));
  if (truncation && *truncation != "disabled") ignored.push_back("truncation " + describe_json(Json(*truncation)));
  return {};
}

Result<void> read_reasoning(const Fields& request, Json& chat) {
  for (const char* name : {"thinking", "thinking_mode", "reasoning_effort"})
    if (const Json* value = request.find(name)) chat[name] = *value;
  FATHOM_ASSIGN(const Json* reasoning, request.object("reasoning"));
  if (reasoning == nullptr) return {};
  const Json* effort = Fields(*reasoning, "reasoning").find("effort");
  if (effort == nullptr) return {};
  const std::string word = effort->is_string() ? effort->get<std::string>() : json_line(*effort);
  if (word != "none" && !parse_effort(word).ok())
    return wrong_json("reasoning.effort", "none, minimal, low, medium, high, xhigh, max or a number from 1 to 100",
                      *effort);
  chat["reasoning_effort"] = word;
  return {};
}

/// "text": {"format"} as the chat API's response_format; null: free text.
Result<Json> read_format(const Fields& request) {
  const Json* own = request.find("response_format");
  FATHOM_ASSIGN(const Json* text, request.object("text"));
  if (text == nullptr) return own != nullptr ? *own : Json();
  FATHOM_ASSIGN(const Json* format, Fields(*text, "text").object("format"));
  if (format == nullptr) return own != nullptr ? *own : Json();
  const Fields members(*format, "text.format");
  FATHOM_ASSIGN(const std::string type, required_text(members, "type"));
  if (type == "text") return Json();
  if (type == "json_object") return Json{{"type", "json_object"}};
  if (type != "json_schema") return wrong_json("text.format.type", "text, json_object or json_schema", Json(type));
  FATHOM_ASSIGN(const Json* schema, members.object("schema"));
  if (schema == nullptr) return Error::invalid("text.format.schema: expected a schema, found nothing");
  return Json{{"type", "json_schema"}, {"json_schema", {{"name", "output"}, {"schema", *schema}}}};
}

Result<void> read_include(const Fields& request, ResponsesRequest& result, Json& beside) {
  FATHOM_ASSIGN(const Json* include, request.array("include"));
  if (include == nullptr) return {};
  for (const Json& what : *include) {
    if (!what.is_string()) return wrong_json("include", "an array of strings", what);
    if (what == "reasoning.encrypted_content") result.wants_encrypted_reasoning = true;
    if (what == "message.output_text.logprobs") beside["logprobs"] = true;
  }
  return {};
}

Json echo_of(const Fields& request, const GenerationDefaults& defaults) {
  const auto given = [&request](const char* name, Json otherwise) {
    const Json* value = request.find(name);
    return value != nullptr ? *value : std::move(otherwise);
  };
  Json echo = Json::object();
  for (const char* name : {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
                           "prompt_cache_key", "safety_identifier", "user"})
    echo[name] = given(name, nullptr);
  echo["background"] = false;
  echo["metadata"] = given("metadata", Json::object());
  echo["parallel_tool_calls"] = given("parallel_tool_calls", true);
  const Json reasoning = given("reasoning", Json::object());
  echo["reasoning"] = {{"effort", reasoning.value("effort", Json())}, {"summary", nullptr}};
  echo["service_tier"] = "default";
  echo["store"] = given("store", true);
  echo["temperature"] = given("temperature", defaults.temperature);
  echo["text"] = given("text", Json::object());
  if (!echo["text"].contains("format")) echo["text"]["format"] = {{"type", "text"}};
  echo["tool_choice"] = given("tool_choice", "auto");
  echo["tools"] = given("tools", Json::array());
  echo["top_logprobs"] = given("top_logprobs", 0);
  echo["top_p"] = given("top_p", defaults.top_p);
  echo["truncation"] = "disabled";
  return echo;
}

/// The conversation: what came before, the input, and instructions in front of all.
Result<void> read_conversation(const Fields& request, ResponsesHistory history, ResponsesRequest& result) {
  FATHOM_ASSIGN(const auto instructions, request.text("instructions"));
  const Json* ids = request.find("prompt_token_ids");
  const Json* input = request.find("input");
  if (ids != nullptr) result.chat["prompt_token_ids"] = *ids;
  const bool continues = !history.messages.empty();
  InputReader reader(std::move(history), result.ignored);
  if (input != nullptr) {
    FATHOM_TRY(reader.read(*input));
  } else if (ids == nullptr && !continues) {
    return Error::invalid("input: expected a string or an array of items, found nothing");
  }
  result.messages = reader.take();
  // Somebody has to be answered: clients probe a server with an empty input.
  const auto is_system = [](const Json& message) { return message["role"] == "system"; };
  if (std::all_of(result.messages.begin(), result.messages.end(), is_system) ||
      result.messages.back()["role"] == "assistant")
    result.messages.push_back({{"role", "user"}, {"content", ""}});
  result.chat["messages"] = with_instructions(result.messages, instructions.value_or(""));
  return {};
}

}  // namespace

std::string wrap_reasoning(std::string_view text) { return std::string(kReasoningMark).append(text); }

std::optional<std::string> unwrap_reasoning(std::string_view wrapped) {
  if (!wrapped.starts_with(kReasoningMark)) return std::nullopt;
  return std::string(wrapped.substr(kReasoningMark.size()));
}

Error in_responses_words(Error error) {
  return with_client_names(std::move(error), {{"response_format.json_schema", "text.format"},
                                              {"response_format", "text.format"},
                                              {"reasoning_effort", "reasoning.effort"}});
}

Result<ResponsesRequest> read_responses_request(const Json& json, ResponsesHistory history,
                                                const GenerationDefaults& defaults, int32_t vocab_size) {
  const Fields request(json);
  ResponsesRequest result;
  result.chat = Json::object();
  FATHOM_TRY(refuse_what_cannot_be(request, result.ignored));
  FATHOM_TRY(read_conversation(request, std::move(history), result));
  FATHOM_ASSIGN(ResponsesTools tools, read_responses_tools(request));
  result.chat["tools"] = std::move(tools.chat);
  result.custom_tools = std::move(tools.custom);
  result.ignored.insert(result.ignored.end(), tools.ignored.begin(), tools.ignored.end());
  FATHOM_TRY(read_reasoning(request, result.chat));
  FATHOM_ASSIGN(const Json format, read_format(request));
  Json beside = members_beside(json, {"input", "instructions", "tools", "tool_choice", "metadata"});
  if (!format.is_null()) result.chat["response_format"] = beside["response_format"] = format;
  if (!tools.choice.is_null()) beside["tool_choice"] = std::move(tools.choice);
  FATHOM_TRY(read_include(request, result, beside));
  Result<GenerationFields> fields = read_one_answer_fields(beside, defaults, vocab_size);
  if (!fields.ok()) return in_responses_words(std::move(fields).error());
  result.fields = std::move(*fields);
  FATHOM_ASSIGN(const auto store, request.boolean("store"));
  result.store = store.value_or(true);
  result.echo = echo_of(request, defaults);
  return result;
}

}  // namespace fathom
