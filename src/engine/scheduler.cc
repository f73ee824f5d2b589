#include "engine/scheduler.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "engine/prompt_tokens.h"
#include "engine/scheduler_core.h"

namespace fathom {

// The threads' side: what may come, what is known of it, and the engine's thread.
struct Scheduler::Impl {
  Impl(Model& used_model, const SchedulerOptions& given) : model(used_model), options(given) {}

  Model& model;
  const SchedulerOptions options;
  std::unique_ptr<SchedulerCore> core;  // of the engine's thread
  std::thread thread;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::shared_ptr<Job>> arrived;  // not yet seen by the engine's thread
  std::unordered_map<GenerationId, std::shared_ptr<Job>> live;
  int64_t queued = 0, running = 0, refused = 0;
  GenerationId last_id = 0;
  bool closing = false;
  GenerationClock::time_point last_moment = GenerationClock::time_point::max();
  bool has_news = false;       // something for the engine's thread to look at
  GeneratorStatus published;   // slots and statistics
  std::mutex join_mutex;

  Result<void> check(const GenerationRequest& request) const;
  Result<void> check_prompt(const GenerationRequest& request) const;
  void start();
  void run();
  bool take_news();
  void publish();
};

// ---- Requests ----

Result<void> Scheduler::Impl::check_prompt(const GenerationRequest& request) const {
  FATHOM_TRY(check_prompt_tokens(request.prompt, model.config()));
  const auto count = static_cast<int64_t>(request.prompt.size());
  if (count > options.context_tokens)
    return Error::context_full("the prompt has {} tokens, the context holds {}", count, options.context_tokens);
  if (count == options.context_tokens && request.max_tokens != 0)
    return Error::context_full("the prompt has {} tokens, the context holds {}: there is no room for an answer",
                               count, options.context_tokens);
  return {};
}

Result<void> Scheduler::Impl::check(const GenerationRequest& request) const {
  const int32_t vocab = model.config().vocab_size;
  if (request.sink == nullptr) return Error::invalid("a request needs a sink");
  FATHOM_TRY(check_prompt(request));
  if (request.max_tokens < -1)
    return Error::invalid("max_tokens: expected -1 or more, found {}", request.max_tokens);
  if (request.min_tokens < 0)
    return Error::invalid("min_tokens: expected 0 or more, found {}", request.min_tokens);
  for (const int32_t id : request.stop_ids)
    if (id < 0 || id >= vocab) return Error::invalid("stop id {}: expected 0 to {}", id, vocab - 1);
  if (request.top_logprobs < -1 || request.top_logprobs > vocab)
    return Error::invalid("top_logprobs: expected -1 to {}, found {}", vocab, request.top_logprobs);
  return Sampler::check(request.sampling, vocab);
}

Result<GenerationId> Scheduler::submit(GenerationRequest request) {
  Impl& impl = *impl_;
  FATHOM_TRY(impl.check(request));
  const GenerationClock::time_point now = GenerationClock::now();
  const std::lock_guard lock(impl.mutex);
  if (impl.closing) return Error::state("the engine is being closed and takes no more requests");
  if (impl.queued + impl.running >= impl.options.queue_limit + impl.options.slots) {
    ++impl.refused;
    return Error::busy("{} requests run and {} wait already: expected at most {} and {}", impl.running,
                       impl.queued, impl.options.slots, impl.options.queue_limit);
  }
  const GenerationId id = ++impl.last_id;
  auto job = std::make_shared<Job>(id, std::move(request), now);
  impl.live.emplace(id, job);
  impl.arrived.push_back(std::move(job));
  ++impl.queued;
  impl.has_news = true;
  impl.wake.notify_one();
  return id;
}

void Scheduler::cancel(GenerationId id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->live.find(id);
  if (found == impl_->live.end()) return;
  found->second->cancelled.store(true, std::memory_order_relaxed);
  impl_->has_news = true;
  impl_->wake.notify_one();
}

GeneratorStatus Scheduler::status() const {
  const std::lock_guard lock(impl_->mutex);
  GeneratorStatus status = impl_->published;
  status.queued_requests = impl_->queued;
  status.queue_limit = impl_->options.queue_limit;
  status.context_tokens = impl_->options.context_tokens;
  status.vocab_size = impl_->model.config().vocab_size;
  status.accepts_requests = !impl_->closing;
  status.statistics.requests_refused = impl_->refused;
  return status;
}

// ---- The engine's thread ----

void Scheduler::Impl::start() {
  core->set_hooks({.publish = [this] { publish(); },
                   .ended =
                       [this](const Job& job, bool was_running) {
                         const std::lock_guard lock(mutex);
                         --(was_running ? running : queued);
                         live.erase(job.id);
                       },
                   .admitted =
                       [this](const Job&) {
                         const std::lock_guard lock(mutex);
                         --queued;
                         ++running;
                       },
                   .wake =
                       [this] {
                         const std::lock_guard lock(mutex);
                         has_news = true;
                         wake.notify_one();
                       }});
  publish();
  thread = std::thread([this] { run(); });
}

void Scheduler::Impl::publish() {
  const std::lock_guard lock(mutex);
  core->describe(published);
}

// False: there is nothing to do any more, ever.
bool Scheduler::Impl::take_news() {
  std::vector<std::shared_ptr<Job>> jobs;
  bool is_last_call = false;
  {
    const std::lock_guard lock(mutex);
    jobs.swap(arrived);
    has_news = false;
    is_last_call = closing;
    core->set_last_moment(last_moment);
  }
  for (std::shared_ptr<Job>& job : jobs) core->enqueue(std::move(job));
  return !is_last_call || core->has_work();
}

void Scheduler::Impl::run() {
  while (take_news()) {
    if (core->round()) continue;
    std::unique_lock lock(mutex);
    const GenerationClock::time_point until = core->next_deadline();
    const auto is_awake = [this] { return has_news || (closing && !core->has_work()); };
    if (until == GenerationClock::time_point::max()) {
      wake.wait(lock, is_awake);
    } else {
      wake.wait_until(lock, until, is_awake);
    }
  }
  core->close();
  publish();
}

void Scheduler::shutdown(GenerationClock::time_point deadline) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->closing = true;
    impl_->last_moment = std::min(impl_->last_moment, deadline);
    impl_->has_news = true;
    impl_->wake.notify_one();
  }
  const std::lock_guard lock(impl_->join_mutex);
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<Scheduler>> Scheduler::make(Model& model, const SchedulerOptions& options,
                                                   DiskCache* disk) {
  auto impl = std::make_unique<Impl>(model, options);
  FATHOM_ASSIGN(impl->core, SchedulerCore::make(model, options, disk));
  impl->start();
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(impl)));
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::~Scheduler() { shutdown(GenerationClock::now()); }

}  // namespace fathom
