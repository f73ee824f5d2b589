// From a parsed request to answers under way: the part that all generating endpoints share.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/service.h"
#include "text/chat_message.h"

namespace fathom {

/// A request, ready for the generator.
struct PreparedRequest {
  std::string name;                  // "chatcmpl-..."
  GenerationFields fields;
  std::vector<int32_t> prompt;
  std::string prompt_member;         // where the client put it, for errors
  std::vector<int64_t> branch_points;
  std::vector<int32_t> stop_ids;     // the model's own and the request's
  MaskFactory mask;                  // null: anything goes
  AnswerSettings answer;             // of each; `index` is set when it is submitted
  std::vector<std::string> ignored;  // what was understood and left out
};

/// Parses the body of a chat, in whichever API's shape. "prompt_token_ids" of more tokens than the context holds
/// are refused by their number, before they are copied or looked at.
Result<Json> parse_chat_request(const ServiceContext& context, std::string_view body);
/// Renders a conversation in the OpenAI chat shape ({"messages", "tools", "thinking", ...}; docs/formats/chat.md).
/// With "prompt_token_ids" these are the prompt and the messages are not needed. Answers that are remembered take
/// the place of their text.
Result<PreparedRequest> prepare_chat(ServiceContext& context, const Json& conversation, GenerationFields fields,
                                     std::string_view name_prefix);
/// A prompt as it is, from the request's member `prompt_member`.
Result<PreparedRequest> prepare_text(ServiceContext& context, std::vector<int32_t> prompt,
                                     std::string prompt_member, GenerationFields fields, std::string name);

/// kContextFull if the context holds fewer.
Result<void> check_token_count(const ServiceContext& context, std::string_view member, size_t tokens);
/// kContextFull if a text of so many bytes cannot fit however it is cut into tokens: encoding it would be for nothing.
Result<void> check_text_bytes(const ServiceContext& context, std::string_view member, size_t bytes);

/// Registers a request under its name; when the client of `exchange` leaves, its answers end.
std::shared_ptr<LiveRequest> start_live(ServiceContext& context, std::string name, const Exchange& exchange);
/// X-Request-Id, and X-Fathom-Ignored if parts of the request were left out.
HttpHeaders response_headers(const PreparedRequest& request);
/// Unix time.
int64_t now_s();

/// Who wants the answers of one request. The listener keeps `live`.
struct Submission {
  std::shared_ptr<LiveRequest> live;
  std::shared_ptr<AnswerListener> listener;
  int first_index = 0;       // of the first answer
  bool prompt_logprobs = false;
};
/// Asks for fields.n answers. On error none runs and the listener hears nothing of consequence.
Result<void> submit_answers(ServiceContext& context, const PreparedRequest& request, const Submission& submission);

/// Logs what must not go unnoticed: loops, errors.
void log_end(const std::string& name, const Answer& answer, const AnswerEnd& end);
/// For every chat answer: log_end(), and it is remembered for conversations that come back as text.
void note_chat_end(ServiceContext& context, const PreparedRequest& request, const Answer& answer,
                   const AnswerEnd& end);

}  // namespace fathom
