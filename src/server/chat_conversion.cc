#include "server/chat_conversion.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai_parts.h"

namespace fathom {

Result<std::string> required_text(const Fields& fields, const char* name) {
  FATHOM_ASSIGN(auto text, fields.text(name));
  if (!text) return Error::invalid("{}: expected a string, found nothing", fields.path_of(name));
  return std::move(*text);
}

Result<std::string> required_tool_name(const Fields& fields) {
  FATHOM_ASSIGN(std::string name, required_text(fields, "name"));
  // Calls are written without escapes: these would end the place where a name stands.
  constexpr std::string_view kForbidden("\"\n\r\0", 4);
  if (name.empty() || name.find_first_of(kForbidden) != std::string::npos)
    return wrong_json(fields.path_of("name"), "a name without quotes and line breaks", Json(name));
  return name;
}

Result<Json> chat_tool(const Fields& tool, const char* schema_name) {
  FATHOM_ASSIGN(std::string name, required_tool_name(tool));
  FATHOM_ASSIGN(const auto description, tool.text("description"));
  FATHOM_ASSIGN(const Json* schema, tool.object(schema_name));
  FATHOM_ASSIGN(const auto strict, tool.boolean("strict"));
  Json function{{"name", std::move(name)}};
  if (description) function["description"] = *description;
  function["parameters"] =
      schema != nullptr ? *schema : Json{{"type", "object"}, {"properties", Json::object()}};
  if (strict && *strict) function["strict"] = true;
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

Json text_block(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

Json chat_call(std::string id, std::string name, std::string namespace_name, Json arguments) {
  Json call{{"id", std::move(id)},
            {"type", "function"},
            {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}};
  if (!namespace_name.empty()) call["namespace"] = std::move(namespace_name);
  return call;
}

void append_assistant(Json& messages, Json message) {
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back(std::move(message));
    return;
  }
  Json& turn = messages.back();
  for (const char* text : {"reasoning_content", "content"})
    if (message.contains(text)) turn[text] = turn.value(text, "") + message[text].get<std::string>();
  if (!message.contains("tool_calls")) return;
  Json& calls = turn["tool_calls"];
  if (calls.is_null()) calls = Json::array();
  for (Json& call : message["tool_calls"]) calls.push_back(std::move(call));
}

Json members_beside(const Json& request, std::initializer_list<const char*> names) {
  Json rest = Json::object();
  for (const auto& member : request.items()) {
    const auto is_it = [&member](const char* other) { return member.key() == other; };
    if (std::none_of(names.begin(), names.end(), is_it)) rest[member.key()] = member.value();
  }
  return rest;
}

Result<GenerationFields> read_one_answer_fields(const Json& members, const GenerationDefaults& defaults,
                                                int32_t vocab_size) {
  FATHOM_ASSIGN(GenerationFields fields, read_generation_fields(Fields(members), defaults, vocab_size));
  if (fields.n != 1) return Error::invalid("n: expected 1, since this API gives one answer, found {}", fields.n);
  return fields;
}

Error with_client_names(Error error,
                        std::initializer_list<std::pair<std::string_view, std::string_view>> chat_and_own) {
  for (const auto& [chat, own] : chat_and_own) {
    if (!error.message.starts_with(chat)) continue;
    error.message.replace(0, chat.size(), own);
    break;
  }
  return error;
}

std::string qualified_name(std::string_view namespace_name, std::string_view name) {
  return namespace_name.empty() ? std::string(name) : fmt::format("{}::{}", namespace_name, name);
}

Json arguments_object(const std::string& arguments) {
  Json value = Json::parse(arguments, nullptr, false);
  // JSON may hold numbers that no double can; they are told as they were written.
  if (!value.is_object()) return {{"arguments", arguments}};
  return value;
}

void TokenNotes::add(const AnswerToken& token) {
  if (fields_.return_token_ids || fields_.logprobs) waiting_.push_back(token);
}

Json TokenNotes::ids() const {
  if (!fields_.return_token_ids) return nullptr;
  Json ids = Json::array();
  for (const AnswerToken& token : waiting_) ids.push_back(token.id);
  return ids;
}

Json TokenNotes::logprobs() const {
  Json logprobs = Json::array();
  if (!fields_.logprobs) return logprobs;
  for (const AnswerToken& token : waiting_)
    if (!tokenizer_.is_added(token.id)) logprobs.push_back(chat_logprob(token, tokenizer_));
  return logprobs;
}

}  // namespace fathom
