// POST /v1/chat/completions.
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "server/openai_parts.h"
#include "server/submit.h"

namespace fathom {
namespace {

/// What the answers of one request share.
struct ChatRequest {
  ServiceContext& context;
  std::shared_ptr<const PreparedRequest> prepared;
  std::shared_ptr<LiveRequest> live;  // alive as long as an answer is
  Exchange exchange;
  int64_t created_s = now_s();

  Json header(const char* object) const {
    return {{"id", prepared->name},
            {"object", object},
            {"created", created_s},
            {"model", context.card.name},
            {"system_fingerprint", context.card.fingerprint.substr(0, 16)}};
  }
  std::string call_id(const Answer& answer, int call) const {
    return fmt::format("call_{}_{}_{}", prepared->name.substr(prepared->name.find('-') + 1), answer.index(), call);
  }
};

/// Counts the answers down and adds up what they cost. The engine's thread only.
class ChatListener : public AnswerListener {
 public:
  explicit ChatListener(ChatRequest request) : request_(std::move(request)), open_(request_.prepared->fields.n) {}

  void on_end(const Answer& answer, const AnswerEnd& end) override {
    note_chat_end(request_.context, *request_.prepared, answer, end);
    usage_ = open_ == request_.prepared->fields.n ? end.usage : sum_usage(usage_, end.usage);
    --open_;
    // Nobody will get the other answers.
    if (end.cause == FinishCause::kError && open_ > 0) request_.live->cancel();
    answer_ended(answer, end);
    if (open_ == 0) all_ended();
  }

 protected:
  virtual void answer_ended(const Answer& answer, const AnswerEnd& end) = 0;
  virtual void all_ended() = 0;

  Json choice_end(const Answer& answer, const AnswerEnd& end) const {
    return {{"index", answer.index()},
            {"finish_reason", openai_finish_reason(answer, end, request_.context.options.loop_finish_reason)},
            {"finish_details", finish_details(answer, end)}};
  }

  ChatRequest request_;
  GenerationUsage usage_;
  int open_;
};

/// The whole answer in one response.
class WholeChat : public ChatListener {
 public:
  using ChatListener::ChatListener;
  void on_delta(const Answer&, std::span<const ChatEvent>, const AnswerToken*) override {}

 protected:
  void answer_ended(const Answer& answer, const AnswerEnd& end) override {
    Json choice = choice_end(answer, end);
    std::vector<std::string> ids;
    for (const ParsedCall& call : answer.turn().calls) {
      ids.resize(static_cast<size_t>(call.index) + 1);
      ids.back() = request_.call_id(answer, call.index);
    }
    choice["message"] = assistant_message(answer, ids);
    choice["logprobs"] = nullptr;
    if (request_.prepared->fields.logprobs) {
      Json content = Json::array();
      for (const AnswerToken& token : answer.tokens())
        content.push_back(chat_logprob(token, request_.context.tokenizer));
      choice["logprobs"] = {{"content", std::move(content)}, {"refusal", nullptr}};
    }
    if (request_.prepared->fields.return_token_ids) choice["token_ids"] = answer.ids();
    choices_.put(answer, end, std::move(choice));
  }

  void all_ended() override {
    Json body = request_.header("chat.completion");
    if (request_.prepared->fields.return_token_ids) body["prompt_token_ids"] = request_.prepared->prompt;
    choices_.respond(*request_.exchange, std::move(body), usage_, response_headers(*request_.prepared));
  }

 private:
  WholeChoices choices_;
};

/// Server-sent events as the answer grows.
class StreamedChat : public ChatListener {
 public:
  StreamedChat(ChatRequest request, std::shared_ptr<EventStream> stream)
      : ChatListener(std::move(request)), stream_(std::move(stream), request_.prepared->fields.include_usage) {}

  void on_prefill(const Answer&, const PrefillProgress& progress) override { stream_.tell_prefill(progress); }

  void on_delta(const Answer& answer, std::span<const ChatEvent> events, const AnswerToken* token) override {
    const GenerationFields& fields = request_.prepared->fields;
    const bool tells_token = token != nullptr && (fields.return_token_ids || fields.logprobs);
    begin(answer);
    for (const ChatEvent& event : events) {
      Json delta = delta_of(answer, event);
      if (delta.empty()) continue;
      // The token goes with the first piece it brought.
      send(answer, std::move(delta), tells_token ? std::exchange(token, nullptr) : nullptr);
    }
    if (tells_token && token != nullptr) send(answer, Json::object(), token);
  }

 protected:
  void answer_ended(const Answer& answer, const AnswerEnd& end) override {
    if (end.cause == FinishCause::kError) {
      failed_ = true;
      return stream_.fail(end.error);
    }
    begin(answer);
    Json choice = choice_end(answer, end);
    choice["delta"] = Json::object();
    choice["logprobs"] = nullptr;
    Json chunk = request_.header("chat.completion.chunk");
    chunk["choices"] = Json::array({std::move(choice)});
    chunk["timings"] = timings(end.usage);
    stream_.send(std::move(chunk));
  }

  void all_ended() override {
    if (!failed_) stream_.end(request_.header("chat.completion.chunk"), usage_);
  }

 private:
  void begin(const Answer& answer) {
    if (!begun_.insert(answer.index()).second) return;
    Json delta{{"role", "assistant"}, {"content", ""}};
    send(answer, std::move(delta), nullptr);
  }

  Json delta_of(const Answer& answer, const ChatEvent& event) {
    switch (event.kind) {
      case ChatEventKind::kReasoning: return {{"reasoning_content", event.text}};
      case ChatEventKind::kContent: return {{"content", event.text}};
      case ChatEventKind::kCallStart: {
        Json call{{"index", event.call},
                  {"id", request_.call_id(answer, event.call)},
                  {"type", "function"},
                  {"function", {{"name", event.name}, {"arguments", ""}}}};
        if (!event.namespace_name.empty()) call["namespace"] = event.namespace_name;
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      case ChatEventKind::kCallArguments: {
        Json call{{"index", event.call}, {"function", {{"arguments", event.text}}}};
        return {{"tool_calls", Json::array({std::move(call)})}};
      }
      case ChatEventKind::kCallEnd:
      case ChatEventKind::kCallDropped: return Json::object();
    }
    return Json::object();
  }

  void send(const Answer& answer, Json delta, const AnswerToken* token) {
    const GenerationFields& fields = request_.prepared->fields;
    Json choice{{"index", answer.index()}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
    if (token != nullptr && fields.logprobs)
      choice["logprobs"] = {{"content", Json::array({chat_logprob(*token, request_.context.tokenizer)})},
                            {"refusal", nullptr}};
    choice["finish_reason"] = nullptr;
    if (token != nullptr && fields.return_token_ids) choice["token_ids"] = Json::array({token->id});
    Json chunk = request_.header("chat.completion.chunk");
    chunk["choices"] = Json::array({std::move(choice)});
    if (fields.return_token_ids && !std::exchange(told_prompt_, true))
      chunk["prompt_token_ids"] = request_.prepared->prompt;
    stream_.send(std::move(chunk));
  }

  ChunkStream stream_;
  std::set<int> begun_;
  bool told_prompt_ = false, failed_ = false;
};

}  // namespace

Result<void> post_chat_completions(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(const Json json, parse_chat_request(context, http.body));
  FATHOM_ASSIGN(GenerationFields fields, read_generation_fields(Fields(json), context.options.defaults,
                                                                context.generator.status().vocab_size));
  FATHOM_ASSIGN(PreparedRequest made, prepare_chat(context, json, std::move(fields), "chatcmpl-"));
  const auto prepared = std::make_shared<const PreparedRequest>(std::move(made));
  const auto live = start_live(context, prepared->name, exchange);
  ChatRequest request{.context = context, .prepared = prepared, .live = live, .exchange = exchange};
  Submission submission{.live = live, .listener = {}};
  if (!prepared->fields.stream) {
    submission.listener = std::make_shared<WholeChat>(std::move(request));
    return submit_answers(context, *prepared, submission);
  }
  auto stream = std::make_shared<EventStream>(exchange, response_headers(*prepared));
  submission.listener = std::make_shared<StreamedChat>(std::move(request), stream);
  FATHOM_TRY(submit_answers(context, *prepared, submission));
  stream->open();
  context.keep_alive(stream);
  return {};
}

}  // namespace fathom
