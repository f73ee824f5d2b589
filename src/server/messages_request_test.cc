#include "server/messages_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fathom {
namespace {

const GenerationDefaults kDefaults;

Result<MessagesRequest> read(Json body) {
  if (!body.contains("max_tokens")) body["max_tokens"] = 10;
  return read_messages_request(body, {.defaults = kDefaults, .vocab_size = 1000});
}
Json chat_of(const Json& body) {
  const Result<MessagesRequest> request = read(body);
  EXPECT_TRUE(request.ok()) << request.error().message;
  return request.ok() ? request->chat : Json();
}
Json messages(std::initializer_list<Json> list) { return {{"messages", Json(list)}}; }
Json message(const char* role, Json content) { return {{"role", role}, {"content", std::move(content)}}; }
Json parse(const char* text) { return Json::parse(text); }

TEST(MessagesRequest, ConvertsAConversation) {
  const Json chat = chat_of(parse(R"({"system": [{"type": "text", "text": "Be brief."}, {"type": "text",
      "text": "Be kind."}],
    "messages": [
      {"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Let me ", "signature": "x"}, {"type": "redacted_thinking", "data": "?"},
        {"type": "thinking", "thinking": "see.", "signature": "x"},
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"z": 1, "a": "b"}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": false, "content": [{"type": "text",
            "text": "sunny"},
          {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"},
              "title": "T"}]},
        {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}]}]})"));
  EXPECT_EQ(chat["messages"], parse(R"([
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "content": "Looking.", "reasoning_content": "Let me see.",
     "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "weather", "arguments": {"z": 1,
         "a": "b"}}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"},
          {"type": "text", "text": "T\n\nD"}]},
      {"type": "text", "text": "And?"}]}])"));
  EXPECT_EQ(chat["thinking"], "disabled");
}

TEST(MessagesRequest, LetsAnAssistantsMessageAtTheEndGoOn) {
  const Json chat = chat_of(messages({message("user", "Hi"), message("assistant", "He"), message("assistant",
      "llo")}));
  ASSERT_EQ(chat["messages"].size(), 2U);
  EXPECT_EQ(chat["messages"][1], parse(R"({"role": "assistant", "content": "Hello", "prefix": true})"));
}

TEST(MessagesRequest, ConvertsToolsAndNamesOthers) {
  Json body = messages({message("user", "Hi")});
  body["tools"] = parse(R"([{"type": "bash_20250124", "name": "bash"},
    {"name": "a", "description": "d", "input_schema": {"type": "object"}, "strict": true, "cache_control": {}},
    {"type": "custom", "name": "b", "input_schema": {"type": "object"}, "defer_loading": true}])");
  body["mcp_servers"] = Json::array({Json::object()});
  const Result<MessagesRequest> request = read(body);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->chat["tools"], parse(R"([
    {"type": "function", "function": {"name": "a", "description": "d", "parameters": {"type": "object"},
        "strict": true}},
    {"type": "function", "function": {"name": "b", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"tools[0] of type \"bash_20250124\"", "mcp_servers"}));
}

TEST(MessagesRequest, ReadsHowToThink) {
  Json body = messages({message("user", "Hi")});
  body["thinking"] = {{"type", "enabled"}, {"budget_tokens", 2048}};
  body["output_config"] = {{"effort", "max"}};
  const Result<MessagesRequest> request = read(body);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->chat["thinking"], "enabled");
  EXPECT_EQ(request->chat["reasoning_effort"], "max");
  EXPECT_EQ(request->fields.reasoning_tokens_max, 2048);
  EXPECT_TRUE(request->shows_thinking);
  body["thinking"] = {{"type", "adaptive"}, {"display", "omitted"}};
  EXPECT_FALSE(read(body)->shows_thinking);
  body["thinking"] = {{"type", "disabled"}};
  EXPECT_EQ(chat_of(body)["thinking"], "disabled");
}

TEST(MessagesRequest, ReadsHowToGenerate) {
  Json body = messages({message("user", "Hi")});
  body.update(parse(R"({"max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["a",
      "b"],
    "stream": true, "tool_choice": {"type": "tool", "name": "x", "disable_parallel_tool_use": true},
        "ignore_eos": true,
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}})"));
  const Result<MessagesRequest> request = read(body);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const GenerationFields& fields = request->fields;
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.sampling.temperature, 0.5F);
  EXPECT_EQ(fields.sampling.top_k, 5);
  EXPECT_EQ(fields.stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(fields.stream && fields.ignore_eos && !fields.parallel_tool_calls);
  EXPECT_EQ(fields.tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(fields.tool_name, "x");
  EXPECT_EQ(fields.form, AnswerForm::kJsonSchema);
  EXPECT_EQ(request->chat["response_format"]["json_schema"]["schema"], parse(R"({"type": "object"})"));
}

TEST(MessagesRequest, CutsOutBillingLines) {
  EXPECT_EQ(without_billing_lines("x-anthropic-billing-header: a=b;"), "");
  EXPECT_EQ(without_billing_lines("x-anthropic-billing-header: a\nYou are\n"), "You are\n");
  EXPECT_EQ(without_billing_lines("Say x-anthropic-billing-header: a\nb"), "Say x-anthropic-billing-header: a\nb");
  EXPECT_EQ(without_billing_lines(""), "");
}

TEST(MessagesRequest, NamesWhatIsWrong) {
  const std::string ok = R"("messages": [{"role": "user", "content": "Hi"}])";
  const auto with = [&ok](const char* more) { return "{" + ok + ", " + more + "}"; };
  const auto block = [](const char* text) {
    return std::string(R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [)") +
        text + "]}]}";
  };
  const auto said = [](const char* text) {
    return std::string(R"({"messages": [{"role": "assistant", "content": [)") + text + "]}]}";
  };
  const std::vector<std::pair<std::string, std::string>> table{
      {"{}", "messages: expected an array of messages, found nothing"},
      {R"({"messages": []})", "messages: expected at least one"},
      {R"({"messages": "Hi"})", "messages: expected an array, found \"Hi\""},
      {R"({"messages": [3]})", "messages[0]: expected an object, found 3"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role: expected a string, found nothing"},
      {R"({"messages": [{"role": "tool", "content": "a"}]})",
          "messages[0].role: expected user, assistant or system"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content: expected a string or an array, found nothing"},
      {R"({"messages": [{"role": "user", "content": 1}]})",
          "messages[0].content: expected a string or an array of"},
      {block("1"), "messages[1].content[0]: expected an object, found 1"},
      {block("{}"), "messages[1].content[0].type: expected a string, found nothing"},
      {block(R"({"type": "audio"})"), "messages[1].content[0].type: expected text, image, document"},
      {block(R"({"type": "text"})"), "messages[1].content[0].text: expected a string, found nothing"},
      {block(R"({"type": "text", "text": "a"}, {"type": "text", "text": 5})"),
          "messages[1].content[1].text: expected"},
      {block(R"({"type": "tool_use", "id": "a", "name": "b", "input": {}})"), "messages[1].content[0].type: "},
      {block(R"({"type": "image"})"), "messages[1].content[0].source: expected an object, found nothing"},
      {block(R"({"type": "image", "source": {"type": "file", "file_id": "f"}})"),
          "messages[1].content[0].source.type: "},
      {block(R"({"type": "image", "source": {"type": "url"}})"), "messages[1].content[0].source.url: "},
      {block(R"({"type": "image", "source": {"type": "base64", "data": "a"}})"),
          "messages[1].content[0].source.media"},
      {block(R"({"type": "document", "source": {"type": "base64", "data": "a"}})"),
          "messages[1].content[0].source.type: "},
      {block(R"({"type": "tool_result"})"),
          "messages[1].content[0].tool_use_id: expected a string, found nothing"},
      {block(R"({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_result"}]})"),
       "messages[1].content[0].content[0].type: expected text, image, document, search_result or tool_reference"},
      {said(R"({"type": "image"})"), "messages[0].content[0].type: expected text, thinking"},
      {said(R"({"type": "thinking"})"), "messages[0].content[0].thinking: expected a string, found nothing"},
      {said(R"({"type": "tool_use", "name": "a", "input": {}})"), "messages[0].content[0].id: "},
      {said(R"({"type": "tool_use", "id": "i", "name": "a\"b", "input": {}})"), "messages[0].content[0].name: "},
      {said(R"({"type": "tool_use", "id": "i", "name": "a", "input": "{}"})"), "messages[0].content[0].input: "},
      {with(R"("system": 5)"), "system: expected a string or an array of text blocks, found 5"},
      {with(R"("system": [{"type": "image"}])"), "system[0].type: expected \"text\", found \"image\""},
      {with(R"("tools": {})"), "tools: expected an array, found an object"},
      {with(R"("tools": [{"name": "a"}])"), "tools[0].input_schema: expected a schema, found nothing"},
      {with(R"("tools": [{"name": "a", "input_schema": 1}])"),
          "tools[0].input_schema: expected an object, found 1"},
      {with(R"("tools": [{"name": "", "input_schema": {}}])"), "tools[0].name: "},
      {with(R"("thinking": true)"), "thinking: expected an object, found true"},
      {with(R"("thinking": {"type": "on"})"),
          "thinking.type: expected enabled, disabled or adaptive, found \"on\""},
      {with(R"("thinking": {"type": "enabled", "budget_tokens": -1})"), "thinking.budget_tokens: "},
      {with(R"("thinking": {"type": "adaptive", "display": "loud"})"), "thinking.display: "},
      {with(R"("output_config": {"effort": "huge"})"), "output_config.effort: "},
      {with(R"("output_config": {"format": {"type": "xml"}})"), "output_config.format.type: expected json_schema"},
      {with(R"("output_config": {"format": {"type": "json_schema"}})"), "output_config.format.schema: "},
      {with(R"("tool_choice": {"type": "every"})"), "tool_choice.type: "},
      {with(R"("tool_choice": {"type": "tool"})"), "tool_choice.name: "},
      {with(R"("stop_sequences": [5.5])"), "stop_sequences[0]: "},
      {with(R"("temperature": -1)"), "temperature: "},
      {with(R"("max_tokens": "many")"), "max_tokens: "},
      {with(R"("n": 2)"), "n: expected 1"},
      {with(R"("stream": "yes")"), "stream: expected true or false"},
  };
  for (const auto& [body, begins] : table) {
    const Result<MessagesRequest> request = read(Json::parse(body));
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_TRUE(request.error().message.starts_with(begins)) << body << "\n" << request.error().message;
  }
  const Result<MessagesRequest> endless =
      read_messages_request(messages({message("user", "Hi")}), {.defaults = kDefaults, .vocab_size = 1000});
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().message, "max_tokens: expected a whole number, found nothing");
}

}  // namespace
}  // namespace fathom
