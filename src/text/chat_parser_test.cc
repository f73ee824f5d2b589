#include "text/chat_parser.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "text/chat_encoding.h"
#include "text/chat_template.h"
#include "text/chat_value.h"

namespace fathom {
namespace {

// --- a stream written as text: {D}, {t}, ... are control tokens, all else is what the model spells --------

enum : int32_t { kTextId = 0, kBosId, kEosId, kThinkOpenId, kThinkCloseId, kDsmlId, kUserId, kEotId };

NamedTokens named() {
  NamedTokens tokens;
  tokens.bos = kBosId;
  tokens.eos = kEosId;
  tokens.think_open = kThinkOpenId;
  tokens.think_close = kThinkCloseId;
  tokens.dsml = kDsmlId;
  tokens.user = kUserId;
  tokens.end_of_turn = kEotId;
  return tokens;
}

struct Token {
  int32_t id;
  std::string bytes;
};

/// `pieces` cuts the text: 0 not at all, 1 every byte, others at random.
std::vector<Token> tokens_of(std::string_view script, unsigned pieces) {
  const std::pair<std::string_view, Token> kControls[] = {
      {"{D}", {kDsmlId, std::string(kDsml)}},    {"{t}", {kThinkOpenId, "<think>"}},
      {"{/t}", {kThinkCloseId, "</think>"}},     {"{eos}", {kEosId, std::string(kEos)}},
      {"{user}", {kUserId, std::string(kUser)}}, {"{eot}", {kEotId, "<|EOT|>"}},
      {"{bos}", {kBosId, std::string(kBos)}}};
  std::mt19937 random(pieces);
  std::vector<Token> tokens;
  bool joinable = false;
  while (!script.empty()) {
    bool is_control = false;
    for (const auto& [mark, token] : kControls) {
      if (!script.starts_with(mark)) continue;
      tokens.push_back(token);
      script.remove_prefix(mark.size());
      is_control = true;
      joinable = false;
      break;
    }
    if (is_control) continue;
    if (!joinable) tokens.push_back({kTextId, ""});
    tokens.back().bytes += script.front();
    script.remove_prefix(1);
    joinable = pieces == 0 || (pieces > 1 && random() % 3 != 0);
  }
  return tokens;
}

/// What a client that only sees events ends up with.
struct Replay {
  std::string reasoning;
  std::string content;
  std::map<int, ParsedCall> calls;

  void take(const std::vector<ChatEvent>& events) {
    for (const ChatEvent& event : events) {
      switch (event.kind) {
        case ChatEventKind::kReasoning: reasoning += event.text; break;
        case ChatEventKind::kContent: content += event.text; break;
        case ChatEventKind::kCallStart:
          EXPECT_FALSE(calls.contains(event.call));
          calls[event.call] = {event.call, event.name, event.namespace_name, "", false};
          break;
        case ChatEventKind::kCallArguments: calls.at(event.call).arguments += event.text; break;
        case ChatEventKind::kCallEnd: calls.at(event.call).complete = true; break;
        case ChatEventKind::kCallDropped: calls.erase(event.call); break;
      }
    }
  }
};

std::string show(const std::string& reasoning, const std::string& content,
                 const std::vector<ParsedCall>& calls) {
  std::string text = "R:" + reasoning + "|C:" + content;
  for (const ParsedCall& call : calls) {
    text += "|" + (call.namespace_name.empty() ? "" : call.namespace_name + "::") + call.name;
    text += call.complete ? "(" + call.arguments + ")" : "(" + call.arguments + "...";
  }
  return text;
}

std::string show(const ParsedTurn& turn) { return show(turn.reasoning, turn.content, turn.calls); }

/// Parses the script under many cuts, and checks that neither result nor events depend on them.
ParsedTurn parse(std::string_view script, bool thinking = false, const ParameterTypes* types = nullptr) {
  ParsedTurn first;
  for (unsigned pieces = 0; pieces < 12; ++pieces) {
    ChatParser parser(named(), thinking, types);
    Replay replay;
    std::vector<ChatEvent> events;
    for (const Token& token : tokens_of(script, pieces)) {
      parser.feed(token.id, token.bytes, events);
      if (pieces % 2 == 0) continue;  // odd: one batch of events a token; even: one for all
      replay.take(events);
      events.clear();
    }
    parser.finish(events);
    replay.take(events);
    const ParsedTurn& turn = parser.turn();
    std::vector<ParsedCall> calls;
    for (const auto& [index, call] : replay.calls) calls.push_back(call);
    EXPECT_EQ(show(replay.reasoning, replay.content, calls), show(turn)) << "pieces " << pieces;
    if (pieces == 0) first = turn;
    EXPECT_EQ(show(turn), show(first)) << "pieces " << pieces;
    EXPECT_EQ(turn.diagnostics, first.diagnostics) << "pieces " << pieces;
    EXPECT_EQ(turn.end, first.end);
    EXPECT_EQ(turn.reasoning_unclosed, first.reasoning_unclosed);
    for (const ParsedCall& call : turn.calls)
      EXPECT_EQ(parse_json_value(call.arguments, "arguments").ok(), call.complete) << call.arguments;
  }
  return first;
}

std::string parsed(std::string_view script, bool thinking = false) { return show(parse(script, thinking)); }

const std::string kOpen = "\n\n<{D} calls>\n";
const std::string kShut = "\n</{D} calls>";
std::string invoke(const std::string& name, const std::string& parameters) {
  return "<{D} invoke name=\"" + name + "\">\n" + parameters + "\n</{D} invoke>";
}
std::string parameter(const std::string& key, const std::string& value, bool is_string = true) {
  return "<{D} parameter name=\"" + key + "\" string=\"" + (is_string ? "true" : "false") + "\">" + value +
         "</{D} parameter>";
}
std::string block(const std::string& invokes) { return kOpen + invokes + kShut; }

// --- well-formed ------------------------------------------------------------------------------------------

TEST(ChatParser, ContentAndReasoning) {
  EXPECT_EQ(parsed("Hello{eos}"), "R:|C:Hello");
  EXPECT_EQ(parsed("hm\n{/t}Hello\n\n{eos}", true), "R:hm\n|C:Hello\n\n");
  EXPECT_EQ(parsed("{/t}{eos}", true), "R:|C:");
  EXPECT_EQ(parse("Hello{eos}").end, TurnEnd::kEos);
  EXPECT_TRUE(parse("hm{/t}Hello{eos}", true).diagnostics.empty());
}

TEST(ChatParser, Calls) {
  EXPECT_EQ(
      parsed("See." +
             block(invoke("get_weather", parameter("city", "Paris") + "\n" + parameter("days", "3", false))) +
             "{eos}"),
      R"(R:|C:See.|get_weather({"city": "Paris", "days": 3}))");
  EXPECT_EQ(
      parsed("hm{/t}" + block(invoke("f", "") + "\n" + invoke("ns::g", parameter("a", ""))) + "{eos}", true),
      R"(R:hm|C:|f({})|ns::g({"a": ""}))");
  EXPECT_TRUE(parse(block(invoke("f", "")) + "{eos}").diagnostics.empty());
}

TEST(ChatParser, ValuesAreVerbatim) {
  const auto arguments = [](const std::string& value) {
    return parse(block(invoke("f", parameter("v", value))) + "{eos}").calls.at(0).arguments;
  };
  EXPECT_EQ(arguments("a < b && c > d"), R"({"v": "a < b && c > d"})");
  EXPECT_EQ(arguments("\"q\" \\ \n\t</p></"), R"({"v": "\"q\" \\ \n\t</p></"})");
  EXPECT_EQ(arguments("{\"json\": [1, 2]}"), R"({"v": "{\"json\": [1, 2]}"})");
  EXPECT_EQ(arguments("</｜DSML｜ parameter>"),
            R"({"v": "</｜DSML｜ parameter>"})");  // spelled, not the token
  EXPECT_EQ(arguments("<<{D} x</{D} param</{D}"), R"({"v": "<<｜DSML｜ x</｜DSML｜ param</｜DSML｜"})");
  EXPECT_EQ(arguments("{t}x{/t}</"), R"({"v": "<think>x</think></"})");
  EXPECT_EQ(arguments("日本 🙂"), R"({"v": "日本 🙂"})");
}

TEST(ChatParser, FlagDecidesWithoutSchema) {
  const auto arguments = [](const std::string& value) {
    return parse(block(invoke("f", parameter("v", value, false))) + "{eos}").calls.at(0).arguments;
  };
  EXPECT_EQ(arguments("[1,\n {\"a\": null}]"), "{\"v\": [1,\n {\"a\": null}]}");
  EXPECT_EQ(arguments("\"s\""), R"({"v": "s"})");
  EXPECT_EQ(arguments("1.50"), R"({"v": 1.50})");
  EXPECT_EQ(arguments("False"), R"({"v": false})");
  EXPECT_EQ(arguments("no json"), R"({"v": "no json"})");
  EXPECT_EQ(arguments(""), R"({"v": ""})");
  EXPECT_EQ(parse(block(invoke("f", parameter("v", "no json", false)))).diagnostics.at(0),
            "parameter \"v\": expected a JSON value");
}

TEST(ChatParser, SchemaOutranksTheFlag) {
  const ParameterTypes types({{R"({"name": "f", "parameters": {"properties": {
      "s": {"type": "string"}, "b": {"type": "boolean"}, "n": {"type": ["integer", "null"]},
      "e": {"type": ["string", "integer"]}, "x": {}}}})",
                               "ns", ""}});
  EXPECT_EQ(types.type_of("ns::f", "n"), ParameterType::kNotString);
  EXPECT_EQ(types.type_of("ns::f", "e"), ParameterType::kUnknown);
  EXPECT_EQ(types.type_of("ns::f", "x"), ParameterType::kUnknown);
  EXPECT_EQ(types.type_of("f", "s"), ParameterType::kUnknown);
  const auto arguments = [&](const std::string& parameters) {
    return parse(block(invoke("ns::f", parameters)) + "{eos}", false, &types).calls.at(0).arguments;
  };
  EXPECT_EQ(arguments(parameter("s", "42", false)), R"({"s": "42"})");
  EXPECT_EQ(arguments(parameter("s", "\"42\"", false)), R"({"s": "42"})");
  EXPECT_EQ(arguments(parameter("b", "False")), R"({"b": false})");
  EXPECT_EQ(arguments(parameter("n", "42")), R"({"n": 42})");
  EXPECT_EQ(arguments(parameter("n", "many")), R"({"n": "many"})");
  EXPECT_EQ(arguments(parameter("e", "42")), R"({"e": "42"})");
}

TEST(ChatParser, ProseNeverOpensABlock) {
  EXPECT_EQ(parsed("\n\n<｜DSML｜ calls>\n</think>{eos}"), "R:|C:\n\n<｜DSML｜ calls>\n</think>");
  EXPECT_EQ(parsed("a</think>b{/t}c", true), "R:a</think>b|C:c");
  EXPECT_EQ(parsed("x\n\n<y\n\n\n<<{eos}"), "R:|C:x\n\n<y\n\n\n<<");
  EXPECT_EQ(parsed("a\n" + block(invoke("f", ""))), "R:|C:a\n|f({})");  // only two newlines are the block's
  EXPECT_EQ(parsed("a<{D} calls>\n" + invoke("f", "") + kShut), "R:|C:a|f({})");
}

TEST(ChatParser, MarkersAreHeldBack) {
  ChatParser parser(named(), false);
  std::vector<ChatEvent> events;
  parser.feed(kTextId, "See.\n\n<", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "See.");
  parser.feed(kDsmlId, kDsml, events);
  parser.feed(kTextId, " calls>\n<", events);
  EXPECT_EQ(events.size(), 1u);
  parser.feed(kDsmlId, kDsml, events);
  parser.feed(kTextId, " invoke name=\"f\">\n<", events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].kind, ChatEventKind::kCallStart);
  parser.feed(kDsmlId, kDsml, events);
  parser.feed(kTextId, " parameter name=\"v\" string=\"true\">long te", events);
  EXPECT_EQ(events.back().text, R"({"v": "long te)");  // strings stream
  parser.feed(kTextId, "xt</", events);
  EXPECT_EQ(events.back().text, R"({"v": "long text)");
}

TEST(ChatParser, CharactersStayWhole) {
  ChatParser parser(named(), false);
  std::vector<ChatEvent> events;
  parser.feed(kTextId, "\xF0\x9F", events);
  EXPECT_TRUE(events.empty());
  parser.feed(kTextId, "\x99\x82", events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "🙂");
  EXPECT_EQ(parsed("a\xF0\x9F{eos}"), "R:|C:a\xEF\xBF\xBD");
  EXPECT_EQ(parsed("a\xF0\x9F{/t}b", true), "R:a\xEF\xBF\xBD|C:b");
  EXPECT_EQ(parsed("a\xFF z"), "R:|C:a\xEF\xBF\xBD z");
}

// --- out of order -----------------------------------------------------------------------------------------

TEST(ChatParser, BlockInsideThinking) {
  const ParsedTurn turn = parse("hm" + block(invoke("f", parameter("a", "1"))) + "{eos}", true);
  EXPECT_EQ(show(turn), R"(R:hm|C:|f({"a": "1"}))");
  EXPECT_FALSE(turn.reasoning_unclosed);
  // The thinking ends behind the block.
  EXPECT_EQ(parsed("hm" + block(invoke("f", "")) + "\n{/t}\n\n{eos}", true), "R:hm|C:|f({})");
  EXPECT_EQ(parsed("hm" + block(invoke("f", "")) + "{/t}done{eos}", true), "R:hm|C:done|f({})");
}

TEST(ChatParser, UnclosedThinkingStaysReasoning) {
  const ParsedTurn turn = parse("hm\n\n<{eos}", true);
  EXPECT_EQ(show(turn), "R:hm\n\n<|C:");
  EXPECT_TRUE(turn.reasoning_unclosed);
  EXPECT_EQ(turn.end, TurnEnd::kEos);
}

TEST(ChatParser, ReasonsToEnd) {
  EXPECT_EQ(parse("a{eot}b").end, TurnEnd::kEndOfTurn);
  EXPECT_EQ(parse("a{user}b").end, TurnEnd::kRoleToken);
  EXPECT_EQ(parse("a").end, TurnEnd::kCut);
  EXPECT_EQ(parsed("a{user}b{eos}"), "R:|C:a");
  EXPECT_EQ(parsed("a{eos}b{D}"), "R:|C:a");
}

TEST(ChatParser, StrayThinkTokens) {
  EXPECT_EQ(parsed("{t}hm{/t}a"), "R:hm|C:a");  // thinking although the prompt said not to
  EXPECT_EQ(parsed("{t}hm{/t}a", true), "R:hm|C:a");
  EXPECT_EQ(parsed("a{t}b{/t}c{bos}d"), "R:|C:abcd");
  EXPECT_EQ(parse("a{/t}b").diagnostics, std::vector<std::string>{"a stray </think> was left out"});
}

TEST(ChatParser, TextBehindTheBlock) {
  const ParsedTurn turn = parse(block(invoke("f", "")) + "\n\nDone.{eos}");
  EXPECT_EQ(show(turn), "R:|C:\n\nDone.|f({})");
  EXPECT_EQ(turn.diagnostics, std::vector<std::string>{"text after the tool call block"});
  EXPECT_EQ(parsed(block(invoke("f", "")) + " \n\n{eos}"), "R:|C:|f({})");
  EXPECT_EQ(parsed(block(invoke("f", "")) + block(invoke("g", "")) + "{eos}"), "R:|C:|f({})|g({})");
}

TEST(ChatParser, CutCallsAreNeverComplete) {
  const std::string whole =
      "See." + block(invoke("f", parameter("a", "text")) + "\n" + invoke("g", parameter("b", "3", false))) +
      "{eos}";
  const std::vector<Token> tokens = tokens_of(whole, 1);
  size_t complete_max = 0;
  for (size_t count = 0; count <= tokens.size(); ++count) {
    ChatParser parser(named(), false);
    std::vector<ChatEvent> events;
    for (size_t index = 0; index < count; ++index) parser.feed(tokens[index].id, tokens[index].bytes, events);
    parser.finish(events);
    const ParsedTurn& turn = parser.turn();
    // No byte of a marker reaches the content; a held "\n\n<" does, as nothing says it is one.
    EXPECT_TRUE(std::string("See.\n\n<").starts_with(turn.content)) << turn.content;
    size_t complete = 0;
    for (const ParsedCall& call : turn.calls) {
      complete += call.complete;
      EXPECT_EQ(parse_json_value(call.arguments, "arguments").ok(), call.complete);
      EXPECT_TRUE(call.complete || &call == &turn.calls.back());
    }
    EXPECT_GE(complete, complete_max);
    complete_max = complete;
    EXPECT_EQ(turn.end, count == tokens.size() ? TurnEnd::kEos : TurnEnd::kCut);
  }
  EXPECT_EQ(complete_max, 2u);
  const ParsedTurn cut =
      parse(kOpen + "<{D} invoke name=\"f\">\n<{D} parameter name=\"a\" string=\"true\">half a li");
  EXPECT_EQ(show(cut), R"(R:|C:|f({"a": "half a li...)");
  EXPECT_EQ(cut.diagnostics.at(0), "the output ends inside the call of \"f\"");
  EXPECT_TRUE(to_message(cut).tool_calls.empty());
  // The block's own end may be missing: the calls are whole.
  EXPECT_EQ(parsed(kOpen + invoke("f", "") + "{eos}"), "R:|C:|f({})");
}

TEST(ChatParser, MalformedBlocksComeBackAsText) {
  const auto text_of = [](std::string script) {  // control tokens shown by spelling
    for (size_t at = script.find("{D}"); at != std::string::npos; at = script.find("{D}"))
      script.replace(at, 3, kDsml);
    return script;
  };
  const std::string twice = block(invoke("f", parameter("a", "1") + "\n" + parameter("a", "2")));
  const std::string scripts[] = {
      twice,
      "\n\n<{D} tool_calls>\n" + invoke("f", "") + "\n</{D} tool_calls>",
      "\n\n<{D} calls>oops" + invoke("f", ""),
      kOpen + parameter("a", "1") + kShut,
      block("<{D} invoke name=f>\n</{D} invoke>"),
      block("<{D} invoke name=\"f\">\n<{D} parameter name=\"a\">1</{D} parameter>\n</{D} invoke>"),
      block("<{D} invoke name=\"f\">\n<{D} parameter name=\"a\" string=\"yes\">1</{D} parameter>"),
      block("<{D} invoke name=\"f\">\nfree text\n</{D} invoke>"),
      block(invoke("", "")),
      block(invoke("a::b::c", "")),
      block(invoke("::f", "")),
      block(invoke(std::string(300, 'n'), "")),
      block("<{D} invoke name=“f”>\n\n</{D} invoke>"),
      "\n\n<{D}{D} calls>\n",
  };
  for (const std::string& script : scripts) {
    const ParsedTurn turn = parse("See." + script + "{eos}");
    EXPECT_EQ(show(turn), "R:|C:See." + text_of(script)) << script;
    EXPECT_FALSE(turn.diagnostics.empty()) << script;
  }
  EXPECT_EQ(parse(twice).diagnostics.at(0),
            "malformed tool call shown as text: parameter \"a\" is given twice");
  // In thinking it is reasoning that comes back, and a good block after a bad one still works.
  EXPECT_EQ(parsed("hm{D}!{/t}a", true), "R:hm｜DSML｜!|C:a");
  EXPECT_EQ(parsed("\n\n<{D} call" + block(invoke("f", ""))), "R:|C:\n\n<｜DSML｜ call|f({})");
  // Whole calls before the bad one stay.
  EXPECT_EQ(parsed(kOpen + invoke("f", "") + "\n<{D} invoke>"), "R:|C:\n<｜DSML｜ invoke>|f({})");
}

TEST(ChatParser, WhiteSpaceBetweenTagsMayVary) {
  EXPECT_EQ(parsed("\n\n<{D} calls><{D} invoke name=\"f\"> \n " + parameter("a", "1") +
                   "</{D} invoke></{D} calls>{eos}"),
            R"(R:|C:|f({"a": "1"}))");
}

// --- round trips ------------------------------------------------------------------------------------------

const Tokenizer& mini() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::load(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json");
    FATHOM_CHECK(loaded.ok(), "{}", loaded.error().message);
    return std::move(loaded).value();
  }();
  return tokenizer;
}

class RandomTurns {
 public:
  explicit RandomTurns(unsigned seed) : random_(seed) {}

  ChatMessage turn() {
    ChatMessage message;
    message.role = ChatRole::kAssistant;
    message.reasoning = text();
    const std::string content = text();
    if (!content.empty()) message.content.push_back(ChatBlock::make_text(content));
    for (unsigned count = random_() % 4; count > 0; --count)
      message.tool_calls.push_back({"", pick({"f", "get_x", "a-b"}), pick({"", "ns"}), arguments()});
    return message;
  }
  unsigned below(unsigned bound) { return random_() % bound; }

 private:
  std::string pick(std::vector<std::string> from) { return from[random_() % from.size()]; }
  std::string text() {
    std::string result;
    for (unsigned count = random_() % 6; count > 0; --count)
      result += pick(
          {"word",    " ",        "\n",       "\n\n",       "<",  "</",        "\n\n<",
           "<think>", "</think>", "｜DSML｜", "\"",         "\\", " calls>\n", "<｜DSML｜ invoke name=\"f\">",
           "é",       "日本",     "🙂",       "{\"a\": 1}", "&",  "12345"});
    return result;
  }
  std::string arguments() {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (unsigned count = random_() % 4; count > 0; --count) {
      const std::string key = pick({"key", "x y", "é", "a.b"}) + std::to_string(count);
      switch (random_() % 5) {
        case 0: object[key] = static_cast<int>(random_() % 2000) - 1000; break;
        case 1: object[key] = {true, nullptr, 1.5, "s"}; break;
        case 2: object[key]["inner"] = text(); break;
        default: object[key] = text();
      }
    }
    return write_python_json(object);
  }

  std::mt19937 random_;
};

TEST(ChatParser, RenderedTurnsComeBack) {
  RandomTurns random(7);
  for (int round = 0; round < 300; ++round) {
    const bool thinking = round % 2 == 0;
    Conversation conversation;
    conversation.thinking = thinking;
    conversation.messages = {ChatMessage::make(ChatRole::kUser, "Go.")};
    const auto prompt = *encode_prompt(*render_conversation(conversation), mini());
    ChatMessage message = random.turn();
    if (!thinking) message.reasoning.clear();
    conversation.messages.push_back(message);
    auto whole = *encode_prompt(*render_conversation(conversation), mini());
    ASSERT_TRUE(std::equal(prompt.begin(), prompt.end(), whole.begin()));
    const std::vector<int32_t> completion(whole.begin() + static_cast<long>(prompt.size()), whole.end());

    const ParsedTurn turn = parse_completion(completion, mini(), thinking);
    EXPECT_EQ(to_message(turn), message) << mini().decode(completion);
    EXPECT_TRUE(turn.diagnostics.empty());
    EXPECT_EQ(turn.end, TurnEnd::kEos);

    ChatParser parser(mini().named(), thinking);
    Replay replay;
    for (size_t at = 0; at < completion.size();) {
      const size_t count = std::min<size_t>(1 + random.below(5), completion.size() - at);
      std::vector<ChatEvent> events;
      parser.feed(std::span(completion).subspan(at, count), mini(), events);
      replay.take(events);
      at += count;
    }
    EXPECT_TRUE(parser.ended());
    std::vector<ParsedCall> calls;
    for (const auto& [index, call] : replay.calls) calls.push_back(call);
    EXPECT_EQ(show(replay.reasoning, replay.content, calls), show(turn));
  }
}

TEST(ChatParser, RandomTokensAreCutInvariant) {
  // Fragments of the format in any order: nearly all malformed, each in its own way.
  const char* kPieces[] = {"{D}",
                           "{D}",
                           "{D}",
                           "{D}",
                           "<",
                           "</",
                           "\n\n<",
                           " calls>\n",
                           " invoke name=\"f\">\n",
                           " invoke>\n",
                           " parameter>\n",
                           " parameter name=\"a\" string=\"true\">",
                           "{/t}",
                           "{t}",
                           " parameter name=\"b\" string=\"false\">",
                           " parameter",
                           "x",
                           "\n",
                           "\xF0\x9F",
                           "3",
                           "\""};
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string script = random() % 2 ? "" : kOpen + "<{D} invoke name=\"f\">\n<";
    for (unsigned count = random() % 24; count > 0; --count) script += kPieces[random() % std::size(kPieces)];
    parse(script, random() % 2 == 0);
    if (HasFailure()) FAIL() << script;
  }
}

}  // namespace
}  // namespace fathom
