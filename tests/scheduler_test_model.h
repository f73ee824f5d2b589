// What the scheduler's tests share: a small random model and a sink that records.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/backend.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "model/model.h"


namespace fathom {

using Ids = std::vector<int32_t>;

template <class T>
T unwrap(Result<T> result) {
  FATHOM_CHECK(result.ok(), "{}", result.error().message);
  return std::move(result).value();
}
inline void unwrap(Result<void> result) { FATHOM_CHECK(result.ok(), "{}", result.error().message); }

// A random model of 5 layers, window 16, vocabulary 320, at most 114 tokens; steps of 8 rows.
inline std::unique_ptr<Model> load_model(Backend& backend, int step_rows = 8, int rewind_tokens = 4) {
  return unwrap(Model::load(unwrap(open_pack(FATHOM_SOURCE_DIR "/tests/data/golden/g2_select")), backend,
                            {.step_rows = step_rows,
                             .rewind_tokens = rewind_tokens,
                             .engram_token_map = {},
                             .engram = {}}));
}

// Tokens that depend on their positions only, so that two sequences have a common prefix.
inline Ids ids(int64_t count, int64_t same_until = 1000) {
  Ids tokens;
  for (int64_t position = 0; position < count; ++position)
    tokens.push_back(static_cast<int32_t>((position * 37 + (position >= same_until ? 11 : 5)) % 300));
  return tokens;
}

class Recorder : public GenerationSink {
 public:
  /// Called on the engine's thread with each token; false ends the answer.
  std::function<bool(const GeneratedToken&)> at_token;
  std::function<void(const PrefillProgress&)> at_prefill;

  void on_prefill(const PrefillProgress& progress) override {
    {
      const std::lock_guard lock(mutex_);
      progress_.push_back(progress);
      changed_.notify_all();
    }
    if (at_prefill) at_prefill(progress);
  }
  void on_prompt_logprobs(std::span<const double> logprobs,
                          std::span<const std::vector<TokenLogprob>> top) override {
    const std::lock_guard lock(mutex_);
    prompt_logprobs_.assign(logprobs.begin(), logprobs.end());
    FATHOM_CHECK(top.size() == logprobs.size());
  }
  bool on_token(const GeneratedToken& token) override {
    {
      const std::lock_guard lock(mutex_);
      FATHOM_CHECK(finishes_ == 0 && token.index == static_cast<int64_t>(answer_.size()));
      answer_.push_back(token.id);
      logprobs_.push_back(token.logprob);
      tops_.emplace_back(token.top.begin(), token.top.end());
      changed_.notify_all();
    }
    return !at_token || at_token(token);
  }
  void on_finish(const GenerationFinish& finish) override {
    const std::lock_guard lock(mutex_);
    finish_ = finish;
    ++finishes_;
    changed_.notify_all();
  }

  GenerationFinish wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finishes_ > 0; });
    return finish_;
  }
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answer_.size() >= count || finishes_ > 0; });
  }
  void wait_for_prefill() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !progress_.empty() || finishes_ > 0; });
  }
  Ids answer() {
    const std::lock_guard lock(mutex_);
    return answer_;
  }
  std::vector<double> logprobs() {
    const std::lock_guard lock(mutex_);
    return logprobs_;
  }
  std::vector<std::vector<TokenLogprob>> tops() {
    const std::lock_guard lock(mutex_);
    return tops_;
  }
  std::vector<double> prompt_logprobs() {
    const std::lock_guard lock(mutex_);
    return prompt_logprobs_;
  }
  std::vector<PrefillProgress> progress() {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  int finishes() {
    const std::lock_guard lock(mutex_);
    return finishes_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Ids answer_;
  std::vector<double> logprobs_, prompt_logprobs_;
  std::vector<std::vector<TokenLogprob>> tops_;
  std::vector<PrefillProgress> progress_;
  GenerationFinish finish_;
  int finishes_ = 0;
};

inline GenerationRequest request(Ids prompt, int64_t max_tokens, SamplerOptions sampling = {.temperature = 0}) {
  GenerationRequest made;
  made.prompt = std::move(prompt);
  made.max_tokens = max_tokens;
  made.sampling = std::move(sampling);
  return made;
}

/// Holds the engine's thread until the test says go.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

class SchedulerFixture : public testing::Test {
 protected:
  std::unique_ptr<Scheduler> make(const SchedulerOptions& options) {
    return unwrap(Scheduler::make(*model_, options));
  }
  static SchedulerOptions options(int slots = 4) {
    return {.slots = slots, .context_tokens = 110, .queue_limit = 64, .chunk_rows_min = 2,
            .branch_gap_tokens = 4, .keep_tokens_min = 4, .share_tokens_min = 12};
  }
  static GenerationId submit_id(Scheduler& scheduler, GenerationRequest made, std::shared_ptr<Recorder> sink) {
    made.sink = std::move(sink);
    return unwrap(scheduler.submit(std::move(made)));
  }
  static std::shared_ptr<Recorder> submit(Scheduler& scheduler, GenerationRequest made,
                                          std::shared_ptr<Recorder> sink = std::make_shared<Recorder>()) {
    submit_id(scheduler, std::move(made), sink);
    return sink;
  }
  /// What a session says, one token at a time.
  Ids session_answer(const Ids& prompt, size_t count, SamplerOptions sampling) {
    auto session = unwrap(Session::make(*session_model_, {.context_tokens = 114}));
    unwrap(session->sync(prompt));
    sampling.prompt_tokens = static_cast<int64_t>(prompt.size());
    auto sampler = unwrap(Sampler::make(sampling, model_->config().vocab_size));
    Ids all = prompt;
    while (all.size() < prompt.size() + count) {
      if (all.size() > prompt.size()) unwrap(session->eval(all.back()));
      all.push_back(unwrap(sampler.sample(unwrap(session->logits()), all)));
    }
    return Ids(all.begin() + static_cast<ptrdiff_t>(prompt.size()), all.end());
  }

  std::unique_ptr<Backend> backend_ = unwrap(make_cpu_backend({.thread_count = 2}));
  std::unique_ptr<Model> model_ = load_model(*backend_);  // while a scheduler lives, its own
  std::unique_ptr<Backend> session_backend_ = unwrap(make_cpu_backend({.thread_count = 1}));
  std::unique_ptr<Model> session_model_ = load_model(*session_backend_);
};

}  // namespace fathom
