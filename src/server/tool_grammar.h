// The block of tool calls as a grammar, for answers that must call a tool.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_message.h"

namespace fathom {

struct ToolGrammarOptions {
  int32_t dsml_id = -1;      // of the control token that marks tags
  bool parallel = true;      // several calls in a block
  std::string only;          // the one tool that may be called, by its name or namespace::name; empty: any
};

/// "name" or "namespace::name", as calls spell it. `function_json` was checked when it was parsed.
std::string tool_call_name(const ChatTool& tool);

/// GBNF with the rule `rule` for the block, from its blank line to its closing tag; its other rules begin with
/// `rule`. Parameters come in the order of "properties", typed by their schemas; a schema that cannot be a
/// grammar is any JSON, or kInvalidArgument if the function says "strict": true. kInvalidArgument when `only`
/// names no tool.
Result<std::string> tool_calls_gbnf(std::span<const ChatTool> tools, const ToolGrammarOptions& options,
                                    const std::string& rule);

}  // namespace fathom
