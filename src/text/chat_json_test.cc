#include "text/chat_json.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

std::string error_of(std::string_view json) {
  auto result = parse_conversation(json);
  return result.ok() ? "no error" : result.error().message;
}

/// The error of a request with one message.
std::string message_error(const std::string& message) {
  return error_of("{\"messages\": [" + message + "]}");
}

TEST(ChatJson, ReadsAWholeConversation) {
  auto result = parse_conversation(R"({
    "model": "x", "temperature": 1, "thinking": {"type": "enabled"}, "reasoning_effort": "max",
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2.0}},
               "namespace": {"name": "ns", "description": "about"}},
              {"type": "web_search"}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type":"object"}}},
    "messages": [
      {"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "a.png"}}, {"type": "image_url", "image_url": "b.png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}],
       "task": "title"},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
        {"id": "c2", "namespace": "ns", "function": {"name": "g", "arguments": {"y": [1,2]}}}]},
      {"role": "tool", "tool_call_id": "c2", "content": "result"},
      {"role": "latest_reminder", "content": "today"},
      {"role": "assistant", "content": "So", "prefix": true}]})");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->thinking);
  EXPECT_EQ(result->effort, 100);
  ASSERT_EQ(result->tools.size(), 1u);
  EXPECT_EQ(result->tools[0],
            (ChatTool{R"({"name": "f", "parameters": {"b": 1, "a": 2.0}})", "ns", "about"}));
  ASSERT_EQ(result->ignored.size(), 1u);
  EXPECT_EQ(result->ignored[0], "tools[1] of type \"web_search\"");
  EXPECT_EQ(result->response_format_json, R"({"type": "object"})");

  const auto& messages = result->messages;
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0], ChatMessage::make(ChatRole::kSystem, "Be brief."));
  ASSERT_EQ(messages[1].content.size(), 4u);
  EXPECT_EQ(messages[1].content[1], ChatBlock::make_image("a.png"));
  EXPECT_EQ(messages[1].content[2], ChatBlock::make_image("b.png"));
  EXPECT_EQ(messages[1].content[3], ChatBlock::make_image("data:image/png;base64,AAAA"));
  EXPECT_EQ(messages[1].task, ChatTask::kTitle);
  EXPECT_EQ(messages[2].reasoning, "hm");
  ASSERT_EQ(messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(messages[2].tool_calls[0], (ChatToolCall{"c1", "f", "", R"({"x":1})"}));
  EXPECT_EQ(messages[2].tool_calls[1], (ChatToolCall{"c2", "g", "ns", R"({"y": [1, 2]})"}));
  EXPECT_EQ(messages[3].role, ChatRole::kTool);
  EXPECT_EQ(messages[3].tool_call_id, "c2");
  EXPECT_EQ(messages[4].role, ChatRole::kLatestReminder);
  EXPECT_TRUE(messages[5].without_eos);
}

TEST(ChatJson, ThinkingAndEffort) {
  const auto parse = [](const std::string& members) {
    auto result = parse_conversation(R"({"messages": [{"role": "user", "content": "x"}])" + members + "}");
    return result.ok() ? (result->thinking ? result->effort : 0) : -1;
  };
  EXPECT_EQ(parse(""), 75);
  EXPECT_EQ(parse(R"(, "thinking": {"type": "disabled"})"), 0);
  EXPECT_EQ(parse(R"(, "thinking": false)"), 0);
  EXPECT_EQ(parse(R"(, "thinking_mode": "chat")"), 0);
  EXPECT_EQ(parse(R"(, "reasoning_effort": "none")"), 0);
  EXPECT_EQ(parse(R"(, "reasoning_effort": 7)"), 7);
  EXPECT_EQ(parse(R"(, "reasoning_effort": "7")"), 7);
  EXPECT_EQ(parse(R"(, "reasoning_effort": 0)"), -1);
  EXPECT_EQ(parse(R"(, "reasoning_effort": 101)"), -1);
  EXPECT_EQ(parse(R"(, "reasoning_effort": 50.0)"), -1);
  EXPECT_EQ(parse(R"(, "reasoning_effort": "hard")"), -1);
  EXPECT_EQ(parse(R"(, "thinking": {"type": "maybe"})"), -1);
}

TEST(ChatJson, EffortWords) {
  for (const char* word : {"minimal", "low"}) EXPECT_EQ(*parse_effort(word), 50) << word;
  for (const char* word : {"medium", "high", "xhigh"}) EXPECT_EQ(*parse_effort(word), 75) << word;
  for (const char* word : {"max", "ultra"}) EXPECT_EQ(*parse_effort(word), 100) << word;
  for (const char* word : {"", "0", "101", "+5", "5 ", "High", "99999999999"})
    EXPECT_FALSE(parse_effort(word).ok()) << word;
}

TEST(ChatJson, ResponseFormats) {
  const auto parse = [](const std::string& format) {
    auto result =
        parse_conversation(R"({"messages": [{"role": "user"}], "response_format": )" + format + "}");
    return result.ok() ? result->response_format_json : result.error().message;
  };
  EXPECT_EQ(parse("null"), "");
  EXPECT_EQ(parse(R"({"type": "text"})"), "");
  EXPECT_EQ(parse(R"({"type": "json_object"})"), R"({"type": "object"})");
  EXPECT_EQ(parse(R"({"type": "json_schema"})"),
            "response_format.json_schema.schema: expected an object, found nothing");
  EXPECT_EQ(parse(R"({"type": "xml"})"),
            "response_format.type: expected text, json_object or json_schema, found \"xml\"");
}

TEST(ChatJson, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("[]"), "conversation: expected an object, found an array");
  EXPECT_EQ(error_of("{}"), "messages: expected an array of messages, found nothing");
  EXPECT_EQ(error_of(R"({"messages": []})"), "messages: expected at least one message, found none");
  EXPECT_EQ(message_error(R"({"content": "x"})"), "messages[0].role: expected a string, found nothing");
  EXPECT_EQ(message_error(R"({"role": "function", "content": "x"})"),
            "messages[0].role: expected system, developer, user, assistant, tool or latest_reminder, "
            "found \"function\"");
  EXPECT_EQ(message_error(R"({"role": "user", "content": 5})"),
            "messages[0].content: expected a string or an array of content blocks, found 5");
  EXPECT_EQ(
      message_error(R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "audio"}]})"),
      "messages[0].content[1].type: expected \"text\", \"image_url\", \"image\" or \"tool_result\", "
      "found \"audio\"");
  EXPECT_EQ(message_error(R"({"role": "user", "tool_calls": [{}]})"),
            "messages[0].tool_calls: expected only on an assistant message, found an array");
  EXPECT_EQ(message_error(R"({"role": "user", "tools": [{}]})"),
            "messages[0].tools: expected only on a system message, found an array");
  EXPECT_EQ(message_error(R"({"role": "user", "content": "x", "task": "sing"})"),
            "messages[0].task: expected action, query, authority, domain, title or read_url, found \"sing\"");
  EXPECT_EQ(
      message_error(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]})"),
      "messages[0].tool_calls[0].function.arguments: expected a string or an object, found 3");
  EXPECT_EQ(message_error(R"({"role": "assistant", "tool_calls": [{}]})"),
            "messages[0].tool_calls[0].function: expected an object, found nothing");
  EXPECT_EQ(error_of(R"({"messages": [{"role": "user"}], "tools": [{"function": {}}]})"),
            "tools[0].function.name: expected a string, found nothing");
  EXPECT_TRUE(error_of("{\"messages\": [").starts_with("conversation: expected JSON, found parse error"));
  // Empty or null members of other roles are how some clients write "nothing".
  EXPECT_EQ(message_error(R"({"role": "user", "content": "x", "tool_calls": [], "reasoning_content": ""})"),
            "no error");
}

}  // namespace
}  // namespace fathom
