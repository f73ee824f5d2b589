// POST /v1/messages and /v1/messages/count_tokens.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "server/chat_conversion.h"
#include "server/messages_request.h"
#include "server/messages_stream.h"
#include "server/submit.h"

namespace fathom {
namespace {

HttpHeaders message_headers(const PreparedRequest& prepared) {
  HttpHeaders headers = response_headers(prepared);
  headers.emplace_back("request-id", prepared.name);
  return headers;
}

/// One request on its way.
struct MessageWork {
  ServiceContext& context;
  std::shared_ptr<const PreparedRequest> prepared;
  std::shared_ptr<LiveRequest> live;  // alive as long as the answer is
  Exchange exchange;
  bool shows_thinking = true;

  std::string call_prefix() const { return "toolu_" + prepared->name.substr(prepared->name.find('_') + 1); }
  /// A message without an end.
  Json message(Json content, const GenerationUsage& usage) const {
    Json message{{"id", prepared->name},
                 {"type", "message"},
                 {"role", "assistant"},
                 {"model", context.card.name},
                 {"content", std::move(content)},
                 {"stop_reason", nullptr},
                 {"stop_sequence", nullptr},
                 {"stop_details", nullptr},
                 {"container", nullptr},
                 {"usage", message_usage(usage)}};
    if (prepared->fields.return_token_ids) message["prompt_token_ids"] = prepared->prompt;
    return message;
  }
  /// stop_reason and what belongs to it.
  void add_end(const Answer& answer, const AnswerEnd& end, Json& into) const {
    into["stop_reason"] = message_stop_reason(answer, end, context.options.loop_finish_reason);
    into["stop_sequence"] = message_stop_sequence(answer, end, context.tokenizer);
    into["stop_details"] = nullptr;
    into["finish_details"] = finish_details(answer, end);
  }
};

class MessageListener : public AnswerListener {
 public:
  explicit MessageListener(MessageWork work) : work_(std::move(work)) {}

  void on_end(const Answer& answer, const AnswerEnd& end) override {
    note_chat_end(work_.context, *work_.prepared, answer, end);
    if (end.cause != FinishCause::kError) return ended(answer, end);
    ApiError error = ApiError::from(end.error);
    error.request_id = work_.prepared->name;
    failed(error);
  }

 protected:
  virtual void failed(const ApiError& error) = 0;
  virtual void ended(const Answer& answer, const AnswerEnd& end) = 0;
  MessageWork work_;
};

/// The whole message in one response.
class WholeMessage : public MessageListener {
 public:
  explicit WholeMessage(MessageWork work)
      : MessageListener(std::move(work)), blocks_(work_.call_prefix(), work_.shows_thinking, [](const Json&) {}) {}

  void on_delta(const Answer&, std::span<const ChatEvent> events, const AnswerToken*) override {
    for (const ChatEvent& event : events) blocks_.take(event);
  }

 protected:
  void failed(const ApiError& error) override {
    work_.exchange->respond(error.response(ApiFamily::kAnthropic, response_headers(*work_.prepared)));
  }

  void ended(const Answer& answer, const AnswerEnd& end) override {
    blocks_.close();
    Json message = work_.message(blocks_.content(), end.usage);
    work_.add_end(answer, end, message);
    message["timings"] = timings(end.usage);
    if (work_.prepared->fields.return_token_ids) message["token_ids"] = answer.ids();
    if (work_.prepared->fields.logprobs) {
      TokenNotes notes(work_.prepared->fields, work_.context.tokenizer);
      for (const AnswerToken& token : answer.tokens()) notes.add(token);
      message["logprobs"] = notes.logprobs();
    }
    HttpHeaders headers = message_headers(*work_.prepared);
    headers.emplace_back("X-Fathom-Finish", finish_type(answer, end));
    work_.exchange->respond(json_response(200, message, std::move(headers)));
  }

 private:
  MessageBlocks blocks_;
};

/// Server-sent events as the message grows.
class StreamedMessage : public MessageListener {
 public:
  StreamedMessage(MessageWork work, std::shared_ptr<EventStream> stream)
      : MessageListener(std::move(work)),
        stream_(std::move(stream)),
        notes_(work_.prepared->fields, work_.context.tokenizer),
        blocks_(work_.call_prefix(), work_.shows_thinking, [this](Json event) { send(std::move(event)); }) {}

  /// What can be told before anything is generated. How much of the prompt a cache has is not known yet.
  void begin() {
    const GenerationUsage usage{.prompt_tokens = static_cast<int64_t>(work_.prepared->prompt.size())};
    send({{"type", "message_start"}, {"message", work_.message(Json::array(), usage)}});
    send_ping(*stream_);
  }
  static void send_ping(EventStream& stream) { stream.send({{"type", "ping"}}, "ping"); }

  void on_delta(const Answer&, std::span<const ChatEvent> events, const AnswerToken* token) override {
    if (token != nullptr) notes_.add(*token);
    for (const ChatEvent& event : events) blocks_.take(event);
  }

 protected:
  void failed(const ApiError& error) override {
    stream_->send(error.body(ApiFamily::kAnthropic), "error");
    stream_->close();
  }

  void ended(const Answer& answer, const AnswerEnd& end) override {
    blocks_.close();
    Json event{{"type", "message_delta"}, {"delta", Json::object()}, {"usage", message_usage(end.usage)}};
    work_.add_end(answer, end, event["delta"]);
    event["timings"] = timings(end.usage);
    add_notes(event);
    send(std::move(event));
    send({{"type", "message_stop"}});
    stream_->close();
  }

 private:
  void add_notes(Json& event) {
    if (notes_.empty()) return;
    if (work_.prepared->fields.return_token_ids) event["token_ids"] = notes_.ids();
    if (work_.prepared->fields.logprobs) event["logprobs"] = notes_.logprobs();
    notes_.clear();
  }
  void send(Json event) {
    const std::string type = event["type"];
    if (type == "content_block_delta") add_notes(event);
    stream_->send(event, type);
  }

  std::shared_ptr<EventStream> stream_;
  TokenNotes notes_;
  MessageBlocks blocks_;
};

Result<PreparedRequest> prepare(ServiceContext& context, MessagesRequest request) {
  Result<PreparedRequest> prepared = prepare_chat(context, request.chat, std::move(request.fields), "msg_");
  if (!prepared.ok()) return in_messages_words(std::move(prepared).error());
  prepared->ignored.insert(prepared->ignored.end(), request.ignored.begin(), request.ignored.end());
  if (!prepared->ignored.empty())
    log_info("{}: left out: {}", prepared->name, fmt::join(prepared->ignored, "; "));
  return prepared;
}

Result<MessagesRequest> read(ServiceContext& context, const HttpRequest& http, bool counts_only) {
  FATHOM_ASSIGN(const Json json, parse_chat_request(context, http.body));
  return read_messages_request(json, {.defaults = context.options.defaults,
                                      .vocab_size = context.generator.status().vocab_size,
                                      .drops_billing_header = context.options.drops_billing_header,
                                      .needs_max_tokens = !counts_only});
}

}  // namespace

Result<void> post_messages(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(MessagesRequest request, read(context, http, false));
  const bool shows_thinking = request.shows_thinking;
  FATHOM_ASSIGN(PreparedRequest made, prepare(context, std::move(request)));
  const auto prepared = std::make_shared<const PreparedRequest>(std::move(made));
  const auto live = start_live(context, prepared->name, exchange);
  MessageWork work{.context = context,
                   .prepared = prepared,
                   .live = live,
                   .exchange = exchange,
                   .shows_thinking = shows_thinking};
  Submission submission{.live = live, .listener = {}};
  if (!prepared->fields.stream) {
    submission.listener = std::make_shared<WholeMessage>(std::move(work));
    return submit_answers(context, *prepared, submission);
  }
  auto stream = std::make_shared<EventStream>(exchange, message_headers(*prepared));
  // Comments are no sign of life for clients that watch for events.
  stream->set_keep_alive(StreamedMessage::send_ping);
  auto listener = std::make_shared<StreamedMessage>(std::move(work), stream);
  listener->begin();
  submission.listener = listener;
  FATHOM_TRY(submit_answers(context, *prepared, submission));
  stream->open();
  context.keep_alive(stream);
  return {};
}

Result<void> post_count_tokens(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(MessagesRequest request, read(context, http, true));
  FATHOM_ASSIGN(const PreparedRequest prepared, prepare(context, std::move(request)));
  exchange->respond(json_response(200, {{"input_tokens", prepared.prompt.size()}}, message_headers(prepared)));
  return {};
}

}  // namespace fathom
