// POST /v1/responses, and GET and DELETE of stored ones.
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "server/chat_conversion.h"
#include "server/responses_request.h"
#include "server/responses_store.h"
#include "server/responses_stream.h"
#include "server/submit.h"

namespace fathom {
namespace {

constexpr std::string_view kPath = "/v1/responses/";
constexpr std::string_view kPrefix = "resp_";

/// One request on its way.
struct ResponseWork {
  ServiceContext& context;
  std::shared_ptr<const PreparedRequest> prepared;
  std::shared_ptr<LiveRequest> live;  // alive as long as the answer is
  Exchange exchange;
  Json echo;                          // of the request
  std::string messages;               // to be stored: a JSON array without its last bracket; empty: do not store
  ResponseOutputOptions output;
  int64_t created_s = now_s();

  Json response(std::string_view status, Json output_items) const {
    Json response{{"id", prepared->name},
                  {"object", "response"},
                  {"created_at", created_s},
                  {"completed_at", nullptr},
                  {"status", status},
                  {"error", nullptr},
                  {"incomplete_details", nullptr},
                  {"model", context.card.name},
                  {"output", std::move(output_items)},
                  {"usage", nullptr}};
    response.update(echo);
    if (prepared->fields.return_token_ids) response["prompt_token_ids"] = prepared->prompt;
    return response;
  }

  Json ended_response(const Answer& answer, const AnswerEnd& end, Json output_items) const {
    Json response = this->response(response_status(end), std::move(output_items));
    if (response["status"] == "completed") response["completed_at"] = now_s();
    if (end.cause == FinishCause::kError)
      response["error"] = {{"code", "server_error"}, {"message", end.error.message}};
    response["incomplete_details"] = incomplete_details(end, context.options.loop_finish_reason);
    response["usage"] = response_usage(end.usage);
    response["finish_details"] = finish_details(answer, end);
    response["timings"] = timings(end.usage);
    if (prepared->fields.return_token_ids) response["token_ids"] = answer.ids();
    return response;
  }

  /// Whoever continues the response goes on behind its answer.
  void store(const Answer& answer, const AnswerEnd& end, const Json& response) const {
    if (messages.empty()) return;
    std::string conversation = messages;
    if (end.cause != FinishCause::kError) {
      Json message{{"role", "assistant"}, {"content", answer.content()}};
      if (!answer.reasoning().empty()) message["reasoning_content"] = answer.reasoning();
      for (const ParsedCall& call : answer.turn().calls) {
        if (!call.complete) continue;
        message["tool_calls"].push_back(chat_call(fmt::format("call_{}_{}", output.key, call.index), call.name,
                                                  call.namespace_name, call.arguments));
      }
      conversation.append(",").append(json_line(message));
    }
    context.responses->put(prepared->name, {json_line(response), conversation + "]"});
  }
};

class ResponseListener : public AnswerListener {
 public:
  explicit ResponseListener(ResponseWork work) : work_(std::move(work)) {}

  void on_end(const Answer& answer, const AnswerEnd& end) override {
    note_chat_end(work_.context, *work_.prepared, answer, end);
    ended(answer, end);
  }

 protected:
  virtual void ended(const Answer& answer, const AnswerEnd& end) = 0;
  ResponseWork work_;
};

/// The whole response at once.
class WholeResponse : public ResponseListener {
 public:
  explicit WholeResponse(ResponseWork work)
      : ResponseListener(std::move(work)),
        notes_(work_.prepared->fields, work_.context.tokenizer),
        output_(work_.output, [](const Json&) {}) {}

  void on_delta(const Answer&, std::span<const ChatEvent> events, const AnswerToken* token) override {
    if (token != nullptr) notes_.add(*token);
    for (const ChatEvent& event : events) {
      output_.take(event, notes_.logprobs());
      notes_.clear();
    }
  }

 protected:
  void ended(const Answer& answer, const AnswerEnd& end) override {
    output_.close(ended_whole(end));
    if (end.cause == FinishCause::kError)
      return work_.exchange->respond(
          ApiError::from(end.error).response(ApiFamily::kOpenAi, response_headers(*work_.prepared)));
    const Json body = work_.ended_response(answer, end, output_.items());
    work_.store(answer, end, body);
    HttpHeaders headers = response_headers(*work_.prepared);
    headers.emplace_back("X-Fathom-Finish", finish_type(answer, end));
    work_.exchange->respond(json_response(200, body, std::move(headers)));
  }

 private:
  TokenNotes notes_;
  ResponseOutput output_;
};

/// Server-sent events as the response grows. The engine's thread and the one that keeps it alive both send.
class StreamedResponse : public ResponseListener {
 public:
  StreamedResponse(ResponseWork work, std::shared_ptr<EventStream> stream)
      : ResponseListener(std::move(work)),
        stream_(std::move(stream)),
        notes_(work_.prepared->fields, work_.context.tokenizer),
        output_(work_.output, [this](Json event) { send(std::move(event)); }) {}

  void begin() {
    const std::lock_guard lock(mutex_);
    send({{"type", "response.created"}, {"response", work_.response("in_progress", Json::array())}});
    send_progress();
  }

  /// A sign of life. Clients take the response in it for the state of all, so it has what there is so far.
  void keep_alive() {
    const std::lock_guard lock(mutex_);
    if (!has_ended_) send_progress();
  }

  void on_delta(const Answer&, std::span<const ChatEvent> events, const AnswerToken* token) override {
    const std::lock_guard lock(mutex_);
    if (token != nullptr) notes_.add(*token);
    for (const ChatEvent& event : events) output_.take(event, notes_.logprobs());
  }

 protected:
  void ended(const Answer& answer, const AnswerEnd& end) override {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    output_.close(ended_whole(end));
    const Json body = work_.ended_response(answer, end, output_.items());
    work_.store(answer, end, body);
    send({{"type", fmt::format("response.{}", response_status(end))}, {"response", body}});
    stream_->close();
  }

 private:
  void send_progress() {
    send({{"type", "response.in_progress"}, {"response", work_.response("in_progress", output_.items())}});
  }

  void send(Json event) {
    const std::string type = event["type"];
    if (type.ends_with(".delta") && !notes_.empty()) {
      if (work_.prepared->fields.return_token_ids) event["token_ids"] = notes_.ids();
      notes_.clear();
    }
    event["sequence_number"] = sequence_++;
    stream_->send(event, type);
  }

  std::shared_ptr<EventStream> stream_;
  std::mutex mutex_;
  int64_t sequence_ = 0;
  bool has_ended_ = false;
  TokenNotes notes_;
  ResponseOutput output_;
};

// ---- Requests ----

void respond_unknown(std::string_view id, const char* code, const char* param, const Exchange& exchange) {
  ApiError error = ApiError::make(404, fmt::format("there is no stored response {}", describe_json(Json(id))));
  error.type = "invalid_request_error";
  error.code = code;
  error.param = param;
  exchange->respond(error.response(ApiFamily::kOpenAi));
}

/// Item ids are made of their response's: "msg_KEY_0" of "resp_KEY".
Json find_item(ServiceContext& context, std::string_view id) {
  const size_t begin = id.find('_'), end = id.rfind('_');
  if (begin == std::string_view::npos || end <= begin) return nullptr;
  const auto stored = context.responses->get(std::string(kPrefix).append(id.substr(begin + 1, end - begin - 1)));
  if (stored == nullptr) return nullptr;
  const Json response = Json::parse(stored->response, nullptr, false);
  for (const Json& item : response["output"])
    if (item["id"] == id) return item;
  return nullptr;
}

std::string unclosed_array(const Json& messages) {
  std::string text = json_line(messages);
  text.pop_back();
  return text;
}

Result<ResponseWork> prepare(ServiceContext& context, ResponsesRequest request, const Exchange& exchange) {
  Result<PreparedRequest> made = prepare_chat(context, request.chat, std::move(request.fields), kPrefix);
  if (!made.ok()) return in_responses_words(std::move(made).error());
  made->ignored.insert(made->ignored.end(), request.ignored.begin(), request.ignored.end());
  if (!made->ignored.empty()) log_info("{}: left out: {}", made->name, fmt::join(made->ignored, "; "));
  const auto prepared = std::make_shared<const PreparedRequest>(std::move(*made));
  ResponseOutputOptions output{.key = prepared->name.substr(kPrefix.size()),
                               .custom_tools = std::move(request.custom_tools),
                               .encrypted_reasoning = request.wants_encrypted_reasoning};
  return ResponseWork{.context = context,
                      .prepared = prepared,
                      .live = start_live(context, prepared->name, exchange),
                      .exchange = exchange,
                      .echo = std::move(request.echo),
                      .messages = request.store ? unclosed_array(request.messages) : "",
                      .output = std::move(output)};
}

Result<void> submit(ServiceContext& context, ResponseWork work) {
  const auto prepared = work.prepared;
  Submission submission{.live = work.live, .listener = {}};
  if (!prepared->fields.stream) {
    submission.listener = std::make_shared<WholeResponse>(std::move(work));
    return submit_answers(context, *prepared, submission);
  }
  auto stream = std::make_shared<EventStream>(work.exchange, response_headers(*prepared));
  auto listener = std::make_shared<StreamedResponse>(std::move(work), stream);
  stream->set_keep_alive([weak = std::weak_ptr(listener)](EventStream&) {
    if (const auto alive = weak.lock()) alive->keep_alive();
  });
  listener->begin();
  submission.listener = listener;
  FATHOM_TRY(submit_answers(context, *prepared, submission));
  stream->open();
  context.keep_alive(stream);
  return {};
}

}  // namespace

Result<void> post_responses(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(const Json json, parse_chat_request(context, http.body));
  ResponsesHistory history;
  history.find_item = [&context](std::string_view id) { return find_item(context, id); };
  FATHOM_ASSIGN(const auto previous, Fields(json).text("previous_response_id"));
  if (previous) {
    const auto stored = context.responses->get(*previous);
    if (stored == nullptr) {
      respond_unknown(*previous, "previous_response_not_found", "previous_response_id", exchange);
      return {};
    }
    history.messages = Json::parse(stored->messages);
  }
  FATHOM_ASSIGN(ResponsesRequest request,
                read_responses_request(json, std::move(history), context.options.defaults,
                                       context.generator.status().vocab_size));
  FATHOM_ASSIGN(ResponseWork work, prepare(context, std::move(request), exchange));
  return submit(context, std::move(work));
}

Result<void> get_response(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  if (http.query.find("stream=true") != std::string::npos)
    return Error::unsupported("stream: a stored response is given as a whole only");
  const std::string_view id = std::string_view(http.path).substr(kPath.size());
  const auto stored = context.responses->get(id);
  if (stored == nullptr) {
    respond_unknown(id, "response_not_found", "", exchange);
    return {};
  }
  exchange->respond({.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = stored->response});
  return {};
}

Result<void> delete_response(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  const std::string id = http.path.substr(kPath.size());
  if (!context.responses->erase(id)) {
    respond_unknown(id, "response_not_found", "", exchange);
    return {};
  }
  exchange->respond(json_response(200, {{"id", id}, {"object", "response"}, {"deleted", true}}));
  return {};
}

}  // namespace fathom
