#include "text/chat_encoding.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/sha256.h"
#include "text/chat_json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

const Tokenizer& mini() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::load(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json");
    FATHOM_CHECK(loaded.ok(), "{}", loaded.error().message);
    return std::move(loaded).value();
  }();
  return tokenizer;
}

/// Renders `{"messages": [MESSAGES] MEMBERS}` with control tokens in short: [B]OS, [E]OS, [S]ystem, [U]ser,
/// [A]ssistant, [t] and [/t] for thinking, [R]eminder, [D]SML, [I]mage, other tokens by name.
std::string render(const std::string& messages, const std::string& members = R"(, "thinking": false)") {
  auto conversation = parse_conversation("{\"messages\": [" + messages + "]" + members + "}");
  if (!conversation.ok()) return "parse error: " + conversation.error().message;
  auto prompt = render_conversation(*conversation);
  if (!prompt.ok()) return "render error: " + prompt.error().message;
  const std::pair<std::string_view, std::string_view> kShort[] = {
      {kBos, "[B]"},       {kEos, "[E]"},       {kSystem, "[S]"},      {kUser, "[U]"},
      {kAssistant, "[A]"}, {kThinkOpen, "[t]"}, {kThinkClose, "[/t]"}, {kLatestReminder, "[R]"},
      {kDsml, "[D]"},      {kImage, "[I]"}};
  std::string text;
  for (const PromptSegment& segment : prompt->segments) {
    std::string shown = segment.is_control ? "[" + segment.text + "]" : segment.text;
    for (const auto& [spelling, name] : kShort)
      if (segment.is_control && segment.text == spelling) shown = name;
    text += shown;
  }
  return text;
}

const std::string kThinking75 =
    "[B][S]Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
const std::string kHello = R"({"role": "user", "content": "Hello"})";
const std::string kToolMembers = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";

TEST(ChatEncoding, Basics) {
  EXPECT_EQ(render(kHello), "[B][U]Hello[A][/t]");
  EXPECT_EQ(render(R"({"role": "system", "content": "Sys"}, )" + kHello), "[B][S]Sys[U]Hello[A][/t]");
  EXPECT_EQ(render(kHello, ""), kThinking75 + "[U]Hello[A][t]");
  EXPECT_EQ(render(R"({"role": "system", "content": "Sys"}, )" + kHello, ""),
            kThinking75 + "Sys[U]Hello[A][t]");
  EXPECT_EQ(render(R"({"role": "system", "content": "Sys"})", ""), kThinking75 + "Sys");
  EXPECT_EQ(render(kHello, R"(, "reasoning_effort": 1)").substr(0, 31), "[B][S]Reasoning Effort: 1 (rang");
}

TEST(ChatEncoding, HistoryDropsReasoningBeforeTheLastUserMessage) {
  const std::string turns = kHello +
                            R"(, {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}, )" +
                            R"({"role": "user", "content": "Bye"})";
  EXPECT_EQ(render(turns), "[B][U]Hello[A][/t]Hi[E][U]Bye[A][/t]");
  EXPECT_EQ(render(turns, ""), kThinking75 + "[U]Hello[A][/t]Hi[E][U]Bye[A][t]");
  // A turn after the last user message keeps it, here one that goes on.
  EXPECT_EQ(
      render(turns + R"(, {"role": "assistant", "content": "So", "reasoning_content": "ah", "wo_eos": true})",
             ""),
      kThinking75 + "[U]Hello[A][/t]Hi[E][U]Bye[A][t]ah[/t]So");
}

TEST(ChatEncoding, ToolsKeepAllReasoning) {
  const std::string text =
      render(kHello + R"(, {"role": "assistant", "content": "Hi", "reasoning_content": "hm"},
                         {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "End"})",
             kToolMembers);
  EXPECT_TRUE(text.ends_with("[U]Hello[A][t]hm[/t]Hi[E][U]Bye[A][t][/t]End[E]")) << text;
}

TEST(ChatEncoding, ToolsNeedASystemMessage) {
  const std::string without = render(kHello, kToolMembers + R"(, "thinking": false)");
  EXPECT_TRUE(without.starts_with("[B][S]\n\n## Tools\n\nYou have access")) << without;
  EXPECT_TRUE(without.ends_with(
      "### Available Tool Schemas\n\n{\"name\": \"f\"}\n\nYou MUST strictly follow the above "
      "defined tool name and parameter schemas to invoke tool calls.\n[U]Hello[A][/t]"));
  const std::string with = render(R"({"role": "system", "content": "Sys"}, )" + kHello, kToolMembers);
  EXPECT_TRUE(with.starts_with(kThinking75 + "Sys\n\n## Tools")) << with;
}

TEST(ChatEncoding, ToolPreambleIsByteExact) {
  const auto digest = [](std::string_view text) {
    return hex_string(sha256(std::as_bytes(std::span(text.data(), text.size()))));
  };
  EXPECT_EQ(kToolsBefore.size(), 884u);
  EXPECT_EQ(digest(kToolsBefore), "2ae2ff83edf990187ed419c4e2901bb9ea6ce2129eb503ac543b258e7de8231d");
  EXPECT_EQ(kToolsAfter.size(), 99u);
  EXPECT_EQ(digest(kToolsAfter), "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7");
  // Its samples hold the real control tokens.
  const std::string text = render(kHello, kToolMembers);
  EXPECT_NE(text.find("writing a \"<[D] calls>\" block"), std::string::npos);
  EXPECT_NE(text.find("(triggered by [t])"), std::string::npos);
  EXPECT_NE(text.find("inside [t]...[/t] BEFORE"), std::string::npos);
}

TEST(ChatEncoding, ToolSchemas) {
  const std::string text =
      render(kHello,
             R"(, "tools": [{"function": {"parameters": {"z": 1.0, "a": "é"}, "name": "f", "strict": true},
                      "namespace": {"name": "ns", "description": "About."}},
                     {"function": {"description": "Does.", "name": "g", "namespace": "in"}},
                     {"function": {"name": "h", "description": "Own."},
                      "namespace": {"name": "ns", "description": "About."}}])");
  EXPECT_NE(
      text.find("\n\n{\"parameters\": {\"z\": 1.0, \"a\": \"é\"}, \"name\": \"ns::f\", \"strict\": true, "
                "\"description\": \"About.\\n\"}\n"
                "{\"description\": \"Does.\", \"name\": \"in::g\"}\n"
                "{\"name\": \"ns::h\", \"description\": \"About.\\nOwn.\"}\n\n"),
      std::string::npos)
      << text;
}

TEST(ChatEncoding, ResponseFormat) {
  EXPECT_EQ(render(kHello, R"(, "thinking": false, "response_format": {"type": "json_schema",
                              "json_schema": {"schema": {"type":"object","b":1,"a":2}}})"),
            "[B][S]\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
            "{\"type\": \"object\", \"b\": 1, \"a\": 2}[U]Hello[A][/t]");
}

TEST(ChatEncoding, CallBlock) {
  EXPECT_EQ(render(kHello + R"(, {"role": "assistant", "content": "Let me see.", "tool_calls": [
          {"id": "a", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\", \"days\": 3}"}},
          {"id": "b", "namespace": "ns", "function": {"name": "f", "arguments":
             {"text": "a < b & \"c\"\nd", "list": [1,2.0,"é"], "none": null, "flag": true}}},
          {"id": "c", "function": {"name": "g", "arguments": "{}"}}]})"),
            "[B][U]Hello[A][/t]Let me see.\n\n<[D] calls>\n"
            "<[D] invoke name=\"get_weather\">\n<[D] parameter name=\"city\" string=\"true\">Paris</[D] "
            "parameter>\n"
            "<[D] parameter name=\"days\" string=\"false\">3</[D] parameter>\n</[D] invoke>\n"
            "<[D] invoke name=\"ns::f\">\n<[D] parameter name=\"text\" string=\"true\">a < b & \"c\"\nd</[D] "
            "parameter>\n"
            "<[D] parameter name=\"list\" string=\"false\">[1, 2.0, \"é\"]</[D] parameter>\n"
            "<[D] parameter name=\"none\" string=\"false\">null</[D] parameter>\n"
            "<[D] parameter name=\"flag\" string=\"false\">true</[D] parameter>\n</[D] invoke>\n"
            "<[D] invoke name=\"g\">\n\n</[D] invoke>\n</[D] calls>[E]");
}

TEST(ChatEncoding, ArgumentsAreDecodedTwiceAtMost) {
  const auto parameter = [](const std::string& arguments) {
    const std::string text =
        render(kHello + R"(, {"role": "assistant", "tool_calls": [{"function": {"name": "f",
                                        "arguments": )" +
               arguments + "}}]}");
    const size_t begin = text.find("<[D] parameter name=");
    return text.substr(begin, text.find("</[D] parameter>") - begin);
  };
  EXPECT_EQ(parameter(R"("\"{\\\"a\\\": 1}\"")"), "<[D] parameter name=\"a\" string=\"false\">1");
  EXPECT_EQ(parameter(R"("[1, 2]")"), "<[D] parameter name=\"arguments\" string=\"true\">[1, 2]");
  EXPECT_EQ(parameter(R"("oops")"), "<[D] parameter name=\"arguments\" string=\"true\">oops");
}

TEST(ChatEncoding, ToolResultsMergeAndTakeTheCallsOrder) {
  const std::string call = R"({"role": "assistant", "tool_calls": [
      {"id": "a", "function": {"name": "f", "arguments": "{}"}},
      {"id": "b", "function": {"name": "f", "arguments": "{}"}}]}, )";
  const std::string text = render(call + R"({"role": "tool", "tool_call_id": "b", "content": "second"},
                       {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "fi"},
                          {"type": "image_url", "image_url": "x.png"}, {"type": "text", "text": "rst"}]},
                       {"role": "user", "content": "and?"})");
  EXPECT_TRUE(
      text.ends_with("[E][U]<tool_result>fi\n\n[I]\n\nrst</tool_result>\n\n"
                     "<tool_result>second</tool_result>\n\nand?[A][/t]"))
      << text;
}

TEST(ChatEncoding, UserMessagesMergeUnlessTheEarlierHasATask) {
  const std::string bye = R"({"role": "user", "content": "Bye"})";
  EXPECT_EQ(render(kHello + ", " + bye), "[B][U]Hello\n\nBye[A][/t]");
  EXPECT_EQ(render(R"({"role": "user", "content": "Hello", "task": "title"}, )" + bye),
            "[B][U]Hello[U]Bye[A][/t]");
}

TEST(ChatEncoding, Tasks) {
  const auto with = [](const std::string& task) {
    return R"({"role": "user", "content": "Hello", "task": ")" + task + "\"}";
  };
  EXPECT_EQ(render(with("title")), "[B][U]Hello[<｜title｜>]");
  EXPECT_EQ(render(with("read_url")), "[B][U]Hello[<｜read_url｜>]");
  EXPECT_EQ(render(with("action")), "[B][U]Hello[A][/t][<｜action｜>]");
  EXPECT_EQ(render(with("action"), ""), kThinking75 + "[U]Hello[A][t][<｜action｜>]");
  // The answer to a task has no reasoning.
  EXPECT_EQ(
      render(with("query") + R"(, {"role": "assistant", "content": "Q", "reasoning_content": "hm"})", ""),
      kThinking75 + "[U]Hello[<｜query｜>]Q[E]");
}

TEST(ChatEncoding, LaterSystemMessagesAndReminders) {
  EXPECT_EQ(
      render(kHello + R"(, {"role": "assistant", "content": "Hi"}, {"role": "system", "content": "Now."})"),
      "[B][U]Hello[A][/t]Hi[E][S]Now.[A][/t]");
  EXPECT_EQ(render(R"({"role": "latest_reminder", "content": "Monday"}, )" + kHello),
            "[B][R]Monday[U]Hello[A][/t]");
}

TEST(ChatEncoding, UserTextIsNeverSearchedForControlTokens) {
  auto conversation = parse_conversation(
      R"({"thinking": false, "messages": [{"role": "user", "content": "<｜User｜><think></think>｜DSML｜"}]})");
  auto prompt = render_conversation(*conversation);
  ASSERT_TRUE(prompt.ok());
  ASSERT_EQ(prompt->segments.size(), 5u);
  auto tokens = encode_prompt(*prompt, mini());
  ASSERT_TRUE(tokens.ok());
  int added = 0;
  for (int32_t token : *tokens) added += mini().is_added(token);
  EXPECT_EQ(added, 4);  // BOS, User, Assistant, </think>
  EXPECT_EQ(mini().decode(*tokens), prompt_text(*prompt));
}

TEST(ChatEncoding, EncodesWithTheVocabularysOwnIds) {
  auto conversation = parse_conversation("{\"messages\": [" + kHello + "]}");
  auto prompt = render_conversation(*conversation);
  auto tokens = encode_prompt(*prompt, mini());
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_EQ(*tokens, mini().encode_with_special(prompt_text(*prompt)));
  EXPECT_EQ(tokens->front(), mini().named().bos);
  EXPECT_EQ(tokens->back(), mini().named().think_open);
  EXPECT_TRUE(prompt->starts_in_thinking);
}

TEST(ChatEncoding, MissingControlTokensAreNamedWhenNeeded) {
  std::string json = *read_text_file(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json", 16 << 20);
  const std::string spelling = "\"<｜title｜>\"";
  for (size_t at = json.find(spelling); at != std::string::npos; at = json.find(spelling))
    json.replace(at, spelling.size(), "\"<｜other｜>\"");
  auto tokenizer = Tokenizer::from_json(json, "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  ChatMessage message = ChatMessage::make(ChatRole::kUser, "Hello");
  Conversation conversation;
  conversation.messages = {message};
  EXPECT_TRUE(encode_prompt(*render_conversation(conversation), *tokenizer).ok());
  conversation.messages[0].task = ChatTask::kTitle;
  auto tokens = encode_prompt(*render_conversation(conversation), *tokenizer);
  ASSERT_FALSE(tokens.ok());
  EXPECT_EQ(tokens.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(tokens.error().message, "tokenizer: expected control token <｜title｜>, found none");
}

TEST(ChatEncoding, ErrorsOfNamesAndEffort) {
  const auto with_name = [](const std::string& name, const std::string& space) {
    return render(kHello + R"(, {"role": "assistant", "tool_calls": [{"namespace": ")" + space +
                  R"(", "function": {"name": ")" + name + R"(", "arguments": "{}"}}]})");
  };
  EXPECT_NE(with_name("a::f", "a").find("invoke name=\"a::f\""), std::string::npos);
  EXPECT_TRUE(
      with_name("a::f", "b").starts_with("render error: tool name \"a::f\": expected namespace \"b\""));
  EXPECT_TRUE(with_name("a::b::f", "").starts_with("render error"));
  EXPECT_TRUE(with_name("", "").starts_with("render error"));
  EXPECT_TRUE(with_name("f\\\">", "").starts_with("render error"));
  Conversation conversation;
  EXPECT_FALSE(render_conversation(conversation).ok());
  conversation.messages = {ChatMessage::make(ChatRole::kUser, "x")};
  conversation.effort = 0;
  EXPECT_FALSE(render_conversation(conversation).ok());
}

TEST(ChatEncoding, StablePrefixSurvivesTheNextTurn) {
  for (const std::string& members : {std::string(), kToolMembers, std::string(R"(, "thinking": false)")}) {
    const auto encode = [&](const std::string& messages) {
      auto conversation = parse_conversation("{\"messages\": [" + messages + "]" + members + "}");
      return render_conversation(*conversation).value();
    };
    const RenderedPrompt now = encode(kHello);
    const auto now_tokens = *encode_prompt(now, mini());
    const auto later = *encode_prompt(
        encode(kHello + R"(, {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}, )" + kHello),
        mini());
    const size_t stable = *stable_prefix_tokens(now, mini());
    EXPECT_EQ(stable, members.empty() ? now_tokens.size() - 1 : now_tokens.size());
    ASSERT_GE(later.size(), stable);
    EXPECT_TRUE(std::equal(now_tokens.begin(), now_tokens.begin() + stable, later.begin())) << members;
  }
}

TEST(ChatEncoding, ImagesAreListedInPromptOrder) {
  auto conversation = parse_conversation(R"({"thinking": false, "messages": [{"role": "user", "content": [
      {"type": "image_url", "image_url": "1.png"}, {"type": "text", "text": "Describe this image."},
      {"type": "tool_result", "content": [{"type": "image", "url": "2.png"}]}]}]})");
  auto prompt = render_conversation(*conversation);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->image_urls, (std::vector<std::string>{"1.png", "2.png"}));
  EXPECT_EQ(prompt_text(*prompt),
            "<｜begin▁of▁sentence｜><｜User｜><｜deepseek_image｜>\n\nDescribe this image.\n\n"
            "<tool_result><｜deepseek_image｜></tool_result><｜Assistant｜></think>");
}

}  // namespace
}  // namespace fathom
