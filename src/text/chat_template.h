// The fixed texts of the chat format, byte for byte as the model was trained on them.
//
// This is format data of DeepSeek-V4.1-Flash, as its published encoding/encoding.py (MIT) holds it: one byte
// off and the model sees a prompt it was not trained on. chat_encoding_test.cc checks the digests.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace fathom {

// Control tokens by spelling; their ids differ between vocabularies.
constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::string_view kDsml = "｜DSML｜";
constexpr std::string_view kImage = "<｜deepseek_image｜>";

constexpr fmt::string_view kEffortLine =
    "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

constexpr std::string_view kResponseFormat =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// 884 bytes, SHA-256 2ae2ff83edf990187ed419c4e2901bb9ea6ce2129eb503ac543b258e7de8231d.
constexpr std::string_view kToolsBefore =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by "
    "writing a \"<｜DSML｜ calls>\" block like the following:\n\n"
    "<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ "
    "parameter>\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";

// 99 bytes, SHA-256 690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7.
constexpr std::string_view kToolsAfter =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

}  // namespace fathom
