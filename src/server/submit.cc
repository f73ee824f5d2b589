#include "server/submit.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "text/chat_encoding.h"
#include "text/chat_json.h"

namespace fathom {
namespace {

std::vector<ChatTool> tools_of(const Conversation& conversation) {
  std::vector<ChatTool> tools = conversation.tools;
  for (const ChatMessage& message : conversation.messages)
    tools.insert(tools.end(), message.tools.begin(), message.tools.end());
  return tools;
}

Result<Conversation> read_conversation(const Json& request, bool has_ids) {
  if (!has_ids || request.contains("messages")) return parse_conversation(json_line(request));
  // The messages are in the ids already; the tools still say how arguments are typed.
  Json with_message = request;
  with_message["messages"] = Json::array({{{"role", "user"}, {"content", ""}}});
  return parse_conversation(json_line(with_message));
}

Result<void> render(ServiceContext& context, const Conversation& conversation, PreparedRequest& request) {
  FATHOM_ASSIGN(const RenderedPrompt rendered, render_conversation(conversation));
  if (!rendered.image_urls.empty())
    return Error::unsupported("messages: this model is served without its vision part: images cannot be read");
  size_t text_bytes = 0;
  for (const PromptSegment& segment : rendered.segments) text_bytes += segment.is_control ? 0 : segment.text.size();
  FATHOM_TRY(check_text_bytes(context, "messages", text_bytes));
  FATHOM_ASSIGN(request.prompt, encode_prompt(rendered, context.tokenizer));
  FATHOM_ASSIGN(const size_t stable, stable_prefix_tokens(rendered, context.tokenizer));
  request.answer.starts_in_thinking = rendered.starts_in_thinking;
  // Other conversations part from this one where the first user speaks, this one from itself where its stable part
  // ends.
  const int32_t user = context.tokenizer.named().user;
  const auto first_user = std::find(request.prompt.begin(), request.prompt.end(), user);
  request.branch_points = {first_user - request.prompt.begin(), static_cast<int64_t>(stable)};
  return {};
}

void tidy_branch_points(PreparedRequest& request) {
  std::vector<int64_t>& points = request.branch_points;
  const auto length = static_cast<int64_t>(request.prompt.size());
  std::erase_if(points, [length](int64_t point) { return point <= 0 || point >= length; });
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
}

// What the generator finds wrong with a prompt, at the member it came in.
Error at_prompt(const PreparedRequest& request, Error error) {
  const bool concerns_prompt = error.code == ErrorCode::kInvalidArgument ||
                               error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kContextFull;
  if (concerns_prompt && !error.message.starts_with(request.prompt_member + ":"))
    error.message = request.prompt_member + ": " + error.message;
  return error;
}

void set_stops(PreparedRequest& request, std::vector<int32_t> own) {
  request.stop_ids = std::move(own);
  request.stop_ids.insert(request.stop_ids.end(), request.fields.stop_ids.begin(), request.fields.stop_ids.end());
}

}  // namespace

Result<Json> parse_chat_request(const ServiceContext& context, std::string_view body) {
  FATHOM_ASSIGN(Json json, parse_request_json(body));
  const auto ids = json.find("prompt_token_ids");
  if (ids != json.end() && ids->is_array())
    FATHOM_TRY(check_token_count(context, "prompt_token_ids", ids->size()));
  return json;
}

Result<PreparedRequest> prepare_chat(ServiceContext& context, const Json& conversation_json,
                                     GenerationFields fields, std::string_view name_prefix) {
  PreparedRequest request;
  request.name = random_name(name_prefix);
  request.fields = std::move(fields);
  const NamedTokens& named = context.tokenizer.named();
  const auto given_ids = conversation_json.find("prompt_token_ids");
  const bool has_ids = given_ids != conversation_json.end() && !given_ids->is_null();
  FATHOM_ASSIGN(const Conversation conversation, read_conversation(conversation_json, has_ids));
  request.ignored = conversation.ignored;
  if (has_ids) {
    FATHOM_ASSIGN(request.prompt,
                  read_ids(*given_ids, "prompt_token_ids", context.generator.status().vocab_size));
    request.answer.starts_in_thinking = !request.prompt.empty() && request.prompt.back() == named.think_open;
  } else {
    FATHOM_TRY(render(context, conversation, request));
    request.prompt = context.memory.restore(std::move(request.prompt), &request.branch_points);
  }
  request.prompt_member = has_ids ? "prompt_token_ids" : "messages";
  // Before a grammar is compiled for an answer that nobody will get.
  FATHOM_TRY(check_token_count(context, request.prompt_member, request.prompt.size()));
  tidy_branch_points(request);
  set_stops(request, turn_end_ids(named));
  request.answer.is_chat = true;
  request.answer.tools = tools_of(conversation);
  request.answer.stop_strings = request.fields.stop_strings;
  request.answer.parallel_tool_calls = request.fields.parallel_tool_calls;
  request.answer.keep_tokens = request.fields.logprobs;
  const ConstraintInput input{.fields = request.fields,
                              .tools = request.answer.tools,
                              .is_chat = true,
                              .starts_in_thinking = request.answer.starts_in_thinking};
  FATHOM_ASSIGN(request.mask, make_constraint(input, named, context.compiler));
  return request;
}

Result<PreparedRequest> prepare_text(ServiceContext& context, std::vector<int32_t> prompt,
                                     std::string prompt_member, GenerationFields fields, std::string name) {
  PreparedRequest request;
  request.name = std::move(name);
  request.fields = std::move(fields);
  request.prompt = std::move(prompt);
  request.prompt_member = std::move(prompt_member);
  FATHOM_TRY(check_token_count(context, request.prompt_member, request.prompt.size()));
  set_stops(request, text_end_ids(context.tokenizer.named()));
  request.answer.is_chat = false;
  request.answer.stop_strings = request.fields.stop_strings;
  request.answer.keep_tokens = request.fields.logprobs;
  const std::vector<ChatTool> no_tools;
  const ConstraintInput input{
      .fields = request.fields, .tools = no_tools, .is_chat = false, .starts_in_thinking = false};
  FATHOM_ASSIGN(request.mask, make_constraint(input, context.tokenizer.named(), context.compiler));
  return request;
}

Result<void> check_token_count(const ServiceContext& context, std::string_view member, size_t tokens) {
  if (static_cast<int64_t>(tokens) <= context.card.context_tokens) return {};
  return Error::context_full("{}: {} tokens, the context holds {}", member, tokens, context.card.context_tokens);
}

Result<void> check_text_bytes(const ServiceContext& context, std::string_view member, size_t bytes) {
  const auto tokens_least = static_cast<int64_t>(bytes / context.longest_token_bytes);
  if (tokens_least <= context.card.context_tokens) return {};
  return Error::context_full("{}: at least {} tokens, the context holds {}", member, tokens_least,
                             context.card.context_tokens);
}

std::shared_ptr<LiveRequest> start_live(ServiceContext& context, std::string name, const Exchange& exchange) {
  auto live = context.live.start(context.generator, std::move(name));
  exchange->on_gone([weak = std::weak_ptr(live)] {
    if (const auto gone = weak.lock()) gone->cancel();
  });
  return live;
}

HttpHeaders response_headers(const PreparedRequest& request) {
  HttpHeaders headers{{"X-Request-Id", request.name}};
  if (request.ignored.empty()) return headers;
  std::string text = fmt::format("{}", fmt::join(request.ignored, "; "));
  constexpr size_t kHeaderBytesMax = 1000;
  if (text.size() > kHeaderBytesMax) text.resize(kHeaderBytesMax);
  // Names come from the client.
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  headers.emplace_back("X-Fathom-Ignored", std::move(text));
  return headers;
}

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<void> submit_answers(ServiceContext& context, const PreparedRequest& request,
                            const Submission& submission) {
  const GenerationFields& fields = request.fields;
  const GeneratorStatus status = context.generator.status();
  const int64_t places = static_cast<int64_t>(status.slots.size()) + status.queue_limit;
  if (fields.n > places)
    return Error::invalid("n: expected at most {}, what runs and waits at once here, found {}", places, fields.n);
  for (int choice = 0; choice < fields.n; ++choice) {
    AnswerSettings settings = request.answer;
    settings.index = submission.first_index + choice;
    if (!fields.stream) settings.run_end = context.run_end;
    GenerationRequest wanted;
    wanted.name = request.name;
    wanted.prompt = request.prompt;
    wanted.max_tokens = fields.max_tokens_or_default;
    wanted.min_tokens = fields.min_tokens;
    wanted.ignore_stop_ids = fields.ignore_eos;
    wanted.stop_ids = request.stop_ids;
    wanted.sampling = fields.sampling;
    wanted.sampling.seed = choice_seed(fields.sampling.seed, choice);
    // It stands for a piece of an image; an answer with one could not be continued.
    if (const int32_t image = context.tokenizer.named().image; image >= 0)
      wanted.sampling.bias.push_back({image, -100});
    if (request.mask) wanted.mask = request.mask();
    wanted.top_logprobs = fields.logprobs ? fields.top_logprobs : -1;
    wanted.prompt_logprobs = submission.prompt_logprobs;
    wanted.branch_points = request.branch_points;
    wanted.reuse_prefix = fields.reuse_prefix;
    wanted.loop_guard = fields.loop_guard;
    if (fields.time_limit.count() > 0) wanted.deadline = GenerationClock::now() + fields.time_limit;
    wanted.sink = std::make_shared<Answer>(context.tokenizer, std::move(settings), submission.listener);
    Result<GenerationId> id = context.generator.submit(std::move(wanted));
    if (!id.ok()) {
      submission.live->cancel();
      return at_prompt(request, std::move(id).error());
    }
    submission.live->add(*id);
  }
  return {};
}

void log_end(const std::string& name, const Answer& answer, const AnswerEnd& end) {
  if (end.loop.found)
    log_warning("{}: the answer repeats {} tokens {} times from its token {} on{}", name, end.loop.period_tokens,
                end.loop.repeats, end.loop.first_token, end.cause == FinishCause::kLoop ? "; it was ended" : "");
  if (end.cause == FinishCause::kError)
    log_warning("{}: failed after {} tokens: {}", name, answer.ids().size(), end.error.message);
}

void note_chat_end(ServiceContext& context, const PreparedRequest& request, const Answer& answer,
                   const AnswerEnd& end) {
  log_end(request.name, answer, end);
  // Text behind a stop string was never shown, so it cannot come back.
  if (end.cause == FinishCause::kError || !end.stop_string.empty()) return;
  context.memory.remember(request.prompt, answer.ids());
}

}  // namespace fathom
