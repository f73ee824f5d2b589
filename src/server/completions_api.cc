// POST /v1/completions: prompts as they are, as text or token ids.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "server/openai_parts.h"
#include "server/submit.h"
#include "text/utf8.h"

namespace fathom {
namespace {

struct TextOptions {
  bool add_bos = true;
  bool parse_special = true;
  std::optional<std::string> suffix;
};

// begin, prefix, hole, suffix, end: the order of DeepSeek's earlier models.
Result<std::vector<int32_t>> encode_around_hole(const Tokenizer& tokenizer, const std::string& prefix,
                                                const std::string& suffix) {
  const NamedTokens& named = tokenizer.named();
  if (named.fim_begin < 0 || named.fim_hole < 0 || named.fim_end < 0)
    return Error::unsupported("suffix: the model's vocabulary has no tokens for a text with a hole");
  std::vector<int32_t> ids{named.bos, named.fim_begin};
  tokenizer.encode_append(prefix, ids);
  ids.push_back(named.fim_hole);
  tokenizer.encode_append(suffix, ids);
  ids.push_back(named.fim_end);
  return ids;
}

Result<std::vector<int32_t>> encode_text(const Tokenizer& tokenizer, const std::string& text,
                                         const TextOptions& options) {
  if (options.suffix) return encode_around_hole(tokenizer, text, *options.suffix);
  std::vector<int32_t> ids = options.parse_special ? tokenizer.encode_with_special(text) : tokenizer.encode(text);
  const int32_t bos = tokenizer.named().bos;
  if (options.add_bos && bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

Result<std::vector<int32_t>> read_prompt(const Json& value, const std::string& path, const ServiceContext& context,
                                         int32_t vocab_size, const TextOptions& options) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    FATHOM_TRY(check_text_bytes(context, path, text.size()));
    return encode_text(context.tokenizer, text, options);
  }
  if (options.suffix) return wrong_json(path, "text beside a suffix", value);
  if (value.is_array()) FATHOM_TRY(check_token_count(context, path, value.size()));
  return read_ids(value, path, vocab_size);
}

// A string, ids, or an array of either.
Result<std::vector<std::vector<int32_t>>> read_prompts(const Fields& request, const ServiceContext& context,
                                                       int32_t vocab_size, const TextOptions& options) {
  const Json* given = request.find("prompt");
  const char* name = given != nullptr ? "prompt" : "prompt_token_ids";
  const Json* prompt = request.find(name);
  if (prompt == nullptr) return Error::invalid("prompt: expected text or token ids, found nothing");
  std::vector<std::vector<int32_t>> prompts;
  const bool is_list = prompt->is_array() && !prompt->empty() && !(*prompt)[0].is_number();
  if (!is_list) {
    FATHOM_ASSIGN(auto ids, read_prompt(*prompt, name, context, vocab_size, options));
    prompts.push_back(std::move(ids));
    return prompts;
  }
  if (prompt->size() > static_cast<size_t>(kChoicesMax))
    return Error::invalid("{}: expected at most {} prompts, found {}", name, kChoicesMax, prompt->size());
  for (size_t index = 0; index < prompt->size(); ++index) {
    FATHOM_ASSIGN(auto ids, read_prompt((*prompt)[index], fmt::format("{}[{}]", name, index), context,
                                        vocab_size, options));
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

struct CompletionRequest {
  ServiceContext& context;
  std::string name;
  GenerationFields fields;
  bool echo = false;
  std::vector<std::vector<int32_t>> prompts;
  std::shared_ptr<LiveRequest> live;
  Exchange exchange;
  int64_t created_s = now_s();

  const std::vector<int32_t>& prompt_of(const Answer& answer) const {
    return prompts[static_cast<size_t>(answer.index() / fields.n)];
  }
  int answers() const { return static_cast<int>(prompts.size()) * fields.n; }
  /// The ids of a prompt are told once, however many answers it has.
  bool tells_prompt_ids(const Answer& answer) const {
    return fields.return_token_ids && answer.index() % fields.n == 0;
  }
  Json header() const {
    return {{"id", name}, {"object", "text_completion"}, {"created", created_s}, {"model", context.card.name}};
  }
  std::string prompt_text(const Answer& answer) const {
    return replace_invalid_utf8(context.tokenizer.decode(prompt_of(answer)));
  }
};

Json choice_of(const Answer& answer, std::string text, Json logprobs) {
  return {{"index", answer.index()},
          {"text", std::move(text)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", nullptr}};
}

/// `count` tokens of the prompt, of which the first has nothing before it.
std::vector<AnswerToken> prompt_tokens(const CompletionRequest& request, const Answer& answer, size_t first,
                                       size_t count) {
  std::vector<AnswerToken> tokens;
  const std::vector<int32_t>& ids = request.prompt_of(answer);
  for (size_t position = first; position < first + count; ++position) {
    AnswerToken token{ids[position], 0, {}};
    if (position > 0 && position - 1 < answer.prompt_logprobs().size()) {
      token.logprob = answer.prompt_logprobs()[position - 1];
      if (position - 1 < answer.prompt_top().size()) token.top = answer.prompt_top()[position - 1];
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Json logprobs_of(const CompletionRequest& request, const std::vector<AnswerToken>& tokens,
                 bool begins_with_prompt, int64_t offset) {
  Json logprobs =
      completion_logprobs(tokens, request.context.tokenizer, request.fields.top_logprobs > 0, offset);
  if (begins_with_prompt && !tokens.empty()) {
    logprobs["token_logprobs"][0] = nullptr;
    if (!logprobs["top_logprobs"].is_null()) logprobs["top_logprobs"][0] = nullptr;
  }
  return logprobs;
}

/// What a stream says of a prompt before its answer, in portions: at once it could be more than a client may owe.
class PromptEcho {
 public:
  /// `answer`, to which `request` belongs, is not asked for anything that changes while it is generated.
  PromptEcho(const CompletionRequest& request, std::shared_ptr<const Answer> answer)
      : request_(request), answer_(std::move(answer)) {}

  std::optional<Json> next_chunk() {
    const std::vector<int32_t>& ids = request_.prompt_of(*answer_);
    const size_t end = request_.echo ? ids.size() : 0;
    if (told_ && at_ >= end) return std::nullopt;
    const size_t count = std::min(kPortionTokens, end - at_);
    const bool is_first = !std::exchange(told_, true);
    Json logprobs;
    if (request_.echo && request_.fields.logprobs)
      logprobs = logprobs_of(request_, prompt_tokens(request_, *answer_, at_, count), is_first, offset_);
    const std::string bytes = request_.context.tokenizer.decode(std::span(ids).subspan(at_, count));
    offset_ += static_cast<int64_t>(bytes.size());
    at_ += count;
    std::string text = text_.push(bytes);
    if (at_ >= end) text += text_.flush();
    Json item = choice_of(*answer_, std::move(text), std::move(logprobs));
    if (is_first && request_.tells_prompt_ids(*answer_)) item["prompt_token_ids"] = ids;
    Json chunk = request_.header();
    chunk["choices"] = Json::array({std::move(item)});
    return chunk;
  }

 private:
  static constexpr size_t kPortionTokens = 128;  // with 20 alternatives each some 80 KiB
  const CompletionRequest& request_;
  const std::shared_ptr<const Answer> answer_;
  bool told_ = false;
  size_t at_ = 0;
  int64_t offset_ = 0;  // of token `at_`, in bytes
  Utf8Holder text_;
};

class CompletionListener : public AnswerListener {
 public:
  explicit CompletionListener(CompletionRequest request)
      : request_(std::move(request)), open_(request_.answers()) {}

  void on_end(const Answer& answer, const AnswerEnd& end) override {
    log_end(request_.name, answer, end);
    // Answers to one prompt share it; the sum over prompts has all of them.
    const bool first_of_prompt = seen_prompts_.insert(answer.index() / request_.fields.n).second;
    GenerationUsage usage = end.usage;
    if (!first_of_prompt) usage.prompt_tokens = usage.cached_tokens = 0;
    add_usage(usage);
    --open_;
    // Nobody will get the other answers.
    if (end.cause == FinishCause::kError && open_ > 0) request_.live->cancel();
    answer_ended(answer, end);
    if (open_ == 0) all_ended();
  }

 protected:
  virtual void answer_ended(const Answer& answer, const AnswerEnd& end) = 0;
  virtual void all_ended() = 0;

  void put_end(const Answer& answer, const AnswerEnd& end, Json& choice) const {
    choice["finish_reason"] = openai_finish_reason(answer, end, request_.context.options.loop_finish_reason);
    choice["finish_details"] = finish_details(answer, end);
  }

  CompletionRequest request_;
  GenerationUsage usage_;
  int open_;

 private:
  void add_usage(const GenerationUsage& usage) {
    const GenerationUsage before = usage_;
    usage_ = sum_usage(usage_, usage);
    usage_.prompt_tokens = before.prompt_tokens + usage.prompt_tokens;
    usage_.cached_tokens = before.cached_tokens + usage.cached_tokens;
  }
  std::set<int> seen_prompts_;
};

class WholeCompletion : public CompletionListener {
 public:
  using CompletionListener::CompletionListener;
  void on_delta(const Answer&, std::span<const ChatEvent>, const AnswerToken*) override {}

 protected:
  void answer_ended(const Answer& answer, const AnswerEnd& end) override {
    const GenerationFields& fields = request_.fields;
    Json logprobs;
    if (fields.logprobs) {
      std::vector<AnswerToken> tokens;
      if (request_.echo) tokens = prompt_tokens(request_, answer, 0, request_.prompt_of(answer).size());
      tokens.insert(tokens.end(), answer.tokens().begin(), answer.tokens().end());
      logprobs = logprobs_of(request_, tokens, request_.echo, 0);
    }
    Json item = choice_of(answer, (request_.echo ? request_.prompt_text(answer) : "") + answer.content(),
                          std::move(logprobs));
    put_end(answer, end, item);
    if (fields.return_token_ids) item["token_ids"] = answer.ids();
    if (request_.tells_prompt_ids(answer)) item["prompt_token_ids"] = request_.prompt_of(answer);
    choices_.put(answer, end, std::move(item));
  }

  void all_ended() override {
    choices_.respond(*request_.exchange, request_.header(), usage_, {{"X-Request-Id", request_.name}});
  }

 private:
  WholeChoices choices_;
};

class StreamedCompletion : public CompletionListener {
 public:
  StreamedCompletion(CompletionRequest request, std::shared_ptr<EventStream> stream)
      : CompletionListener(std::move(request)), stream_(std::move(stream), request_.fields.include_usage) {}

  void on_prefill(const Answer&, const PrefillProgress& progress) override { stream_.tell_prefill(progress); }

  void on_delta(const Answer& answer, std::span<const ChatEvent> events, const AnswerToken* token) override {
    begin(answer);
    std::string text;
    for (const ChatEvent& event : events) text += event.text;
    const GenerationFields& fields = request_.fields;
    const bool tells_token = token != nullptr && (fields.return_token_ids || fields.logprobs);
    if (text.empty() && !tells_token) return;
    Json logprobs;
    if (token != nullptr && fields.logprobs) {
      logprobs = logprobs_of(request_, {*token}, false, offsets_[answer.index()]);
      offsets_[answer.index()] += static_cast<int64_t>(request_.context.tokenizer.token_bytes(token->id).size());
    }
    Json item = choice_of(answer, std::move(text), std::move(logprobs));
    if (token != nullptr && fields.return_token_ids) item["token_ids"] = Json::array({token->id});
    send(std::move(item));
  }

 protected:
  void answer_ended(const Answer& answer, const AnswerEnd& end) override {
    if (end.cause == FinishCause::kError) {
      failed_ = true;
      return stream_.fail(end.error);
    }
    begin(answer);
    Json item = choice_of(answer, "", Json());
    put_end(answer, end, item);
    send(std::move(item), &end.usage);
  }

  void all_ended() override {
    if (!failed_) stream_.end(request_.header(), usage_);
  }

 private:
  void begin(const Answer& answer) {
    if (!begun_.insert(answer.index()).second) return;
    if (!request_.echo && !request_.tells_prompt_ids(answer)) return;
    if (request_.echo)
      offsets_[answer.index()] = static_cast<int64_t>(
          request_.context.tokenizer.decode(request_.prompt_of(answer)).size());
    // The answer keeps this listener, and so the request, alive.
    const auto echo = std::make_shared<PromptEcho>(request_, answer.shared_from_this());
    stream_.send_from([echo] { return echo->next_chunk(); });
  }

  void send(Json item, const GenerationUsage* usage = nullptr) {
    Json chunk = request_.header();
    chunk["choices"] = Json::array({std::move(item)});
    if (usage != nullptr) chunk["timings"] = timings(*usage);
    stream_.send(std::move(chunk));
  }

  ChunkStream stream_;
  std::set<int> begun_;
  std::map<int, int64_t> offsets_;  // bytes told, by answer
  bool failed_ = false;
};

Result<TextOptions> read_text_options(const Fields& request) {
  TextOptions options;
  FATHOM_ASSIGN(const auto add_bos, request.boolean("add_special_tokens"));
  FATHOM_ASSIGN(const auto parse_special, request.boolean("parse_special"));
  FATHOM_ASSIGN(options.suffix, request.text("suffix"));
  options.add_bos = add_bos.value_or(true);
  options.parse_special = parse_special.value_or(true);
  return options;
}

Result<void> submit_prompts(CompletionRequest request, std::shared_ptr<AnswerListener> listener) {
  for (size_t index = 0; index < request.prompts.size(); ++index) {
    std::string member = request.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", index);
    FATHOM_ASSIGN(const PreparedRequest prepared, prepare_text(request.context, request.prompts[index],
                                                               std::move(member), request.fields, request.name));
    const Submission submission{.live = request.live,
                                .listener = listener,
                                .first_index = static_cast<int>(index) * request.fields.n,
                                .prompt_logprobs = request.echo && request.fields.logprobs};
    FATHOM_TRY(submit_answers(request.context, prepared, submission));
  }
  return {};
}

}  // namespace

Result<void> post_completions(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  FATHOM_ASSIGN(const Json json, parse_request_json(http.body));
  const Fields members(json);
  const int32_t vocab_size = context.generator.status().vocab_size;
  CompletionRequest request{.context = context, .name = random_name("cmpl-"), .fields = {}};
  FATHOM_ASSIGN(request.fields, read_generation_fields(members, context.options.defaults, vocab_size));
  FATHOM_ASSIGN(const auto best_of, members.integer("best_of", 1, kChoicesMax));
  if (best_of && *best_of != request.fields.n)
    return Error::unsupported("best_of: expected the same as n, {}, found {}", request.fields.n, *best_of);
  FATHOM_ASSIGN(const auto echo, members.boolean("echo"));
  request.echo = echo.value_or(false);
  FATHOM_ASSIGN(const TextOptions options, read_text_options(members));
  FATHOM_ASSIGN(request.prompts, read_prompts(members, context, vocab_size, options));
  if (request.answers() > kChoicesMax)
    return Error::invalid("n: expected at most {} answers in all, found {}", kChoicesMax, request.answers());
  request.live = start_live(context, request.name, exchange);
  request.exchange = exchange;
  if (!request.fields.stream) return submit_prompts(request, std::make_shared<WholeCompletion>(request));
  auto stream = std::make_shared<EventStream>(exchange, HttpHeaders{{"X-Request-Id", request.name}});
  FATHOM_TRY(submit_prompts(request, std::make_shared<StreamedCompletion>(request, stream)));
  stream->open();
  context.keep_alive(stream);
  return {};
}

}  // namespace fathom
