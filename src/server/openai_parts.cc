#include "server/openai_parts.h"

#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/finish.h"
#include "text/utf8.h"

namespace fathom {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{500};

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

// ---- A whole response ----

void WholeChoices::put(const Answer& answer, const AnswerEnd& end, Json choice) {
  if (end.cause == FinishCause::kError) error_ = end.error;
  if (answer.index() == 0) type_ = finish_type(answer, end);
  choices_[answer.index()] = std::move(choice);
}

void WholeChoices::respond(HttpExchange& exchange, Json body, const GenerationUsage& usage, HttpHeaders headers) {
  if (error_)
    return exchange.respond(ApiError::from(*error_).response(ApiFamily::kOpenAi, std::move(headers)));
  body["choices"] = Json::array();
  for (auto& [index, choice] : choices_) body["choices"].push_back(std::move(choice));
  body["usage"] = openai_usage(usage);
  body["timings"] = timings(usage);
  headers.emplace_back("X-Fathom-Finish", type_);
  exchange.respond(json_response(200, body, std::move(headers)));
}

// ---- A stream of chunks ----

void ChunkStream::tell_prefill(const PrefillProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_progress_ < kProgressInterval) return;
  last_progress_ = now;
  stream_->comment(fmt::format("prefill {}/{}", progress.done_tokens, progress.total_tokens));
}

void ChunkStream::send(Json chunk) {
  // Clients that asked for usage expect the member in every chunk.
  if (include_usage_) chunk["usage"] = nullptr;
  stream_->send(chunk);
}

void ChunkStream::send_from(std::function<std::optional<Json>()> next) {
  stream_->send_from([next = std::move(next), include_usage = include_usage_] {
    std::optional<Json> chunk = next();
    if (chunk && include_usage) (*chunk)["usage"] = nullptr;
    return chunk;
  });
}

void ChunkStream::fail(const Error& error) {
  stream_->send(ApiError::from(error).body(ApiFamily::kOpenAi));
  stream_->close();
}

void ChunkStream::end(Json chunk, const GenerationUsage& usage) {
  if (include_usage_) {
    chunk["choices"] = Json::array();
    chunk["usage"] = openai_usage(usage);
    chunk["timings"] = timings(usage);
    stream_->send(chunk);
  }
  stream_->send_text("[DONE]");
  stream_->close();
}

}  // namespace fathom
