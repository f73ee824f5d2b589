#include "server/openai_parts.h"

#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace fathom {
namespace {

// Half a character cannot be text; its bytes are told beside it.
Json token_text(int32_t id, const Tokenizer& tokenizer) { return replace_invalid_utf8(tokenizer.token_bytes(id)); }

Json token_bytes(int32_t id, const Tokenizer& tokenizer) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_bytes(id)) bytes.push_back(static_cast<uint8_t>(byte));
  return bytes;
}

}  // namespace

Json chat_logprob(const AnswerToken& token, const Tokenizer& tokenizer) {
  Json top = Json::array();
  for (const TokenLogprob& other : token.top)
    top.push_back({{"token", token_text(other.id, tokenizer)},
                   {"logprob", other.logprob},
                   {"bytes", token_bytes(other.id, tokenizer)}});
  return {{"token", token_text(token.id, tokenizer)},
          {"logprob", token.logprob},
          {"bytes", token_bytes(token.id, tokenizer)},
          {"top_logprobs", std::move(top)}};
}

Json completion_logprobs(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer, bool with_top,
                         int64_t first_offset) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  int64_t offset = first_offset;
  for (const AnswerToken& token : tokens) {
    texts.push_back(token_text(token.id, tokenizer));
    logprobs.push_back(token.logprob);
    offsets.push_back(offset);
    offset += static_cast<int64_t>(tokenizer.token_bytes(token.id).size());
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      // Two tokens may be the same replacement character; the likelier one keeps the name.
      const std::string name = token_text(other.id, tokenizer).get<std::string>();
      if (!top.contains(name)) top[name] = other.logprob;
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", with_top ? std::move(tops) : Json()},
          {"text_offset", std::move(offsets)}};
}

Json assistant_message(const Answer& answer, const std::vector<std::string>& call_ids) {
  Json calls = Json::array();
  for (const ParsedCall& call : answer.turn().calls) {
    if (!call.complete) continue;
    Json item{{"id", call_ids[static_cast<size_t>(call.index)]},
              {"type", "function"},
              {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
    if (!call.namespace_name.empty()) item["namespace"] = call.namespace_name;
    calls.push_back(std::move(item));
  }
  Json message{{"role", "assistant"}};
  message["content"] = answer.content().empty() && !calls.empty() ? Json() : Json(answer.content());
  message["refusal"] = nullptr;
  if (!answer.reasoning().empty()) message["reasoning_content"] = answer.reasoning();
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace fathom
