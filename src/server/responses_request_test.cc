#include "server/responses_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fathom {
namespace {

const GenerationDefaults kDefaults;

Result<ResponsesRequest> read(const Json& body, ResponsesHistory history = {}) {
  return read_responses_request(body, std::move(history), kDefaults, 1000);
}
Json chat_of(const Json& body, ResponsesHistory history = {}) {
  const Result<ResponsesRequest> request = read(body, std::move(history));
  EXPECT_TRUE(request.ok()) << request.error().message;
  return request.ok() ? request->chat : Json();
}
Json parse(const char* text) { return Json::parse(text); }

TEST(ResponsesRequest, ConvertsItems) {
  const Json chat = chat_of(parse(R"({"instructions": "Be brief.", "input": [
    {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
    {"type": "message", "role": "user", "content": "Weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text",
        "text": "Let me see."}]},
    {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
     "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"a\": 1}", "namespace": "sky"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    {"role": "user", "content": [{"type": "input_text", "text": "And?"},
                                 {"type": "input_image", "detail": "auto", "image_url": "data:,x"}]}]})"));
  EXPECT_EQ(chat["messages"], parse(R"([
    {"role": "system", "content": "Be brief.\n\nBe kind."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "reasoning_content": "Let me see.", "content": "Looking.", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"a\": 1}"},
          "namespace": "sky"},
      {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": {"input": "*** Begin"}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "done"}]},
    {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "image_url",
        "image_url": "data:,x"}]}])"));
}

TEST(ResponsesRequest, ContinuesWithoutOldInstructions) {
  ResponsesHistory history;
  history.messages = parse(R"([{"role": "system", "content": "dev"}, {"role": "user", "content": "a"},
                               {"role": "assistant", "content": "b"}])");
  const Result<ResponsesRequest> request = read({{"input", "c"}, {"instructions", "new"}}, std::move(history));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->chat["messages"], parse(R"([{"role": "system", "content": "new\n\ndev"},
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])"));
  EXPECT_EQ(request->messages.size(), 4U);
  EXPECT_EQ(request->messages[0]["content"], "dev");
}

TEST(ResponsesRequest, AnswersAnEmptyInput) {
  const Json empty_user = parse(R"([{"role": "user", "content": ""}])");
  EXPECT_EQ(chat_of({{"input", Json::array()}, {"max_output_tokens", 1}})["messages"], empty_user);
  EXPECT_EQ(chat_of({{"input", ""}})["messages"], empty_user);
  const Json chat = chat_of({{"input", Json::array()}, {"instructions", "i"}});
  EXPECT_EQ(chat["messages"].size(), 2U);
}

TEST(ResponsesRequest, ConvertsToolsAndNamesOthers) {
  const Result<ResponsesRequest> request = read(parse(R"({"input": "a", "truncation": "auto", "tools": [
    {"type": "web_search"}, {"type": "local_shell"},
    {"type": "function", "name": "f", "description": "d", "strict": true, "parameters": {"type": "object"}},
    {"type": "function", "name": "g", "strict": false, "parameters": null},
    {"type": "custom", "name": "patch", "description": "Edits.", "format": {"type": "grammar", "syntax": "lark",
        "definition": "G"}},
    {"type": "namespace", "name": "sky", "description": "Up.", "tools": [
      {"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "mcp"}]}]})"));
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->chat["tools"], parse(R"([
    {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"},
        "strict": true}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "patch",
      "description": "Edits.\n\nThe input follows this lark grammar:\nG", "parameters": {"type": "object",
      "properties": {"input": {"type": "string"}}, "required": ["input"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}},
     "namespace": {"name": "sky", "description": "Up."}}])"));
  EXPECT_EQ(request->custom_tools, std::set<std::string>{"patch"});
  EXPECT_EQ(request->ignored,
            (std::vector<std::string>{"truncation \"auto\"", "tools[0] of type \"web_search\"",
                                      "tools[1] of type \"local_shell\"",
                                      "tools[4].format (told to the model, not enforced)",
                                      "tools[5].tools[1] of type \"mcp\""}));
}

TEST(ResponsesRequest, ReadsToolChoice) {
  const auto choice = [](const char* text) {
    Json body = parse(R"({"input": "a", "tools": [{"type": "function", "name": "f", "parameters": {}},
                                                   {"type": "custom", "name": "c"}]})");
    body["tool_choice"] = Json::parse(text);
    return read(body);
  };
  EXPECT_EQ(choice(R"("required")")->fields.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(choice(R"({"type": "function", "name": "f"})")->fields.tool_name, "f");
  EXPECT_EQ(choice(R"({"type": "custom", "name": "c"})")->fields.tool_name, "c");
  const auto allowed = choice(R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom",
      "name": "c"}]})");
  ASSERT_TRUE(allowed.ok());
  EXPECT_EQ(allowed->fields.tool_choice, ToolChoice::kRequired);
  ASSERT_EQ(allowed->chat["tools"].size(), 1U);
  EXPECT_EQ(allowed->chat["tools"][0]["function"]["name"], "c");
}

TEST(ResponsesRequest, ReadsHowToGenerate) {
  const Result<ResponsesRequest> request = read(parse(R"({"input": "a", "max_output_tokens": 9, "temperature": 0,
    "reasoning": {"effort": "max", "summary": "auto"}, "stream": true, "store": false,
        "parallel_tool_calls": false,
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "top_logprobs": 2,
    "metadata": {"k": "v"}, "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n",
        "strict": true,
    "schema": {"type": "object"}}}})"));
  ASSERT_TRUE(request.ok()) << request.error().message;
  const GenerationFields& fields = request->fields;
  EXPECT_EQ(fields.max_tokens, 9);
  EXPECT_EQ(fields.sampling.temperature, 0);
  EXPECT_TRUE(fields.stream && fields.logprobs && !fields.parallel_tool_calls);
  EXPECT_EQ(fields.top_logprobs, 2);
  EXPECT_EQ(fields.form, AnswerForm::kJsonSchema);
  EXPECT_EQ(request->chat["reasoning_effort"], "max");
  EXPECT_TRUE(request->wants_encrypted_reasoning && !request->store);
  EXPECT_EQ(request->echo["metadata"]["k"], "v");
  EXPECT_EQ(request->echo["text"]["format"]["type"], "json_schema");
  EXPECT_EQ(request->echo["reasoning"]["effort"], "max");
  EXPECT_EQ(chat_of(parse(R"({"input": "a", "reasoning": {"effort": "none"}})"))["reasoning_effort"], "none");
}

TEST(ResponsesRequest, UnwrapsItsOwnReasoningOnly) {
  const auto reasoning = [](const std::string& wrapped) {
    return Json{{"input", Json::array({{{"role", "user"}, {"content", "a"}},
                                       {{"type", "reasoning"}, {"summary", Json::array()},
                                           {"encrypted_content", wrapped}},
                                       {{"role", "assistant"}, {"content", "b"}},
                                       {{"role", "user"}, {"content", "c"}}})}};
  };
  EXPECT_EQ(chat_of(reasoning(wrap_reasoning("why")))["messages"][1]["reasoning_content"], "why");
  const Result<ResponsesRequest> foreign = read(reasoning("gAAAA"));
  EXPECT_FALSE(foreign->chat["messages"][1].contains("reasoning_content"));
  EXPECT_EQ(foreign->ignored.size(), 1U);
}

TEST(ResponsesRequest, FollowsReferences) {
  ResponsesHistory history;
  history.find_item = [](std::string_view id) {
    return id == "msg_1" ? parse(R"({"type": "message", "role": "assistant", "content": [{"type": "output_text",
        "text": "b"}]})")
                         : Json();
  };
  const Json body = parse(R"({"input": [{"role": "user", "content": "a"}, {"type": "item_reference",
      "id": "msg_1"},
                                        {"role": "user", "content": "c"}]})");
  EXPECT_EQ(chat_of(body, history)["messages"][1]["content"], "b");
  EXPECT_EQ(read(body).error().message, "input[1].id: expected an item of a stored response, found \"msg_1\"");
}

TEST(ResponsesRequest, NamesWhatIsWrong) {
  const auto item = [](const char* text) { return std::string(R"({"input": [{"role": "user",
      "content": "a"}, )") + text + "]}"; };
  const auto with = [](const char* text) { return std::string(R"({"input": "a", )") + text + "}"; };
  const std::vector<std::pair<std::string, std::string>> table{
      {"{}", "input: expected a string or an array of items, found nothing"},
      {R"({"input": 5})", "input: expected a string or an array of items, found 5"},
      {item("5"), "input[1]: expected an object, found 5"},
      {with(R"("tools": [{"type": "custom", "name": "x", "format": {"type": 5}}])"), "tools[0].format.type: "},
      {item("{}"), "input[1].type: expected the type of an item, found nothing"},
      {item(R"({"type": "input_text", "text": "a"})"), "input[1].type: expected message, function_call"},
      {item(R"({"role": "tool", "content": "a"})"),
          "input[1].role: expected user, assistant, system or developer"},
      {item(R"({"role": "user"})"), "input[1].content: expected a string or an array, found nothing"},
      {item(R"({"role": "user", "content": [{"type": "input_file"}]})"), "input[1].content[0].type: "},
      {item(R"({"role": "user", "content": [{"type": "input_text"}]})"), "input[1].content[0].text: "},
      {item(R"({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]})"),
          "input[1].content[0].image_url: "},
      {item(R"({"role": "system", "content": [{"type": "input_image", "image_url": "f"}]})"),
          "input[1].content[0].type: "},
      {item(R"({"type": "function_call", "name": "f", "arguments": "{}"})"), "input[1].call_id: "},
      {item(R"({"type": "function_call", "call_id": "c", "arguments": "{}"})"), "input[1].name: "},
      {item(R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}})"), "input[1].arguments: "},
      {item(R"({"type": "function_call_output", "output": "a"})"), "input[1].call_id: "},
      {item(R"({"type": "function_call_output", "call_id": "c"})"), "input[1].output: "},
      {item(R"({"type": "custom_tool_call", "call_id": "c", "name": "f"})"), "input[1].input: "},
      {item(R"({"type": "reasoning", "content": "a"})"), "input[1].content: expected an array"},
      {with(R"("instructions": [])"), "instructions: expected a string, found an array"},
      {with(R"("tools": [{"name": "f"}])"), "tools[0].type: expected a string, found nothing"},
      {with(R"("tools": [{"type": "function"}])"), "tools[0].name: expected a string, found nothing"},
      {with(R"("tools": [{"type": "function", "name": "f", "parameters": []}])"), "tools[0].parameters: "},
      {with(R"("tools": [{"type": "namespace", "name": "s", "tools": [{"type": "function"}]}])"),
          "tools[0].tools[0].name: "},
      {with(R"("tool_choice": {"type": "web_search"})"), "tool_choice.type: "},
      {with(R"("tool_choice": {"type": "allowed_tools"})"), "tool_choice.tools: "},
      {with(R"("reasoning": "high")"), "reasoning: expected an object"},
      {with(R"("reasoning": {"effort": "huge"})"), "reasoning.effort: expected none, minimal"},
      {with(R"("text": {"format": {"type": "xml"}})"), "text.format.type: expected text, json_object"},
      {with(R"("text": {"format": {"type": "json_schema"}})"), "text.format.schema: "},
      {with(R"("background": true)"), "background: expected false"},
      {with(R"("conversation": "conv_1")"), "conversation: "},
      {with(R"("prompt": {"id": "p"})"), "prompt: "},
      {with(R"("include": ["a", 1])"), "include: "},
      {with(R"("max_output_tokens": -1)"), "max_output_tokens: "},
      {with(R"("store": "no")"), "store: expected true or false"},
      {with(R"("n": 3)"), "n: expected 1"},
  };
  for (const auto& [body, begins] : table) {
    const Result<ResponsesRequest> request = read(Json::parse(body));
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_TRUE(request.error().message.starts_with(begins)) << body << "\n" << request.error().message;
  }
}

}  // namespace
}  // namespace fathom
