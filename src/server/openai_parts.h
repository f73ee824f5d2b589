// Pieces of OpenAI-style responses that chat and completions share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/event_stream.h"
#include "server/json_fields.h"

namespace fathom {

/// {"token", "logprob", "bytes", "top_logprobs": [...]} of a chat answer; `top` gives the best first.
Json chat_logprob(const AnswerToken& token, const Tokenizer& tokenizer);
/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of completions; `first_offset`: of the first token.
Json completion_logprobs(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer, bool with_top,
                         int64_t first_offset);
/// The answer as an assistant message: content, reasoning_content, tool_calls (whole ones). `call_ids` gives each
/// call's id by its ParsedCall::index.
Json assistant_message(const Answer& answer, const std::vector<std::string>& call_ids);

/// The choices of a response that is sent as a whole.
class WholeChoices {
 public:
  /// An error of one answer is the response of all.
  void put(const Answer& answer, const AnswerEnd& end, Json choice);
  /// `body`: all but choices, usage and timings.
  void respond(HttpExchange& exchange, Json body, const GenerationUsage& usage, HttpHeaders headers);

 private:
  std::map<int, Json> choices_;
  std::string type_;  // how the first choice ended
  std::optional<Error> error_;
};

/// What streams of chunks have in common.
class ChunkStream {
 public:
  ChunkStream(std::shared_ptr<EventStream> stream, bool include_usage)
      : stream_(std::move(stream)), include_usage_(include_usage) {}
  /// A comment, now and then.
  void tell_prefill(const PrefillProgress& progress);
  void send(Json chunk);
  /// Chunks that are made as the client takes them, until there is none.
  void send_from(std::function<std::optional<Json>()> next);
  /// The event that says so is the last one.
  void fail(const Error& error);
  /// The usage, in `chunk`, if it was asked for, and the mark of the end.
  void end(Json chunk, const GenerationUsage& usage);

 private:
  std::shared_ptr<EventStream> stream_;
  const bool include_usage_;
  std::chrono::steady_clock::time_point last_progress_{};
};

}  // namespace fathom
