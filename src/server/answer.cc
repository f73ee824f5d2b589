#include "server/answer.h"

#include <algorithm>

namespace fathom {
namespace {

std::vector<int32_t> known(std::initializer_list<int32_t> ids) {
  std::vector<int32_t> result(ids);
  std::erase(result, -1);
  return result;
}

}  // namespace

std::vector<int32_t> turn_end_ids(const NamedTokens& named) {
  return known({named.eos, named.end_of_turn, named.user, named.assistant, named.system, named.latest_reminder});
}

std::vector<int32_t> text_end_ids(const NamedTokens& named) { return known({named.eos, named.end_of_turn}); }

Answer::Answer(const Tokenizer& tokenizer, AnswerSettings settings, std::shared_ptr<AnswerListener> listener)
    : tokenizer_(tokenizer),
      settings_(std::move(settings)),
      listener_(std::move(listener)),
      types_(settings_.tools),
      parser_(tokenizer.named(), settings_.starts_in_thinking, &types_),
      stops_(settings_.stop_strings),
      turn_ends_(turn_end_ids(tokenizer.named())) {}

bool Answer::has_whole_call() const {
  const std::vector<ParsedCall>& calls = turn().calls;
  return std::any_of(calls.begin(), calls.end(), [](const ParsedCall& call) { return call.complete; });
}

void Answer::on_prefill(const PrefillProgress& progress) { listener_->on_prefill(*this, progress); }

void Answer::on_prompt_logprobs(std::span<const double> logprobs,
                                std::span<const std::vector<TokenLogprob>> top) {
  prompt_logprobs_.assign(logprobs.begin(), logprobs.end());
  prompt_top_.assign(top.begin(), top.end());
}

// ---- Text ----

void Answer::add_content(std::string text) {
  if (text.empty()) return;
  content_ += text;
  if (!events_.empty() && events_.back().kind == ChatEventKind::kContent) {
    events_.back().text += text;
    return;
  }
  ChatEvent event;
  event.text = std::move(text);
  events_.push_back(std::move(event));
}

// What was held back for a stop string stands before whatever comes now.
void Answer::flush_held_content() { add_content(stops_.finish()); }

void Answer::add_event(ChatEvent event) {
  if (stops_.found()) return;
  switch (event.kind) {
    case ChatEventKind::kContent:
      return add_content(stops_.take(event.text));
    case ChatEventKind::kReasoning:
      reasoning_ += event.text;
      break;
    case ChatEventKind::kCallEnd:
      call_ended_ = true;
      break;
    case ChatEventKind::kCallStart:
    case ChatEventKind::kCallArguments:
    case ChatEventKind::kCallDropped:
      break;
  }
  flush_held_content();
  events_.push_back(std::move(event));
}

void Answer::take_text(std::string_view bytes) { add_content(stops_.take(holder_.push(bytes))); }

// ---- Tokens ----

bool Answer::ends_here(const GeneratedToken& token) const {
  if (token.is_stop) return false;  // the generator ends it by itself, with its own cause
  return stops_.found() || (settings_.is_chat && parser_.ended()) ||
         (call_ended_ && !settings_.parallel_tool_calls);
}

bool Answer::on_token(const GeneratedToken& token) {
  events_.clear();
  ids_.push_back(token.id);
  AnswerToken kept{token.id, token.logprob, {}};
  if (settings_.keep_tokens) {
    kept.top.assign(token.top.begin(), token.top.end());
    tokens_.push_back(kept);
  }
  const bool ends_turn = std::find(turn_ends_.begin(), turn_ends_.end(), token.id) != turn_ends_.end();
  if (settings_.is_chat) {
    if (parser_.in_reasoning()) ++reasoning_tokens_;
    // A stop token of the client's own is no part of the text.
    if (!token.is_stop || ends_turn) {
      parsed_.clear();
      parser_.feed(token.id, tokenizer_.token_bytes(token.id), parsed_);
      for (ChatEvent& event : parsed_) add_event(std::move(event));
    }
  } else if (!token.is_stop && !tokenizer_.is_special(token.id)) {
    take_text(tokenizer_.token_bytes(token.id));
  }
  listener_->on_delta(*this, events_, &kept);
  return !ends_here(token);
}

void Answer::on_finish(const GenerationFinish& finish) {
  events_.clear();
  if (settings_.is_chat) {
    parsed_.clear();
    parser_.finish(parsed_);
    for (ChatEvent& event : parsed_) add_event(std::move(event));
  } else if (!stops_.found()) {
    add_content(stops_.take(holder_.flush()));
  }
  if (!stops_.found()) flush_held_content();
  if (!events_.empty()) listener_->on_delta(*this, events_, nullptr);

  AnswerEnd end{.cause = finish.cause,
                .error = finish.error,
                .stop_string = stops_.matched(),
                .stop_id = finish.stop_id,
                .loop = finish.loop,
                .usage = finish.usage};
  end.usage.reasoning_tokens = reasoning_tokens_;
  if (!settings_.run_end) return listener_->on_end(*this, end);
  settings_.run_end([self = shared_from_this(), end] { self->listener_->on_end(*self, end); });
}

}  // namespace fathom
