// POST /tokenize, /detokenize, /apply-template.
#include <nlohmann/json.hpp>

#include "server/submit.h"
#include "text/chat_encoding.h"
#include "text/chat_json.h"

namespace fathom {
namespace {

struct Rendered {
  RenderedPrompt prompt;
  std::vector<int32_t> ids;
  size_t stable_tokens = 0;
};

Result<Rendered> render(const ServiceContext& context, const Json& request) {
  FATHOM_ASSIGN(const Conversation conversation, parse_conversation(json_line(request)));
  Rendered result;
  FATHOM_ASSIGN(result.prompt, render_conversation(conversation));
  FATHOM_ASSIGN(result.ids, encode_prompt(result.prompt, context.tokenizer));
  FATHOM_ASSIGN(result.stable_tokens, stable_prefix_tokens(result.prompt, context.tokenizer));
  return result;
}

// The text goes by three names among servers.
Result<std::string> text_of(const Fields& request) {
  for (const char* name : {"content", "prompt", "text"}) {
    FATHOM_ASSIGN(const auto text, request.text(name));
    if (text) return *text;
  }
  return Error::invalid("content: expected a string, found nothing");
}

Json pieces_of(const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  Json pieces = Json::array();
  for (const int32_t id : ids) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    Json piece;
    if (is_valid_utf8(bytes)) {
      piece = std::string(bytes);
    } else {
      piece = Json::array();
      for (const char byte : bytes) piece.push_back(static_cast<uint8_t>(byte));
    }
    pieces.push_back({{"id", id}, {"piece", std::move(piece)}});
  }
  return pieces;
}

}  // namespace

Result<void> post_tokenize(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(const Json json, parse_request_json(http.body));
  const Fields request(json);
  std::vector<int32_t> ids;
  if (request.find("messages") != nullptr) {
    FATHOM_ASSIGN(Rendered rendered, render(context, json));
    ids = std::move(rendered.ids);
  } else {
    FATHOM_ASSIGN(const std::string text, text_of(request));
    FATHOM_ASSIGN(const auto add_special, request.boolean("add_special"));
    FATHOM_ASSIGN(const auto parse_special, request.boolean("parse_special"));
    ids = parse_special.value_or(false) ? context.tokenizer.encode_with_special(text)
                                        : context.tokenizer.encode(text);
    const int32_t bos = context.tokenizer.named().bos;
    if (add_special.value_or(false) && bos >= 0) ids.insert(ids.begin(), bos);
  }
  FATHOM_ASSIGN(const auto with_pieces, request.boolean("with_pieces"));
  Json body{{"tokens", with_pieces.value_or(false) ? pieces_of(ids, context.tokenizer) : Json(ids)},
            {"count", ids.size()},
            {"max_model_len", context.card.context_tokens}};
  exchange->respond(json_response(200, body));
  return {};
}

Result<void> post_detokenize(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(const Json json, parse_request_json(http.body));
  const auto tokens = json.find("tokens");
  if (tokens == json.end()) return Error::invalid("tokens: expected an array of token ids, found nothing");
  FATHOM_ASSIGN(const auto ids, read_ids(*tokens, "tokens", context.tokenizer.vocab_size()));
  const std::string text = replace_invalid_utf8(context.tokenizer.decode(ids));
  exchange->respond(json_response(200, {{"content", text}, {"prompt", text}}));
  return {};
}

Result<void> post_apply_template(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(const Json json, parse_request_json(http.body));
  FATHOM_ASSIGN(const Rendered rendered, render(context, json));
  exchange->respond(json_response(200, {{"prompt", prompt_text(rendered.prompt)},
                                        {"prompt_token_ids", rendered.ids},
                                        {"stable_tokens", rendered.stable_tokens},
                                        {"starts_in_thinking", rendered.prompt.starts_in_thinking}}));
  return {};
}

}  // namespace fathom
