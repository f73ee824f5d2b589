// One answer while it is generated: tokens become reasoning, content and tool calls; stop strings end it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "text/chat_parameter_types.h"
#include "text/chat_parser.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace fathom {

struct AnswerToken {
  int32_t id = 0;
  double logprob = 0;
  std::vector<TokenLogprob> top;  // best first
};

struct AnswerEnd {
  FinishCause cause = FinishCause::kError;
  Error error;                // kError
  std::string stop_string;    // the one that was found; not in the text
  int32_t stop_id = -1;       // a stop token of the request's own
  LoopReport loop;
  GenerationUsage usage;
};

class Answer;

/// What an API does with an answer. Called on the engine's thread, but for on_end() with AnswerSettings::run_end:
/// must not block.
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual void on_prefill(const Answer& answer, const PrefillProgress& progress) { (void)answer, (void)progress; }
  /// What became certain with one token: text that may be the beginning of a stop string or half a character comes
  /// later, so `events` can be empty, and the end of an answer may bring some without a token (null).
  virtual void on_delta(const Answer& answer, std::span<const ChatEvent> events, const AnswerToken* token) = 0;
  /// Once, last.
  virtual void on_end(const Answer& answer, const AnswerEnd& end) = 0;
};

struct AnswerSettings {
  int index = 0;                    // among the choices of a request
  bool is_chat = true;              // false: plain text, no structure
  bool starts_in_thinking = false;
  bool parallel_tool_calls = true;  // false: the first whole call ends the answer
  bool keep_tokens = false;         // logprobs and ids are wanted
  std::vector<std::string> stop_strings;
  std::vector<ChatTool> tools;      // their schemas decide the types of arguments
  /// Runs the listener's on_end() on a thread of its own, calls one after the other: a whole answer becomes text
  /// there, which can take seconds, while the engine goes on. Empty: on the engine's thread.
  std::function<void(std::function<void()>)> run_end;
};

/// The sink of one request. Plain text comes as content events.
class Answer : public GenerationSink, public std::enable_shared_from_this<Answer> {
 public:
  Answer(const Tokenizer& tokenizer, AnswerSettings settings, std::shared_ptr<AnswerListener> listener);

  void on_prefill(const PrefillProgress& progress) override;
  void on_prompt_logprobs(std::span<const double> logprobs,
                          std::span<const std::vector<TokenLogprob>> top) override;
  bool on_token(const GeneratedToken& token) override;
  void on_finish(const GenerationFinish& finish) override;

  int index() const { return settings_.index; }
  const AnswerSettings& settings() const { return settings_; }
  /// As clients see them: without stop strings and what follows.
  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  /// Calls, diagnostics; its texts may go beyond a stop string. Empty for plain text.
  const ParsedTurn& turn() const { return parser_.turn(); }
  bool has_whole_call() const;
  const std::vector<int32_t>& ids() const { return ids_; }              // as sampled, with what ended the answer
  const std::vector<AnswerToken>& tokens() const { return tokens_; }    // if they were to be kept
  const std::vector<double>& prompt_logprobs() const { return prompt_logprobs_; }
  const std::vector<std::vector<TokenLogprob>>& prompt_top() const { return prompt_top_; }

 private:
  void take_text(std::string_view bytes);
  void add_event(ChatEvent event);
  void add_content(std::string text);
  void flush_held_content();
  bool ends_here(const GeneratedToken& token) const;

  const Tokenizer& tokenizer_;
  AnswerSettings settings_;
  std::shared_ptr<AnswerListener> listener_;
  ParameterTypes types_;
  ChatParser parser_;
  StopStrings stops_;
  std::vector<int32_t> turn_ends_;
  Utf8Holder holder_;  // of plain text
  bool call_ended_ = false;
  int64_t reasoning_tokens_ = 0;
  std::vector<ChatEvent> parsed_;  // of the token at hand, before stop strings
  std::vector<ChatEvent> events_;  // and after
  std::string content_, reasoning_;
  std::vector<int32_t> ids_;
  std::vector<AnswerToken> tokens_;
  std::vector<double> prompt_logprobs_;
  std::vector<std::vector<TokenLogprob>> prompt_top_;
};

/// Ids that end a chat turn: EOS, end of turn, the beginning of another role's turn. Those the vocabulary has.
std::vector<int32_t> turn_end_ids(const NamedTokens& named);
/// Ids that end plain text: EOS and end of turn.
std::vector<int32_t> text_end_ids(const NamedTokens& named);

}  // namespace fathom
