#include "server/scripted_generator.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/json_fields.h"

namespace fathom {
namespace {

using std::chrono::milliseconds;
using Clock = GenerationClock;

constexpr double kScriptedLogprob = -0.5;
constexpr int kPrefillPieces = 8;
constexpr size_t kHeldMax = 256;  // ended requests whose tokens count as cached

struct ScriptedAnswer {
  std::string match;            // a piece of the prompt's text; empty: any prompt
  std::vector<int32_t> tokens;
  int64_t uses_left = 1;        // -1: any number
  int64_t fail_after = -1;      // tokens before an error
  std::string fail_message;
  bool hangs = false;           // says nothing more after the last token
  milliseconds prefill{0}, token{0};
};

struct Script {
  int64_t slots = 4, context_tokens = 4096, queue_limit = 64;
  std::vector<ScriptedAnswer> answers;
};

// Each byte of text becomes a token of its own: no other cut can be finer.
std::vector<int32_t> split_bytes(const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  std::vector<int32_t> result;
  for (const int32_t id : ids) {
    if (tokenizer.is_added(id)) {
      result.push_back(id);
      continue;
    }
    for (const char byte : tokenizer.token_bytes(id)) result.push_back(tokenizer.id_of({&byte, 1}).value_or(id));
  }
  return result;
}

Result<std::vector<int32_t>> read_tokens(const Fields& answer, const Tokenizer& tokenizer) {
  FATHOM_ASSIGN(const auto text, answer.text("text"));
  FATHOM_ASSIGN(const auto bytes, answer.boolean("bytes"));
  if (const Json* ids = answer.find("tokens"))
    return read_ids(*ids, answer.path_of("tokens"), tokenizer.vocab_size());
  if (!text) return Error::invalid("{}: expected tokens or text", answer.path());
  std::vector<int32_t> tokens = tokenizer.encode_with_special(*text);
  return bytes.value_or(false) ? split_bytes(tokens, tokenizer) : tokens;
}

Result<ScriptedAnswer> read_answer(const Json& json, const std::string& path, const Tokenizer& tokenizer) {
  FATHOM_ASSIGN(const Fields fields, Fields::of(json, path));
  ScriptedAnswer answer;
  FATHOM_ASSIGN(answer.tokens, read_tokens(fields, tokenizer));
  FATHOM_ASSIGN(const auto repeat, fields.integer("repeat", 1, 1000000));
  const std::vector<int32_t> once = answer.tokens;
  for (int64_t copy = 1; copy < repeat.value_or(1); ++copy)
    answer.tokens.insert(answer.tokens.end(), once.begin(), once.end());
  FATHOM_ASSIGN(const auto match, fields.text("match"));
  FATHOM_ASSIGN(const auto uses, fields.integer("uses", -1, 1000000));
  FATHOM_ASSIGN(const auto fail_after, fields.integer("fail_after", 0, 1000000));
  FATHOM_ASSIGN(const auto fail_message, fields.text("fail_message"));
  FATHOM_ASSIGN(const auto hangs, fields.boolean("hangs"));
  FATHOM_ASSIGN(const auto prefill_ms, fields.integer("prefill_ms", 0, 3600000));
  FATHOM_ASSIGN(const auto token_ms, fields.integer("token_ms", 0, 3600000));
  answer.match = match.value_or("");
  answer.uses_left = uses.value_or(1);
  answer.fail_after = fail_after.value_or(-1);
  answer.fail_message = fail_message.value_or("the script says so");
  answer.hangs = hangs.value_or(false);
  answer.prefill = milliseconds(prefill_ms.value_or(0));
  answer.token = milliseconds(token_ms.value_or(0));
  return answer;
}

Result<Script> read_script(const std::string& text, const Tokenizer& tokenizer) {
  FATHOM_ASSIGN(const Json json, parse_request_json(text));
  const Fields fields(json);
  Script script;
  FATHOM_ASSIGN(const auto slots, fields.integer("slots", 1, 64));
  FATHOM_ASSIGN(const auto context, fields.integer("context_tokens", 1, 1 << 20));
  FATHOM_ASSIGN(const auto queue, fields.integer("queue_limit", 0, 1 << 20));
  FATHOM_ASSIGN(const Json* answers, fields.array("answers"));
  script.slots = slots.value_or(script.slots);
  script.context_tokens = context.value_or(script.context_tokens);
  script.queue_limit = queue.value_or(script.queue_limit);
  if (answers == nullptr) return Error::invalid("answers: expected an array, found nothing");
  for (size_t index = 0; index < answers->size(); ++index) {
    FATHOM_ASSIGN(ScriptedAnswer answer,
                  read_answer((*answers)[index], fmt::format("answers[{}]", index), tokenizer));
    script.answers.push_back(std::move(answer));
  }
  return script;
}

int64_t micros(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

/// One request on its way.
struct Run {
  GenerationId id = 0;
  GenerationRequest request;
  ScriptedAnswer answer;
  SlotStatus::Phase phase = SlotStatus::Phase::kIdle;  // idle: in the queue
  Clock::time_point submitted = Clock::now(), started, decoding, due;
  int prefill_pieces = 0;
  size_t next = 0;  // in answer.tokens
  int64_t cached_tokens = 0;
  std::vector<int32_t> generated;
  LoopGuard guard{LoopGuardOptions{}};
  bool cancelled = false;
};

class ScriptedGenerator : public Generator {
 public:
  ScriptedGenerator(Script script, const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), script_(std::move(script)), thread_([this] { play(); }) {}

  ~ScriptedGenerator() override {
    shutdown(Clock::now());
    thread_.join();
  }

  Result<GenerationId> submit(GenerationRequest request) override;
  void cancel(GenerationId id) override {
    const std::lock_guard lock(mutex_);
    for (Run& run : runs_)
      if (run.id == id) run.cancelled = true;
    changed_.notify_all();
  }
  GeneratorStatus status() const override;
  void shutdown(GenerationClock::time_point deadline) override {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    stop_at_ = std::min(stop_at_, deadline);
    changed_.notify_all();
    idle_.wait(lock, [this] { return runs_.empty(); });
  }

 private:
  Result<void> check(const GenerationRequest& request) const;
  void play();
  bool ends_from_outside(Run& run, Clock::time_point now);
  Clock::time_point advance(Run& run, Clock::time_point now);
  void start(Run& run, Clock::time_point now);
  bool ends_before_next(Run& run);
  bool masked(Run& run, int32_t id);
  bool emit(Run& run);
  bool forbidden(Run& run, int32_t id, bool is_stop);
  void finish(Run& run, FinishCause cause, Error error = {});
  int64_t running() const;

  const Tokenizer& tokenizer_;
  Script script_;
  mutable std::recursive_mutex mutex_;  // sinks are told under it and may cancel
  std::condition_variable_any changed_, idle_;
  std::list<Run> runs_;
  std::vector<std::vector<int32_t>> held_;  // prompt and answer of what has ended, oldest first
  GeneratorStatistics statistics_;
  GenerationId last_id_ = 0;
  bool stopping_ = false;
  Clock::time_point stop_at_ = Clock::time_point::max();
  std::vector<Run*> finished_;
  std::thread thread_;
};

Result<void> ScriptedGenerator::check(const GenerationRequest& request) const {
  if (request.prompt.empty()) return Error::invalid("prompt: expected at least one token, found none");
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= tokenizer_.vocab_size())
      return Error::invalid("prompt: expected token ids from 0 to {}, found {}", tokenizer_.vocab_size() - 1, id);
  if (static_cast<int64_t>(request.prompt.size()) >= script_.context_tokens)
    return Error::context_full("prompt: {} tokens, the context holds {}", request.prompt.size(),
                               script_.context_tokens);
  const Result<Sampler> sampler = Sampler::make(request.sampling, tokenizer_.vocab_size());
  if (!sampler.ok()) return sampler.error();
  if (stopping_) return Error::state("the server is shutting down");
  if (static_cast<int64_t>(runs_.size()) >= script_.slots + script_.queue_limit)
    return Error::busy("{} requests wait already, the most that may", script_.queue_limit);
  return {};
}

Result<GenerationId> ScriptedGenerator::submit(GenerationRequest request) {
  const std::lock_guard lock(mutex_);
  Result<void> checked = check(request);
  if (!checked.ok()) {
    statistics_.requests_refused += checked.error().code == ErrorCode::kBusy;
    return std::move(checked).error();
  }
  const std::string text = tokenizer_.decode(request.prompt);
  const auto answer = std::find_if(script_.answers.begin(), script_.answers.end(), [&](const ScriptedAnswer& a) {
    return a.uses_left != 0 && text.find(a.match) != std::string::npos;
  });
  Run& run = runs_.emplace_back();
  run.id = ++last_id_;
  run.guard = LoopGuard(request.loop_guard);
  if (answer == script_.answers.end()) {
    run.answer.fail_after = 0;
    run.answer.fail_message = "the script has no answer left for this prompt";
  } else {
    if (answer->uses_left > 0) --answer->uses_left;
    run.answer = *answer;
  }
  run.request = std::move(request);
  changed_.notify_all();
  return run.id;
}

int64_t ScriptedGenerator::running() const {
  return std::count_if(runs_.begin(), runs_.end(),
                       [](const Run& run) { return run.phase != SlotStatus::Phase::kIdle; });
}

GeneratorStatus ScriptedGenerator::status() const {
  const std::lock_guard lock(mutex_);
  GeneratorStatus status;
  status.queue_limit = script_.queue_limit;
  status.context_tokens = script_.context_tokens;
  status.vocab_size = tokenizer_.vocab_size();
  status.accepts_requests = !stopping_;
  status.statistics = statistics_;
  for (const Run& run : runs_) {
    if (run.phase == SlotStatus::Phase::kIdle) {
      ++status.queued_requests;
      continue;
    }
    const auto prompt = static_cast<int64_t>(run.request.prompt.size());
    const auto generated = static_cast<int64_t>(run.generated.size());
    status.slots.push_back({run.phase, run.id, run.request.name, script_.context_tokens, prompt + generated,
                            prompt, run.cached_tokens, generated});
  }
  status.slots.resize(static_cast<size_t>(script_.slots), {.context_tokens = script_.context_tokens});
  return status;
}

// ---- The thread that plays ----

// The sinks hear about everything under the lock: they may not block, and they call nothing of ours.
void ScriptedGenerator::play() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const Clock::time_point now = Clock::now();
    Clock::time_point wake = stopping_ ? stop_at_ : Clock::time_point::max();
    for (auto run = runs_.begin(); run != runs_.end();) {
      const Clock::time_point next = advance(*run, now);
      if (std::find(finished_.begin(), finished_.end(), &*run) != finished_.end()) {
        std::erase(finished_, &*run);
        run = runs_.erase(run);
        wake = now;  // a slot is free
        continue;
      }
      wake = std::min({wake, next, run->request.deadline});
      ++run;
    }
    if (runs_.empty()) {
      idle_.notify_all();
      if (stopping_) return;
    }
    if (wake > Clock::now()) {
      if (wake == Clock::time_point::max())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, wake);
    }
  }
}

bool ScriptedGenerator::ends_from_outside(Run& run, Clock::time_point now) {
  if (run.cancelled)
    finish(run, FinishCause::kCancelled);
  else if (now >= run.request.deadline)
    finish(run, FinishCause::kDeadline);
  else if (stopping_ && now >= stop_at_)
    finish(run, FinishCause::kShutdown);
  else
    return false;
  return true;
}

/// Does what is due, and says when the next thing will be.
Clock::time_point ScriptedGenerator::advance(Run& run, Clock::time_point now) {
  if (ends_from_outside(run, now)) return now;
  if (run.phase == SlotStatus::Phase::kIdle) {
    if (running() >= script_.slots) return Clock::time_point::max();
    start(run, now);
  }
  if (run.phase == SlotStatus::Phase::kPrefill) {
    if (now < run.due) return run.due;
    const auto total = static_cast<int64_t>(run.request.prompt.size());
    run.request.sink->on_prefill({.done_tokens = total * run.prefill_pieces / kPrefillPieces,
                                  .total_tokens = total,
                                  .cached_tokens = run.cached_tokens});
    run.due = now + run.answer.prefill / kPrefillPieces;
    if (run.prefill_pieces++ < kPrefillPieces) return run.due;
    run.phase = SlotStatus::Phase::kDecode;
    run.decoding = now;
    run.due = now + run.answer.token;
  }
  if (now < run.due) return run.due;
  run.due = now + run.answer.token;
  return emit(run) ? run.due : now;
}

void ScriptedGenerator::start(Run& run, Clock::time_point now) {
  run.started = run.due = now;
  run.phase = SlotStatus::Phase::kPrefill;
  const std::vector<int32_t>& prompt = run.request.prompt;
  if (run.request.reuse_prefix) {
    for (const std::vector<int32_t>& held : held_) {
      const auto common =
          std::mismatch(prompt.begin(), prompt.end(), held.begin(), held.end()).first - prompt.begin();
      run.cached_tokens = std::max<int64_t>(run.cached_tokens, common);
    }
    run.cached_tokens = std::min(run.cached_tokens, static_cast<int64_t>(prompt.size()) - 1);
  }
  if (run.request.prompt_logprobs) {
    const std::vector<double> logprobs(prompt.size() - 1, kScriptedLogprob);
    run.request.sink->on_prompt_logprobs(logprobs, {});
  }
}

bool ScriptedGenerator::forbidden(Run& run, int32_t id, bool is_stop) {
  const GenerationRequest& request = run.request;
  const auto count = static_cast<int64_t>(run.generated.size());
  if (is_stop && (request.ignore_stop_ids || count < request.min_tokens)) return true;
  return std::any_of(request.sampling.bias.begin(), request.sampling.bias.end(),
                     [id](const LogitBias& bias) { return bias.id == id && bias.bias <= -100; });
}

// What comes before another token: the script's failure, the request's limit, the context's.
bool ScriptedGenerator::ends_before_next(Run& run) {
  const auto count = static_cast<int64_t>(run.generated.size());
  const int64_t limit = run.request.max_tokens;
  if (run.answer.fail_after == count)
    finish(run, FinishCause::kError, Error::io("{}", run.answer.fail_message));
  else if (limit >= 0 && count >= limit)
    finish(run, FinishCause::kMaxTokens);
  else if (static_cast<int64_t>(run.request.prompt.size()) + count >= script_.context_tokens)
    finish(run, FinishCause::kContextFull);
  else
    return false;
  return true;
}

bool ScriptedGenerator::masked(Run& run, int32_t id) {
  if (run.request.mask == nullptr) return false;
  std::vector<uint64_t> bits((static_cast<size_t>(tokenizer_.vocab_size()) + 63) / 64, ~uint64_t{0});
  run.request.mask->restrict(bits);
  if ((bits[static_cast<size_t>(id) / 64] >> (id % 64) & 1) == 0) return true;
  run.request.mask->accept(id);
  return false;
}

/// The next token; false when the answer has ended.
bool ScriptedGenerator::emit(Run& run) {
  if (ends_before_next(run)) return false;
  GenerationRequest& request = run.request;
  const auto is_stop = [&](int32_t id) {
    return std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
  };
  const std::vector<int32_t>& tokens = run.answer.tokens;
  while (run.next < tokens.size() && forbidden(run, tokens[run.next], is_stop(tokens[run.next]))) ++run.next;
  const bool is_over = run.next == tokens.size();
  if (is_over && run.answer.hangs) {
    run.due += milliseconds(60000);
    return true;
  }
  const int32_t id = is_over ? tokenizer_.named().eos : tokens[run.next++];
  if (is_over && forbidden(run, id, is_stop(id))) {
    finish(run, FinishCause::kError, Error::internal("the script is over and may not end"));
    return false;
  }
  if (masked(run, id)) {
    finish(run, FinishCause::kError, Error::internal("the mask forbids token {} of the script", id));
    return false;
  }
  const auto index = static_cast<int64_t>(run.generated.size());
  run.generated.push_back(id);
  const std::vector<TokenLogprob> top(static_cast<size_t>(std::max(0, request.top_logprobs)),
                                      {id, kScriptedLogprob});
  const bool goes_on = request.sink->on_token(
      {.id = id, .index = index, .is_stop = is_stop(id), .logprob = kScriptedLogprob, .top = top});
  const bool loops = request.loop_guard.mode != LoopGuardMode::kOff && run.guard.take(id);
  if (is_stop(id))
    finish(run, FinishCause::kStopId);
  else if (!goes_on)
    finish(run, FinishCause::kSink);
  else if (loops && request.loop_guard.mode == LoopGuardMode::kStop)
    finish(run, FinishCause::kLoop);
  else
    return true;
  return false;
}

void ScriptedGenerator::finish(Run& run, FinishCause cause, Error error) {
  const Clock::time_point now = Clock::now();
  const bool started = run.phase != SlotStatus::Phase::kIdle, decoding = run.phase == SlotStatus::Phase::kDecode;
  GenerationFinish finish{.cause = cause, .error = std::move(error), .loop = run.guard.report()};
  if (cause == FinishCause::kStopId) finish.stop_id = run.generated.back();
  finish.usage = {.prompt_tokens = static_cast<int64_t>(run.request.prompt.size()),
                  .cached_tokens = run.cached_tokens,
                  .generated_tokens = static_cast<int64_t>(run.generated.size()),
                  .queue_us = micros((started ? run.started : now) - run.submitted),
                  .prefill_us = started ? micros((decoding ? run.decoding : now) - run.started) : 0,
                  .decode_us = decoding ? micros(now - run.decoding) : 0};
  ++statistics_.requests_finished[static_cast<size_t>(cause)];
  statistics_.prompt_tokens += finish.usage.prompt_tokens;
  statistics_.cached_tokens += finish.usage.cached_tokens;
  statistics_.generated_tokens += finish.usage.generated_tokens;
  statistics_.evaluated_tokens += finish.usage.prompt_tokens - finish.usage.cached_tokens;
  statistics_.loops_seen += finish.loop.found;
  if (started) {
    // The last token was sampled, not evaluated.
    std::vector<int32_t> held = run.request.prompt;
    held.insert(held.end(), run.generated.begin(), run.generated.end());
    if (!run.generated.empty()) held.pop_back();
    std::erase(held_, held);
    if (held_.size() == kHeldMax) held_.erase(held_.begin());
    held_.push_back(std::move(held));
  }
  run.request.sink->on_finish(finish);
  finished_.push_back(&run);
}

}  // namespace

Result<std::unique_ptr<Generator>> make_scripted_generator(const std::string& script_json,
                                                           const Tokenizer& tokenizer) {
  FATHOM_ASSIGN(Script script, read_script(script_json, tokenizer));
  return std::unique_ptr<Generator>(std::make_unique<ScriptedGenerator>(std::move(script), tokenizer));
}

}  // namespace fathom
