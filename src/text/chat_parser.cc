#include "text/chat_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/chat_template.h"
#include "text/chat_value.h"
#include "text/utf8.h"

namespace fathom {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kKeyBytesMax = 1024;
constexpr size_t kSpaceBytesMax = 16;  // white space tolerated between tags; the format has one newline

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// Where the next character belongs. All but kText are inside a call block.
enum class Place : uint8_t {
  kText,
  kOpener,          // after "<" DSML: " calls>", then the next tag
  kInvokeHead,      // after "<" DSML: ` invoke name="NAME">`
  kInvokeBody,      // then the next tag
  kParameterHead,   // after "<" DSML: ` parameter name="KEY" string="true|false">`
  kValue,           // up to "</" DSML
  kParameterClose,  // after "</" DSML: " parameter>", then the next tag
  kInvokeClose,     // " invoke>", then the next tag
  kCallsClose,      // " calls>"
};

enum class Match : uint8_t { kPartial, kWhole, kFail };

Match match_literal(std::string_view text, std::string_view literal) {
  if (text == literal) return Match::kWhole;
  return literal.starts_with(text) ? Match::kPartial : Match::kFail;
}

/// `literal`, white space, and the "<" or "</" of the next tag; whole once a control token may follow.
Match match_tag_end(std::string_view text, std::string_view literal) {
  if (text.size() < literal.size()) return literal.starts_with(text) ? Match::kPartial : Match::kFail;
  if (!text.starts_with(literal)) return Match::kFail;
  text.remove_prefix(literal.size());
  size_t spaces = 0;
  while (spaces < text.size() && is_space(text[spaces])) ++spaces;
  if (spaces > kSpaceBytesMax) return Match::kFail;
  text.remove_prefix(spaces);
  if (text.empty()) return Match::kPartial;
  return text == "<" || text == "</" ? Match::kWhole : Match::kFail;
}

/// ` invoke name="NAME">`; `name` is set when whole.
Match match_invoke(std::string_view text, std::string& name) {
  constexpr std::string_view kTag = " invoke";
  constexpr std::string_view kName = "name=\"";
  if (text.size() <= kTag.size()) return kTag.starts_with(text) ? Match::kPartial : Match::kFail;
  if (!text.starts_with(kTag)) return Match::kFail;
  text.remove_prefix(kTag.size());
  size_t spaces = 0;
  while (spaces < text.size() && is_space(text[spaces])) ++spaces;
  if (spaces == 0 || spaces > kSpaceBytesMax) return Match::kFail;
  text.remove_prefix(spaces);
  if (text.size() <= kName.size()) return kName.starts_with(text) ? Match::kPartial : Match::kFail;
  if (!text.starts_with(kName)) return Match::kFail;
  text.remove_prefix(kName.size());
  if (text.back() == '\n' || text.size() > kNameBytesMax) return Match::kFail;
  if (!text.ends_with("\">")) return Match::kPartial;
  name = text.substr(0, text.size() - 2);
  return Match::kWhole;
}

struct ParameterHead {
  std::string key;
  bool is_string = false;
};

/// ` parameter name="KEY" string="true|false">`; `head` is set when whole.
Match match_parameter(std::string_view text, ParameterHead& head) {
  constexpr std::string_view kTag = " parameter name=\"";
  constexpr std::string_view kFlag = "\" string=\"";
  if (text.size() <= kTag.size()) return kTag.starts_with(text) ? Match::kPartial : Match::kFail;
  if (!text.starts_with(kTag)) return Match::kFail;
  text.remove_prefix(kTag.size());
  const size_t key_bytes = text.find(kFlag);
  if (key_bytes == std::string_view::npos)
    return text.size() > kKeyBytesMax + kFlag.size() ? Match::kFail : Match::kPartial;
  const std::string_view flag = text.substr(key_bytes + kFlag.size());
  const Match is_true = match_literal(flag, "true\">");
  const Match is_false = match_literal(flag, "false\">");
  if (is_true == Match::kFail && is_false == Match::kFail) return Match::kFail;
  if (is_true != Match::kWhole && is_false != Match::kWhole) return Match::kPartial;
  head = {std::string(text.substr(0, key_bytes)), is_true == Match::kWhole};
  return Match::kWhole;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(text, out);
  return out + '"';
}

}  // namespace

struct ChatParser::State {
  NamedTokens tokens;
  const ParameterTypes* types = nullptr;
  ParsedTurn turn;
  bool in_reasoning = false;
  bool finished = false;
  Place place = Place::kText;
  Utf8Holder utf8;
  std::vector<ChatEvent>* events = nullptr;  // of the feed under way

  // kText: up to two newlines and a "<", which may open a block. kValue: "<" or "</", which may end it.
  std::string held;
  std::string gap;  // text since the last DSML token, while a tag is read
  std::string raw;  // markup since the last whole call, to be shown if it proves malformed

  bool after_block = false;
  std::string spaces_after_block;

  int call_count = 0;
  bool call_open = false;
  std::string tool;  // the open call's qualified name
  std::vector<std::string> keys;
  ParameterHead parameter;
  ParameterType parameter_type = ParameterType::kUnknown;
  bool value_streams = false;
  std::string value;  // of a parameter that does not stream

  // --- what goes out -------------------------------------------------------------------------------

  void diagnose(std::string text) {
    if (std::find(turn.diagnostics.begin(), turn.diagnostics.end(), text) == turn.diagnostics.end())
      turn.diagnostics.push_back(std::move(text));
  }

  void emit(ChatEventKind kind, int call, std::string_view text) {
    if (text.empty()) return;
    if (events->empty() || events->back().kind != kind || events->back().call != call)
      events->push_back({kind, call, {}, {}, {}});
    events->back().text += text;
  }

  void emit_text(std::string_view text) {
    if (after_block) {
      // The newlines models like to add behind a block are no answer.
      spaces_after_block += text;
      if (std::all_of(text.begin(), text.end(), is_space)) return;
      diagnose("text after the tool call block");
      after_block = false;
      return emit_text(std::exchange(spaces_after_block, {}));
    }
    (in_reasoning ? turn.reasoning : turn.content) += text;
    emit(in_reasoning ? ChatEventKind::kReasoning : ChatEventKind::kContent, -1, text);
  }

  void emit_arguments(std::string_view text) {
    turn.calls.back().arguments += text;
    emit(ChatEventKind::kCallArguments, turn.calls.back().index, text);
  }

  // --- text ----------------------------------------------------------------------------------------

  void text_char(std::string_view c) {
    if (c == "<") {
      if (held.ends_with('<')) emit_text(std::exchange(held, {}));
      held += c;
    } else if (c == "\n") {
      if (held.ends_with('<')) emit_text(std::exchange(held, {}));
      held += c;
      if (held.size() <= 2) return;
      emit_text("\n");
      held.pop_back();
    } else {
      held += c;
      emit_text(std::exchange(held, {}));
    }
  }

  void text_chars(std::string_view text) {
    while (!text.empty()) {
      const size_t bytes = decode_utf8(text, 0).length_bytes;
      text_char(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }

  void malformed(std::string_view reason) {
    if (call_open) {
      events->push_back({ChatEventKind::kCallDropped, turn.calls.back().index, {}, {}, {}});
      turn.calls.pop_back();
      call_open = false;
    }
    diagnose(fmt::format("malformed tool call shown as text: {}", reason));
    place = Place::kText;
    held.clear();
    gap.clear();
    text_chars(std::exchange(raw, {}));
  }

  // --- values --------------------------------------------------------------------------------------

  void put_value(std::string_view text) {
    if (!value_streams) {
      value += text;
      return;
    }
    std::string escaped;
    append_json_escaped(text, escaped);
    emit_arguments(escaped);
  }

  void value_char(std::string_view c) {
    if (c == "<") {
      put_value(std::exchange(held, {}));
      held = c;
    } else if (c == "/" && held == "<") {
      held += c;
    } else {
      put_value(std::exchange(held, {}));
      put_value(c);
    }
  }

  void start_value() {
    if (std::find(keys.begin(), keys.end(), parameter.key) != keys.end())
      return malformed(fmt::format("parameter {} is given twice", json_string(parameter.key)));
    emit_arguments(keys.empty() ? "{" : ", ");
    emit_arguments(json_string(parameter.key) + ": ");
    keys.push_back(parameter.key);
    parameter_type = types == nullptr ? ParameterType::kUnknown : types->type_of(tool, parameter.key);
    // What must become JSON is judged whole; only a string can be passed on as it comes.
    value_streams = parameter.is_string && parameter_type != ParameterType::kNotString;
    value.clear();
    if (value_streams) emit_arguments("\"");
    place = Place::kValue;
  }

  void end_value() {
    if (value_streams) return emit_arguments("\"");
    const auto parsed = parse_json_value(value, "value");
    const bool is_string = parsed.ok() && parsed->is_string();
    if (parameter_type == ParameterType::kString)
      return emit_arguments(is_string ? value : json_string(value));
    if (parsed.ok() && !(is_string && parameter.is_string)) return emit_arguments(value);
    if (!parameter.is_string || parameter_type == ParameterType::kNotString)
      diagnose(fmt::format("parameter {}: expected a JSON value", json_string(parameter.key)));
    // Spelled the Python way often enough to be worth understanding.
    if (value == "True") return emit_arguments("true");
    if (value == "False") return emit_arguments("false");
    if (value == "None") return emit_arguments("null");
    emit_arguments(json_string(value));
  }

  // --- tags ----------------------------------------------------------------------------------------

  void start_call(const std::string& name) {
    const size_t separator = name.find("::");
    const bool is_qualified = separator != std::string::npos;
    ParsedCall call;
    call.namespace_name = is_qualified ? name.substr(0, separator) : "";
    call.name = is_qualified ? name.substr(separator + 2) : name;
    if (call.name.empty() || (is_qualified && call.namespace_name.empty()) ||
        call.name.find("::") != std::string::npos)
      return malformed(fmt::format("{} is no tool name", json_string(name)));
    call.index = call_count++;
    events->push_back({ChatEventKind::kCallStart, call.index, {}, call.name, call.namespace_name});
    turn.calls.push_back(std::move(call));
    call_open = true;
    tool = name;
    keys.clear();
    gap.clear();
    place = Place::kInvokeBody;
  }

  void end_call() {
    emit_arguments(keys.empty() ? "{}" : "}");
    turn.calls.back().complete = true;
    events->push_back({ChatEventKind::kCallEnd, turn.calls.back().index, {}, {}, {}});
    call_open = false;
    raw.clear();
  }

  void end_block() {
    place = Place::kText;
    raw.clear();
    gap.clear();
    spaces_after_block.clear();
    after_block = true;
  }

  /// After "</" DSML in a value: only " parameter" ends the value, anything else belongs to it.
  bool is_still_value() const {
    constexpr std::string_view kTag = " parameter";
    return place == Place::kParameterClose && !gap.starts_with(kTag);
  }

  void back_to_value() {
    place = Place::kValue;
    put_value("</");
    put_value(kDsml);
    for (char c : std::exchange(gap, {})) value_char({&c, 1});  // a part of " parameter", so ASCII
  }

  Match match_gap(std::string& name) {
    switch (place) {
      case Place::kOpener: return match_tag_end(gap, " calls>");
      case Place::kInvokeHead: return match_invoke(gap, name);
      case Place::kInvokeBody: return match_tag_end(gap, "");
      case Place::kParameterHead: return match_parameter(gap, parameter);
      case Place::kParameterClose: return match_tag_end(gap, " parameter>");
      case Place::kInvokeClose: return match_tag_end(gap, " invoke>");
      case Place::kCallsClose: return match_literal(gap, " calls>");
      case Place::kText:
      case Place::kValue: break;
    }
    return Match::kFail;
  }

  void tag_char(std::string_view c) {
    const bool was_value = is_still_value();
    gap += c;
    std::string name;
    const Match match = match_gap(name);
    if (match == Match::kFail) {
      gap.resize(gap.size() - c.size());
      if (was_value) {
        back_to_value();
        return value_char(c);
      }
      raw.resize(raw.size() - c.size());
      malformed("a tag is misspelled");
      return text_char(c);
    }
    if (was_value && !is_still_value()) end_value();
    if (place == Place::kInvokeClose && gap == " invoke>") end_call();
    if (match != Match::kWhole) return;
    if (place == Place::kInvokeHead)
      start_call(name);
    else if (place == Place::kParameterHead)
      start_value();
    else if (place == Place::kCallsClose)
      end_block();
  }

  void on_char(std::string_view c) {
    if (place == Place::kText) return text_char(c);
    raw += c;
    if (place == Place::kValue) return value_char(c);
    tag_char(c);
  }

  // --- control tokens ------------------------------------------------------------------------------

  void dsml_in_text() {
    if (!held.ends_with('<')) {
      diagnose("a tool call marker outside a block shown as text");
      return text_chars(kDsml);
    }
    raw = std::exchange(held, {}) + std::string(kDsml);
    gap.clear();
    place = Place::kOpener;
  }

  void dsml_in_value() {
    raw += kDsml;
    if (held == "</") {
      held.clear();
      gap.clear();
      place = Place::kParameterClose;
      return;
    }
    put_value(std::exchange(held, {}));
    put_value(kDsml);
  }

  void on_dsml() {
    if (place == Place::kText) return dsml_in_text();
    if (is_still_value()) back_to_value();
    if (place == Place::kValue) return dsml_in_value();
    std::string name;
    const bool is_tag = gap.ends_with('<') || gap.ends_with("</");
    if (!is_tag || match_gap(name) != Match::kWhole || place == Place::kInvokeHead) {
      malformed("a tag is unfinished");
      return dsml_in_text();
    }
    const bool is_closing = gap.ends_with('/');
    const bool in_call = place == Place::kInvokeBody || place == Place::kParameterClose;
    if (in_call)
      place = is_closing ? Place::kInvokeClose : Place::kParameterHead;
    else
      place = is_closing ? Place::kCallsClose : Place::kInvokeHead;
    raw += kDsml;
    gap.clear();
  }

  /// A think token within a value is a word of that value; in a tag it breaks the tag. True if in text.
  bool leaves_text(std::string_view spelling) {
    if (is_still_value()) back_to_value();
    if (place == Place::kValue) {
      for (char c : spelling) on_char({&c, 1});
      return false;
    }
    if (place != Place::kText) malformed("a tag is unfinished");
    return true;
  }

  void on_think_close() {
    if (!leaves_text(kThinkClose)) return;
    emit_text(std::exchange(held, {}));
    if (!in_reasoning) diagnose("a stray </think> was left out");
    in_reasoning = false;
  }

  void on_think_open() {
    if (!leaves_text(kThinkOpen)) return;
    const bool is_start = held.empty() && turn.content.empty() && turn.reasoning.empty() && call_count == 0;
    if (is_start && !in_reasoning) {
      in_reasoning = true;
      return;
    }
    emit_text(std::exchange(held, {}));
    diagnose("a stray <think> was left out");
  }

  void end(TurnEnd reason) {
    flush_characters();
    if (place == Place::kText) {
      emit_text(std::exchange(held, {}));
    } else if (call_open) {
      diagnose(fmt::format("the output ends inside the call of {}", json_string(tool)));
    } else {
      diagnose("the output ends inside a tool call block");
    }
    turn.reasoning_unclosed = in_reasoning && turn.calls.empty();
    turn.end = reason;
    finished = true;
  }

  void take_characters(std::string_view text) {
    while (!text.empty()) {
      const size_t bytes = decode_utf8(text, 0).length_bytes;
      on_char(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }

  void flush_characters() { take_characters(utf8.flush()); }

  void take(int32_t token, std::string_view bytes) {
    const auto is = [token](int32_t named) { return token == named && named >= 0; };
    if (is(tokens.eos)) return end(TurnEnd::kEos);
    if (is(tokens.end_of_turn)) return end(TurnEnd::kEndOfTurn);
    if (is(tokens.user) || is(tokens.assistant) || is(tokens.system) || is(tokens.latest_reminder))
      return end(TurnEnd::kRoleToken);
    const bool is_silent = is(tokens.bos) || is(tokens.pad) || is(tokens.image);
    const bool is_structure = is(tokens.dsml) || is(tokens.think_close) || is(tokens.think_open);
    if (!is_silent && !is_structure) return take_characters(utf8.push(bytes));
    flush_characters();
    if (is_silent) return diagnose("a control token that means nothing here was left out");
    if (is(tokens.dsml)) return on_dsml();
    if (is(tokens.think_close)) return on_think_close();
    on_think_open();
  }
};

ChatParser::ChatParser(const NamedTokens& tokens, bool starts_in_thinking, const ParameterTypes* types)
    : state_(std::make_unique<State>()) {
  state_->tokens = tokens;
  state_->types = types;
  state_->in_reasoning = starts_in_thinking;
}

ChatParser::~ChatParser() = default;
ChatParser::ChatParser(ChatParser&&) noexcept = default;
ChatParser& ChatParser::operator=(ChatParser&&) noexcept = default;

void ChatParser::feed(int32_t token, std::string_view bytes, std::vector<ChatEvent>& events) {
  if (state_->finished) return;
  state_->events = &events;
  state_->take(token, bytes);
}

void ChatParser::feed(std::span<const int32_t> tokens, const Tokenizer& tokenizer,
                      std::vector<ChatEvent>& events) {
  for (int32_t token : tokens) feed(token, tokenizer.token_bytes(token), events);
}

void ChatParser::finish(std::vector<ChatEvent>& events) {
  if (state_->finished) return;
  state_->events = &events;
  state_->end(TurnEnd::kCut);
}

bool ChatParser::ended() const { return state_->finished; }
bool ChatParser::in_reasoning() const { return state_->in_reasoning; }
const ParsedTurn& ChatParser::turn() const { return state_->turn; }

ParsedTurn parse_completion(std::span<const int32_t> tokens, const Tokenizer& tokenizer,
                            bool starts_in_thinking, const ParameterTypes* types) {
  ChatParser parser(tokenizer.named(), starts_in_thinking, types);
  std::vector<ChatEvent> events;
  parser.feed(tokens, tokenizer, events);
  parser.finish(events);
  return parser.turn();
}

ChatMessage to_message(const ParsedTurn& turn) {
  ChatMessage message;
  message.role = ChatRole::kAssistant;
  if (!turn.content.empty()) message.content.push_back(ChatBlock::make_text(turn.content));
  message.reasoning = turn.reasoning;
  for (const ParsedCall& call : turn.calls)
    if (call.complete) message.tool_calls.push_back({"", call.name, call.namespace_name, call.arguments});
  return message;
}

}  // namespace fathom
