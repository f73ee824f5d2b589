#include "server/responses_tools.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/chat_conversion.h"
#include "server/responses_request.h"

namespace fathom {
namespace {

/// Names as they are called; `space` is the namespace of the tools read.
struct Space {
  std::string name;
  Json json;  // "namespace" of a chat tool, null: none
};

/// A custom tool takes any text. To the model it is a function with one string.
Result<Json> read_custom(const Fields& tool, ResponsesTools& tools) {
  FATHOM_ASSIGN(std::string name, required_tool_name(tool));
  FATHOM_ASSIGN(const auto description, tool.text("description"));
  FATHOM_ASSIGN(const Json* format, tool.object("format"));
  std::string text = description.value_or("");
  const Json none = Json::object();
  const Fields grammar(format != nullptr ? *format : none, tool.path_of("format"));
  FATHOM_ASSIGN(const auto kind, grammar.text("type"));
  if (kind == "grammar") {
    FATHOM_ASSIGN(const std::string syntax, required_text(grammar, "syntax"));
    FATHOM_ASSIGN(const std::string definition, required_text(grammar, "definition"));
    text += fmt::format("\n\nThe input follows this {} grammar:\n{}", syntax, definition);
    tools.ignored.push_back(grammar.path() + " (told to the model, not enforced)");
  }
  return Json{{"type", "function"},
              {"function",
               {{"name", std::move(name)},
                {"description", std::move(text)},
                {"parameters",
                 {{"type", "object"},
                  {"properties", {{kCustomToolInput, {{"type", "string"}}}}},
                  {"required", Json::array({kCustomToolInput})},
                  {"additionalProperties", false}}}}}};
}

Result<void> read_tool(const Fields& tool, const Space& space, ResponsesTools& tools);

Result<void> read_namespace(const Fields& tool, ResponsesTools& tools) {
  FATHOM_ASSIGN(std::string name, required_tool_name(tool));
  FATHOM_ASSIGN(const auto description, tool.text("description"));
  FATHOM_ASSIGN(const Json* members, tool.array("tools"));
  const Space space{name, {{"name", name}, {"description", description.value_or("")}}};
  for (size_t index = 0; members != nullptr && index < members->size(); ++index) {
    FATHOM_ASSIGN(const Fields member,
                  Fields::of((*members)[index], fmt::format("{}[{}]", tool.path_of("tools"), index)));
    FATHOM_TRY(read_tool(member, space, tools));
  }
  return {};
}

Result<void> read_tool(const Fields& tool, const Space& space, ResponsesTools& tools) {
  FATHOM_ASSIGN(const std::string type, required_text(tool, "type"));
  if (type == "namespace" && space.name.empty()) return read_namespace(tool, tools);
  Json converted;
  if (type == "function") {
    FATHOM_ASSIGN(converted, chat_tool(tool, "parameters"));
  } else if (type == "custom") {
    FATHOM_ASSIGN(converted, read_custom(tool, tools));
    tools.custom.insert(qualified_name(space.name, converted["function"]["name"].get<std::string>()));
  } else {
    tools.ignored.push_back(fmt::format("{} of type {}", tool.path(), describe_json(Json(type))));
    return {};
  }
  if (!space.name.empty()) converted["namespace"] = space.json;
  tools.chat.push_back(std::move(converted));
  return {};
}

/// {"type": "allowed_tools", "mode", "tools"}: the others are not shown.
Result<void> keep_allowed(const Fields& choice, ResponsesTools& tools) {
  FATHOM_ASSIGN(const auto mode, choice.text("mode"));
  FATHOM_ASSIGN(const Json* allowed, choice.array("tools"));
  if (allowed == nullptr) return Error::invalid("tool_choice.tools: expected an array, found nothing");
  std::set<std::string> names;
  for (const Json& tool : *allowed) {
    if (!tool.is_object()) return wrong_json("tool_choice.tools", "an array of tools", tool);
    const Json* name = Fields(tool).find("name");
    if (name != nullptr && name->is_string()) names.insert(name->get<std::string>());
  }
  Json kept = Json::array();
  for (Json& tool : tools.chat)
    if (names.contains(tool["function"]["name"].get<std::string>())) kept.push_back(std::move(tool));
  tools.chat = std::move(kept);
  if (mode && *mode != "auto" && *mode != "required")
    return wrong_json("tool_choice.mode", "auto or required", Json(*mode));
  tools.choice = mode.value_or("auto");
  return {};
}

Result<void> read_choice(const Fields& request, ResponsesTools& tools) {
  const Json* choice = request.find("tool_choice");
  if (choice == nullptr) return {};
  tools.choice = *choice;
  if (!choice->is_object()) return {};
  const Fields members(*choice, "tool_choice");
  FATHOM_ASSIGN(const std::string type, required_text(members, "type"));
  if (type == "allowed_tools") return keep_allowed(members, tools);
  if (type == "custom") tools.choice["type"] = "function";
  return {};
}

}  // namespace

Result<ResponsesTools> read_responses_tools(const Fields& request) {
  ResponsesTools tools;
  FATHOM_ASSIGN(const Json* given, request.array("tools"));
  for (size_t index = 0; given != nullptr && index < given->size(); ++index) {
    FATHOM_ASSIGN(const Fields tool, Fields::of((*given)[index], fmt::format("tools[{}]", index)));
    FATHOM_TRY(read_tool(tool, {}, tools));
  }
  FATHOM_TRY(read_choice(request, tools));
  return tools;
}

}  // namespace fathom
