#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "capi/handles.h"
#include "text/chat_encoding.h"
#include "text/chat_json.h"
#include "text/chat_parameter_types.h"

using namespace fathom;
using namespace fathom::capi;

struct fathom_parser {
  const Tokenizer* tokenizer;
  std::unique_ptr<ParameterTypes> types;
  ChatParser parser;
  std::vector<ChatEvent> events;   // of the last call
  std::vector<fathom_event> told;  // views of them
};

namespace {

Result<Tokenizer> open_tokenizer(const std::string& path) {
  const std::string inside = (std::filesystem::path(path) / "tokenizer.json").string();
  if (file_exists(inside)) return Tokenizer::load(inside);
  if (path.ends_with(".json") && !path.ends_with(".index.json")) return Tokenizer::load(path);
  if (path.ends_with(".gguf")) return load_tokenizer({.path = path, .is_gguf = true});
  FATHOM_ASSIGN(const Pack pack, open_pack(path));
  return load_tokenizer(pack.tokenizer());
}

std::string_view text_view(const char* text, size_t bytes) { return {text, text == nullptr ? 0 : bytes}; }

Result<fathom_prompt> render(const Tokenizer& tokenizer, const char* json) {
  FATHOM_ASSIGN(const Conversation conversation, parse_conversation(json));
  FATHOM_ASSIGN(const RenderedPrompt rendered, render_conversation(conversation));
  FATHOM_ASSIGN(const std::vector<int32_t> ids, encode_prompt(rendered, tokenizer));
  FATHOM_ASSIGN(const size_t stable, stable_prefix_tokens(rendered, tokenizer));
  fathom_prompt prompt{};
  prompt.count = ids.size();
  prompt.stable_count = stable;
  prompt.image_count = rendered.image_urls.size();
  prompt.starts_in_thinking = rendered.starts_in_thinking;
  prompt.text = copy_text(prompt_text(rendered));
  prompt.ids = copy_ids(ids);
  return prompt;
}

std::vector<ChatTool> all_tools(const Conversation& conversation) {
  std::vector<ChatTool> tools = conversation.tools;
  for (const ChatMessage& message : conversation.messages)
    tools.insert(tools.end(), message.tools.begin(), message.tools.end());
  return tools;
}

static_assert(static_cast<int>(ChatEventKind::kCallDropped) == FATHOM_EVENT_CALL_DROPPED);
static_assert(static_cast<int>(TurnEnd::kCut) == FATHOM_TURN_CUT);

void tell_events(fathom_parser& parser, const fathom_event** events, size_t* count) {
  parser.told.clear();
  for (const ChatEvent& event : parser.events) {
    parser.told.push_back({.kind = static_cast<fathom_event_kind>(event.kind),
                           .call = event.call,
                           .text = event.text.c_str(),
                           .text_bytes = event.text.size(),
                           .name = event.name.c_str(),
                           .namespace_name = event.namespace_name.c_str()});
  }
  *events = parser.told.data();
  *count = parser.told.size();
}

std::string message_json(const ParsedTurn& turn) {
  nlohmann::ordered_json message = {{"role", "assistant"}, {"content", turn.content}};
  if (!turn.reasoning.empty()) message["reasoning_content"] = turn.reasoning;
  for (const ParsedCall& call : turn.calls) {
    if (!call.complete) continue;
    nlohmann::ordered_json function = {{"name", call.name}, {"arguments", call.arguments}};
    if (!call.namespace_name.empty()) function["namespace"] = call.namespace_name;
    message["tool_calls"].push_back({{"id", fmt::format("call_{}", call.index)},
                                     {"type", "function"},
                                     {"function", std::move(function)}});
  }
  return message.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int32_t named_id(const NamedTokens& named, fathom_token token) {
  switch (token) {
    case FATHOM_TOKEN_BOS:
      return named.bos;
    case FATHOM_TOKEN_EOS:
      return named.eos;
    case FATHOM_TOKEN_PAD:
      return named.pad;
    case FATHOM_TOKEN_SYSTEM:
      return named.system;
    case FATHOM_TOKEN_USER:
      return named.user;
    case FATHOM_TOKEN_ASSISTANT:
      return named.assistant;
    case FATHOM_TOKEN_THINK_OPEN:
      return named.think_open;
    case FATHOM_TOKEN_THINK_CLOSE:
      return named.think_close;
    case FATHOM_TOKEN_DSML:
      return named.dsml;
    case FATHOM_TOKEN_IMAGE:
      return named.image;
    case FATHOM_TOKEN_END_OF_TURN:
      return named.end_of_turn;
    case FATHOM_TOKEN_FIM_BEGIN:
      return named.fim_begin;
    case FATHOM_TOKEN_FIM_HOLE:
      return named.fim_hole;
    case FATHOM_TOKEN_FIM_END:
      return named.fim_end;
  }
  return -1;
}

}  // namespace

fathom_status fathom_tokenizer_open(const char* path, fathom_tokenizer** tokenizer) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(tokenizer);
    FATHOM_ASSIGN(const std::string found, find_model(path));
    FATHOM_ASSIGN(Tokenizer opened, open_tokenizer(found));
    *tokenizer = new fathom_tokenizer{std::move(opened)};
    return {};
  });
}

void fathom_tokenizer_close(fathom_tokenizer* tokenizer) { delete tokenizer; }

fathom_status fathom_tokenize(const fathom_tokenizer* tokenizer, const char* text, size_t text_bytes,
                              bool parse_special, int32_t** ids, size_t* count) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(tokenizer);
    if (text_bytes > 0) FATHOM_REQUIRE(text);
    FATHOM_REQUIRE(ids);
    FATHOM_REQUIRE(count);
    const std::string_view view = text_view(text, text_bytes);
    const std::vector<int32_t> encoded =
        parse_special ? tokenizer->tokenizer.encode_with_special(view) : tokenizer->tokenizer.encode(view);
    *ids = copy_ids(encoded);
    *count = encoded.size();
    return {};
  });
}

fathom_status fathom_detokenize(const fathom_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                char** text, size_t* text_bytes) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(tokenizer);
    if (count > 0) FATHOM_REQUIRE(ids);
    FATHOM_REQUIRE(text);
    const std::string decoded = tokenizer->tokenizer.decode({ids, count});
    *text = copy_text(decoded);
    if (text_bytes != nullptr) *text_bytes = decoded.size();
    return {};
  });
}

const char* fathom_token_bytes(const fathom_tokenizer* tokenizer, int32_t id, size_t* bytes) {
  const std::string_view found = tokenizer == nullptr ? "" : tokenizer->tokenizer.token_bytes(id);
  if (bytes != nullptr) *bytes = found.size();
  return found.empty() ? nullptr : found.data();
}

int32_t fathom_vocab_size(const fathom_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer.vocab_size();
}

int32_t fathom_token_id(const fathom_tokenizer* tokenizer, fathom_token token) {
  return tokenizer == nullptr ? -1 : named_id(tokenizer->tokenizer.named(), token);
}

int32_t fathom_find_token(const fathom_tokenizer* tokenizer, const char* text, size_t text_bytes) {
  if (tokenizer == nullptr || text == nullptr) return -1;
  return tokenizer->tokenizer.id_of({text, text_bytes}).value_or(-1);
}

bool fathom_is_stop(const fathom_tokenizer* tokenizer, int32_t id) {
  if (tokenizer == nullptr || id < 0) return false;
  const NamedTokens& named = tokenizer->tokenizer.named();
  return id == named.eos || id == named.end_of_turn || id == named.user || id == named.assistant ||
         id == named.system || id == named.latest_reminder;
}

fathom_status fathom_chat_render(const fathom_tokenizer* tokenizer, const char* conversation_json,
                                 fathom_prompt* prompt) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(tokenizer);
    FATHOM_REQUIRE(conversation_json);
    FATHOM_REQUIRE(prompt);
    FATHOM_ASSIGN(*prompt, render(tokenizer->tokenizer, conversation_json));
    return {};
  });
}

void fathom_prompt_free(fathom_prompt* prompt) {
  if (prompt == nullptr) return;
  fathom_free(prompt->ids);
  fathom_free(prompt->text);
  *prompt = {};
}

fathom_status fathom_parser_create(const fathom_tokenizer* tokenizer, bool starts_in_thinking,
                                   const char* conversation_json, fathom_parser** parser) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(tokenizer);
    FATHOM_REQUIRE(parser);
    std::unique_ptr<ParameterTypes> types;
    if (conversation_json != nullptr) {
      FATHOM_ASSIGN(const Conversation conversation, parse_conversation(conversation_json));
      types = std::make_unique<ParameterTypes>(all_tools(conversation));
    }
    ChatParser made(tokenizer->tokenizer.named(), starts_in_thinking, types.get());
    *parser = new fathom_parser{&tokenizer->tokenizer, std::move(types), std::move(made), {}, {}};
    return {};
  });
}

void fathom_parser_free(fathom_parser* parser) { delete parser; }

fathom_status fathom_parser_feed(fathom_parser* parser, const int32_t* ids, size_t count,
                                 const fathom_event** events, size_t* event_count) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(parser);
    if (count > 0) FATHOM_REQUIRE(ids);
    FATHOM_REQUIRE(events);
    FATHOM_REQUIRE(event_count);
    parser->events.clear();
    parser->parser.feed({ids, count}, *parser->tokenizer, parser->events);
    tell_events(*parser, events, event_count);
    return {};
  });
}

fathom_status fathom_parser_finish(fathom_parser* parser, const fathom_event** events, size_t* event_count) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(parser);
    FATHOM_REQUIRE(events);
    FATHOM_REQUIRE(event_count);
    parser->events.clear();
    parser->parser.finish(parser->events);
    tell_events(*parser, events, event_count);
    return {};
  });
}

fathom_turn_end fathom_parser_end(const fathom_parser* parser) {
  return parser == nullptr ? FATHOM_TURN_OPEN : static_cast<fathom_turn_end>(parser->parser.turn().end);
}

fathom_status fathom_parser_message(const fathom_parser* parser, char** json) {
  return guarded([&]() -> Result<void> {
    FATHOM_REQUIRE(parser);
    FATHOM_REQUIRE(json);
    *json = copy_text(message_json(parser->parser.turn()));
    return {};
  });
}
