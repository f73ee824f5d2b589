#include "text/chat_parameter_types.h"

#include <nlohmann/json.hpp>

#include "text/chat_value.h"

namespace fathom {
namespace {

using Json = nlohmann::ordered_json;

const Json* member(const Json& value, const char* name) {
  if (!value.is_object()) return nullptr;
  auto found = value.find(name);
  return found == value.end() ? nullptr : &*found;
}

ParameterType type_in(const Json& schema) {
  const Json* type = member(schema, "type");
  if (type == nullptr) return ParameterType::kUnknown;
  if (type->is_string()) return *type == "string" ? ParameterType::kString : ParameterType::kNotString;
  if (!type->is_array() || type->empty()) return ParameterType::kUnknown;
  for (const Json& one : *type)
    if (!one.is_string() || one == "string") return ParameterType::kUnknown;
  return ParameterType::kNotString;
}

}  // namespace

ParameterTypes::ParameterTypes(const std::vector<ChatTool>& tools) {
  for (const ChatTool& tool : tools) {
    auto function = parse_json_value(tool.function_json, "function");
    if (!function.ok()) continue;
    const Json* name = member(*function, "name");
    const Json* parameters = member(*function, "parameters");
    const Json* properties = parameters == nullptr ? nullptr : member(*parameters, "properties");
    if (name == nullptr || !name->is_string() || properties == nullptr || !properties->is_object()) continue;
    std::string qualified = name->get<std::string>();
    if (!tool.namespace_name.empty() && qualified.find("::") == std::string::npos)
      qualified = tool.namespace_name + "::" + qualified;
    for (const auto& [key, schema] : properties->items()) tools_[qualified][key] = type_in(schema);
  }
}

ParameterType ParameterTypes::type_of(std::string_view tool, std::string_view parameter) const {
  auto found = tools_.find(tool);
  if (found == tools_.end()) return ParameterType::kUnknown;
  auto type = found->second.find(parameter);
  return type == found->second.end() ? ParameterType::kUnknown : type->second;
}

}  // namespace fathom
