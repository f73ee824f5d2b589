// Bytes become a token stream over a toy table; the chat parser must survive it, and neither its result nor
// its events may depend on how text is cut into tokens and tokens into feeds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_parser.h"

namespace {

using namespace fathom;

constexpr std::string_view kPieces[] = {"<",
                                        "</",
                                        "\n",
                                        "\n\n<",
                                        " calls>",
                                        " calls>\n",
                                        " invoke",
                                        " invoke>\n",
                                        " invoke name=\"f\">\n",
                                        " invoke name=\"ns::g\">\n",
                                        " parameter",
                                        " parameter>\n",
                                        " parameter name=\"a\" string=\"true\">",
                                        " parameter name=\"b\" string=\"false\">",
                                        "\">",
                                        "{\"x\": 1}",
                                        "True",
                                        "\xF0\x9F",
                                        "\x99\x82",
                                        "text "};
constexpr int32_t kControls = 10;  // ids 0..9, see tokens(); text has ids above

NamedTokens tokens() {
  NamedTokens named;
  named.dsml = 0;
  named.think_open = 1;
  named.think_close = 2;
  named.bos = 3;
  named.image = 4;
  named.eos = 5;
  named.user = 6;
  named.end_of_turn = 7;
  return named;  // 8 and 9 are the marker again: blocks need many
}

struct Token {
  int32_t id;
  std::string bytes;
};

std::vector<Token> stream_of(const uint8_t* data, size_t size) {
  std::vector<Token> stream;
  for (size_t at = 0; at < size; ++at) {
    const int32_t choice = data[at] % 64;
    if (choice < kControls)
      stream.push_back({choice >= 8 ? 0 : choice, ""});
    else if (static_cast<size_t>(choice - kControls) < std::size(kPieces))
      stream.push_back({100, std::string(kPieces[choice - kControls])});
    else if (at + 1 < size)
      stream.push_back({100, std::string(1, static_cast<char>(data[++at]))});
  }
  return stream;
}

void require(bool holds) {
  if (!holds) std::abort();
}

struct Replay {
  std::string texts[2];  // reasoning, content
  std::map<int, ParsedCall> calls;

  void take(std::vector<ChatEvent>& events) {
    for (const ChatEvent& event : events) {
      if (event.kind == ChatEventKind::kReasoning) texts[0] += event.text;
      if (event.kind == ChatEventKind::kContent) texts[1] += event.text;
      if (event.kind == ChatEventKind::kCallStart)
        calls[event.call] = {event.call, event.name, event.namespace_name, "", false};
      if (event.kind == ChatEventKind::kCallArguments) calls.at(event.call).arguments += event.text;
      if (event.kind == ChatEventKind::kCallEnd) calls.at(event.call).complete = true;
      if (event.kind == ChatEventKind::kCallDropped) calls.erase(event.call);
    }
    events.clear();
  }
};

std::string describe(const std::string& reasoning, const std::string& content, const ParsedCall* calls,
                     size_t count) {
  std::string text = reasoning + "\x01" + content;
  for (size_t index = 0; index < count; ++index)
    text += "\x02" + calls[index].namespace_name + "\x03" + calls[index].name + "\x03" +
            calls[index].arguments + (calls[index].complete ? "\x04" : "\x05");
  return text;
}

/// Feeds the stream whole tokens at once, or byte by byte with events taken each time.
std::string run(const std::vector<Token>& stream, bool thinking, bool cut) {
  ChatParser parser(tokens(), thinking);
  Replay replay;
  std::vector<ChatEvent> events;
  for (const Token& token : stream) {
    if (!cut || token.id < kControls) {
      parser.feed(token.id, token.bytes, events);
      continue;
    }
    for (char byte : token.bytes) {
      parser.feed(token.id, std::string_view(&byte, 1), events);
      replay.take(events);
    }
  }
  parser.finish(events);
  replay.take(events);
  const ParsedTurn& turn = parser.turn();
  std::vector<ParsedCall> calls;
  for (const auto& [index, call] : replay.calls) calls.push_back(call);
  const std::string result = describe(turn.reasoning, turn.content, turn.calls.data(), turn.calls.size());
  require(result == describe(replay.texts[0], replay.texts[1], calls.data(), calls.size()));
  for (size_t index = 0; index + 1 < turn.calls.size(); ++index) require(turn.calls[index].complete);
  require(turn.end != TurnEnd::kOpen);
  std::string diagnostics;
  for (const std::string& line : turn.diagnostics) diagnostics += line + "\n";
  return result + diagnostics;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  const bool thinking = data[0] & 1;
  const std::vector<Token> stream = stream_of(data + 1, size - 1);
  require(run(stream, thinking, false) == run(stream, thinking, true));
  return 0;
}
