#include "server/tool_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/grammar.h"
#include "server/json_fields.h"

namespace fathom {
namespace {

/// Writes the rules of one request's tools.
class ToolGrammar {
 public:
  ToolGrammar(const ToolGrammarOptions& options, std::string rule)
      : options_(options), rule_(std::move(rule)), dsml_(fmt::format("<[{}]>", options.dsml_id)) {}

  Result<std::string> write(std::span<const ChatTool> tools) {
    std::string choices;
    for (const ChatTool& tool : tools) {
      const std::string name = tool_call_name(tool);
      if (!options_.only.empty() && name != options_.only) continue;
      FATHOM_TRY(add_tool(tool, name));
      choices += (choices.empty() ? "" : " | ") + tool_rule_;
    }
    if (choices.empty())
      return Error::invalid("tool_choice: expected the name of one of the tools, found \"{}\"", options_.only);
    add_rule(rule_, fmt::format("\"\\n\\n<\" {0} \" calls>\\n\" ({1}){2} \"</\" {0} \" calls>\"", dsml_, choices,
                                options_.parallel ? "+" : ""));
    if (uses_text_) add_rule(rule_ + "-text", "[^\\x00]*");
    if (uses_any_) rules_ += json_any_rules();
    return std::move(rules_);
  }

 private:
  void add_rule(const std::string& name, const std::string& body) { rules_ += name + " ::= " + body + "\n"; }

  // Any JSON value: the schema that allows everything.
  std::string json_any_rules() const {
    Result<std::string> rules = json_schema_gbnf("true", rule_ + "-any");
    FATHOM_CHECK(rules.ok(), "the schema true is refused: {}", rules.error().message);
    return *rules + "\n";
  }

  Result<void> add_tool(const ChatTool& tool, const std::string& name) {
    const Json function = Json::parse(tool.function_json, nullptr, false);
    tool_rule_ = fmt::format("{}-tool{}", rule_, tools_++);
    strict_ = function.is_object() && function.value("strict", Json()) == true;
    parameters_ = function.is_object() ? function.value("parameters", Json()) : Json();
    const std::string body = tool_rule_ + "-parameters";
    FATHOM_TRY(add_parameters(body, name));
    add_rule(tool_rule_, fmt::format("\"<\" {0} {1} {2} \"</\" {0} \" invoke>\\n\"", dsml_,
                                     gbnf_literal(" invoke name=\"" + name + "\">\n"), body));
    return {};
  }

  Result<void> add_parameters(const std::string& rule, const std::string& tool) {
    const bool has_properties = parameters_.is_object() && parameters_.contains("properties") &&
                                parameters_["properties"].is_object() && !parameters_["properties"].empty();
    if (!has_properties) {
      const bool closed = !parameters_.is_object() || parameters_.value("additionalProperties", Json()) == false ||
                          strict_;
      add_rule(rule, closed ? "\"\\n\"" : "\"\\n\" | " + any_parameter("[^\"\\n]+") + "+");
      return {};
    }
    std::string sequence;
    bool has_required = false;
    int count = 0;
    for (const auto& [key, schema] : parameters_["properties"].items()) {
      const std::string parameter = fmt::format("{}-{}", rule, count++);
      FATHOM_TRY(add_parameter(parameter, key, schema, tool));
      const bool required = is_required(key);
      has_required |= required;
      sequence += fmt::format("{}({} \"\\n\"){}", sequence.empty() ? "" : " ", parameter, required ? "" : "?");
    }
    // A call without parameters has an empty line in their place.
    add_rule(rule, has_required ? sequence : sequence + " | \"\\n\"");
    return {};
  }

  bool is_required(const std::string& key) const {
    const auto required = parameters_.find("required");
    return required != parameters_.end() && required->is_array() &&
           std::find(required->begin(), required->end(), Json(key)) != required->end();
  }

  /// ` parameter name="KEY" string="true|false">VALUE` and the closing tag.
  std::string parameter(const std::string& key_literal, bool is_string, const std::string& value) const {
    return fmt::format("\"<\" {0} \" parameter name=\\\"\" {1} {2} {3} \"</\" {0} \" parameter>\"", dsml_,
                       key_literal, gbnf_literal(fmt::format("\" string=\"{}\">", is_string)), value);
  }

  std::string any_parameter(const std::string& key_pattern) {
    uses_text_ = uses_any_ = true;
    return fmt::format("(({} | {}) \"\\n\")", parameter(key_pattern, true, rule_ + "-text"),
                       parameter(key_pattern, false, rule_ + "-any"));
  }

  /// What a "$ref" into the definitions of the same schema points to.
  const Json& resolved(const Json& schema) const {
    const Json* found = &schema;
    for (int hops = 0; hops < 16 && found->is_object() && found->contains("$ref"); ++hops) {
      const Json& reference = (*found)["$ref"];
      if (!reference.is_string() || !reference.get<std::string>().starts_with("#/")) break;
      Json::json_pointer pointer;
      try {
        pointer = Json::json_pointer(reference.get<std::string>().substr(1));
        if (!parameters_.contains(pointer)) break;
        found = &parameters_[pointer];
      } catch (const Json::exception&) {
        break;  // no pointer: the compiler of schemas will say so
      }
    }
    return *found;
  }

  Result<void> add_parameter(const std::string& rule, const std::string& key, const Json& schema,
                             const std::string& tool) {
    if (key.find_first_of("\"\n") != std::string::npos)
      return Error::invalid(
          "tools: the parameter {} of {} cannot be written in a call: quotes or a line break in it",
          describe_json(Json(key)), tool);
    const Json& target = resolved(schema);
    const Json type = target.is_object() ? target.value("type", Json()) : Json();
    const std::string name = gbnf_literal(key);
    if (type == "string" || is_string_choice(target)) {
      FATHOM_ASSIGN(const std::string value, string_value(target, key, tool));
      add_rule(rule, parameter(name, true, value));
      return {};
    }
    FATHOM_ASSIGN(const std::string value, json_value(rule + "-value", schema, key, tool));
    const bool maybe_string = !type.is_string();  // none, or a list that may name it
    if (maybe_string) uses_text_ = true;
    add_rule(rule, maybe_string && value == rule_ + "-any"
                       ? parameter(name, true, rule_ + "-text") + " | " + parameter(name, false, value)
                       : parameter(name, false, value));
    return {};
  }

  static bool is_string_choice(const Json& schema) {
    const auto choices = schema.is_object() ? schema.find("enum") : schema.end();
    return schema.is_object() && choices != schema.end() && choices->is_array() && !choices->empty() &&
           std::all_of(choices->begin(), choices->end(), [](const Json& choice) { return choice.is_string(); });
  }

  // Strings stand in calls as they are, without quotes and escapes.
  Result<std::string> string_value(const Json& schema, const std::string& key, const std::string& tool) {
    if (schema.contains("const") && schema["const"].is_string())
      return gbnf_literal(schema["const"].get<std::string>());
    if (is_string_choice(schema)) {
      std::string choices;
      for (const Json& choice : schema["enum"])
        choices += (choices.empty() ? "" : " | ") + gbnf_literal(choice.get<std::string>());
      return "(" + choices + ")";
    }
    for (const char* keyword : {"pattern", "minLength", "maxLength", "format"}) {
      if (strict_ && schema.contains(keyword))
        return Error::invalid("tools: {} of the string parameter {} of {} is not supported with strict",
                              keyword, key, tool);
    }
    uses_text_ = true;
    return rule_ + "-text";
  }

  Result<std::string> json_value(const std::string& rule, const Json& schema, const std::string& key,
                                 const std::string& tool) {
    Json whole = schema;
    if (whole.is_object()) {
      for (const char* definitions : {"$defs", "definitions"})
        if (parameters_.contains(definitions)) whole[definitions] = parameters_[definitions];
    }
    Result<std::string> rules = json_schema_gbnf(json_line(whole), rule);
    if (rules.ok()) {
      rules_ += *rules + "\n";
      return rule;
    }
    if (strict_) return Error::invalid("tools: parameter {} of {}: {}", key, tool, rules.error().message);
    uses_any_ = true;
    return rule_ + "-any";
  }

  const ToolGrammarOptions& options_;
  const std::string rule_;
  const std::string dsml_;
  std::string rules_;
  std::string tool_rule_;
  Json parameters_;
  bool strict_ = false, uses_text_ = false, uses_any_ = false;
  int tools_ = 0;
};

}  // namespace

std::string tool_call_name(const ChatTool& tool) {
  const Json function = Json::parse(tool.function_json, nullptr, false);
  const auto name = function.is_object() ? function.find("name") : function.end();
  if (!function.is_object() || name == function.end() || !name->is_string()) return "";
  const auto plain = name->get<std::string>();
  return tool.namespace_name.empty() ? plain : tool.namespace_name + "::" + plain;
}

Result<std::string> tool_calls_gbnf(std::span<const ChatTool> tools, const ToolGrammarOptions& options,
                                    const std::string& rule) {
  return ToolGrammar(options, rule).write(tools);
}

}  // namespace fathom
