#include "server/service.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "base/sha256.h"
#include "server/responses_store.h"

namespace fathom {
namespace {

struct Route {
  std::string_view method;
  std::string_view path;  // ends in "/" if something follows it
  Endpoint endpoint;
  bool is_public = false;  // needs no key
  bool is_quick = false;   // answered at once, on the thread of the connections
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", post_chat_completions},
    {"POST", "/v1/completions", post_completions},
    {"POST", "/v1/responses", post_responses},
    {"GET", "/v1/responses/", get_response, false, true},
    {"DELETE", "/v1/responses/", delete_response, false, true},
    {"POST", "/v1/messages", post_messages},
    {"POST", "/v1/messages/count_tokens", post_count_tokens},
    {"GET", "/v1/models", get_models, false, true},
    {"GET", "/v1/models/", get_model, false, true},
    {"POST", "/v1/cancel/", post_cancel, false, true},
    {"POST", "/tokenize", post_tokenize},
    {"POST", "/detokenize", post_detokenize},
    {"POST", "/apply-template", post_apply_template},
    {"GET", "/health", get_health, true, true},
    {"GET", "/metrics", get_metrics, false, true},
    {"GET", "/slots", get_slots, false, true},
    {"GET", "/props", get_props, false, true},
    {"GET", "/", get_page, true, true},
    {"GET", "/assets/", get_page, true, true},
};

bool matches(std::string_view route, std::string_view path) {
  if (route == "/" || !route.ends_with('/')) return path == route;
  return path.size() > route.size() && path.starts_with(route);
}

// What follows /v1/responses/ID is a path of its own, which does not exist.
bool is_one_segment(const Route& route, std::string_view path) {
  if (!route.path.ends_with('/') || route.path == "/") return true;
  return path.substr(route.path.size()).find('/') == std::string_view::npos || route.path == "/v1/models/";
}

struct Found {
  const Route* route = nullptr;
  std::string allowed;  // methods of the path, if it is known
};

Found find_route(const HttpRequest& request) {
  Found found;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, request.path) || !is_one_segment(route, request.path)) continue;
    if (route.method == request.method) found.route = &route;
    found.allowed.append(found.allowed.empty() ? "" : ", ").append(route.method);
    if (route.method == "GET") found.allowed += ", HEAD";
  }
  return found;
}

// Compares digests: neither the time nor anything else tells how much of a key is right.
bool is_one_of(std::string_view key, const std::vector<std::string>& keys) {
  const auto digest = [](std::string_view text) { return sha256(std::as_bytes(std::span(text))); };
  const auto given = digest(key);
  bool found = false;
  for (const std::string& known : keys) {
    const auto other = digest(known);
    unsigned difference = 0;
    for (size_t byte = 0; byte < given.size(); ++byte) difference |= unsigned{given[byte]} ^ other[byte];
    found |= difference == 0;
  }
  return found;
}

std::string_view key_of(const HttpRequest& request) {
  std::string_view authorization = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size()) {
    const std::string_view scheme = authorization.substr(0, kBearer.size());
    const bool is_bearer = std::equal(scheme.begin(), scheme.end(), kBearer.begin(),
                                      [](char a, char b) { return (a | 0x20) == (b | 0x20); });
    if (is_bearer) return authorization.substr(kBearer.size());
  }
  return request.header("x-api-key");
}

}  // namespace

// ---- What endpoints share ----

namespace {

size_t find_longest_token_bytes(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  return longest;
}

}  // namespace

ServiceContext::ServiceContext(Generator& the_generator, const Tokenizer& the_tokenizer, ModelCard model_card,
                               const ServiceOptions& service_options)
    : generator(the_generator),
      tokenizer(the_tokenizer),
      card(std::move(model_card)),
      options(service_options),
      compiler(the_tokenizer),
      memory(the_tokenizer, service_options.turn_memory_ids),
      responses(std::make_shared<ResponseStore>()),
      longest_token_bytes(find_longest_token_bytes(the_tokenizer)) {}

void ServiceContext::keep_alive(const std::shared_ptr<EventStream>& stream) {
  const std::lock_guard lock(streams_mutex_);
  streams_.push_back(stream);
}

void ServiceContext::beat() {
  std::vector<std::shared_ptr<EventStream>> held;
  {
    const std::lock_guard lock(streams_mutex_);
    std::erase_if(streams_, [](const std::weak_ptr<EventStream>& stream) { return stream.expired(); });
    for (const std::weak_ptr<EventStream>& stream : streams_)
      if (auto locked = stream.lock()) held.push_back(std::move(locked));
  }
  for (const std::shared_ptr<EventStream>& stream : held) stream->beat(options.keep_alive_interval);
}

// ---- Workers ----

namespace {

constexpr size_t kTasksMax = 1024;  // whose bodies are held until a worker is free

struct Task {
  std::shared_ptr<const HttpRequest> request;
  std::shared_ptr<HttpExchange> exchange;
  Endpoint endpoint;
};

void run(const Task& task, ServiceContext& context) {
  if (task.exchange->gone()) return;
  const ApiFamily family = family_of(task.request->path);
  try {
    const Result<void> result = task.endpoint(context, *task.request, task.exchange);
    if (!result.ok()) task.exchange->respond(ApiError::from(result.error()).response(family));
  } catch (const std::exception& error) {  // out of memory, or a bug: the server goes on
    log_warning("{} {}: {}", task.request->method, task.request->path, error.what());
    task.exchange->respond(ApiError::make(500, "the server failed on this request").response(family));
  }
}

}  // namespace

/// Parsing and rendering a long conversation takes tens of milliseconds, which the threads that serve connections
/// must not spend.
struct Service::Workers {
  Workers(ServiceContext& context, int count) : context_(context) {
    for (int worker = 0; worker < count; ++worker) threads_.emplace_back([this] { work(); });
    threads_.emplace_back([this] { keep_beating(); });
    threads_.emplace_back([this] { run_ends(); });
    context_.run_end = [this](std::function<void()> end) {
      const std::lock_guard lock(mutex_);
      ends_.push_back(std::move(end));
      ended_.notify_one();
    };
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    stopped_.notify_all();
    ended_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(Task task) {
    std::unique_lock lock(mutex_);
    if (ended_for_good_) {
      lock.unlock();
      return refuse(task, "the server is ending");
    }
    if (tasks_.size() < kTasksMax) {
      tasks_.push_back(std::move(task));
      lock.unlock();
      changed_.notify_one();
      return;
    }
    lock.unlock();
    refuse(task, "too many requests wait to be read");
  }

  void end() {
    std::vector<Task> left;
    {
      const std::lock_guard lock(mutex_);
      ended_for_good_ = true;
      left = at_work_;
      std::move(tasks_.begin(), tasks_.end(), std::back_inserter(left));
      tasks_.clear();
    }
    for (const Task& task : left) refuse(task, "the server is ending");
  }

 private:
  void work() {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
        if (stopping_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        at_work_.push_back(task);
      }
      run(task, context_);
      const std::lock_guard lock(mutex_);
      std::erase_if(at_work_, [&](const Task& other) { return other.exchange == task.exchange; });
    }
  }

  static void refuse(const Task& task, std::string_view why) {
    task.exchange->try_respond(ApiError::make(503, why).response(family_of(task.request->path)));
  }

  // To the last one: their clients wait.
  void run_ends() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ended_.wait(lock, [this] { return stopping_ || !ends_.empty(); });
      if (ends_.empty()) return;
      const std::function<void()> end = std::move(ends_.front());
      ends_.pop_front();
      lock.unlock();
      end();
      lock.lock();
    }
  }

  void keep_beating() {
    const auto pause = std::clamp(context_.options.keep_alive_interval / 4, std::chrono::milliseconds(10),
                                  std::chrono::milliseconds(1000));
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, pause, [this] { return stopping_; })) {
      lock.unlock();
      context_.beat();
      lock.lock();
    }
  }

  ServiceContext& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable stopped_;  // its own: a task's wake-up must reach a worker
  std::condition_variable ended_;
  bool stopping_ = false;
  bool ended_for_good_ = false;  // no task has a use any more
  std::deque<Task> tasks_;
  std::vector<Task> at_work_;
  std::deque<std::function<void()>> ends_;  // of whole answers
  std::vector<std::thread> threads_;
};

// ---- Service ----

Service::Service(Generator& generator, const Tokenizer& tokenizer, ModelCard card, ServiceOptions options)
    : context_(generator, tokenizer, std::move(card), options),
      workers_(std::make_unique<Workers>(context_, options.workers)) {}

Service::~Service() = default;

void Service::end() { workers_->end(); }

std::optional<HttpResponse> Service::admit(const HttpRequest& request) const {
  const ApiFamily family = family_of(request.path);
  const Found found = find_route(request);
  if (found.route == nullptr && found.allowed.empty())
    return ApiError::make(404, "there is nothing at " + request.path).response(family);
  if (found.route == nullptr) {
    HttpResponse response =
        ApiError::make(405, request.path + " answers to " + found.allowed + " only").response(family);
    response.headers.emplace_back("Allow", found.allowed);
    return response;
  }
  const std::vector<std::string>& keys = context_.options.api_keys;
  if (keys.empty() || found.route->is_public) return std::nullopt;
  const std::string_view key = key_of(request);
  if (is_one_of(key, keys)) return std::nullopt;
  ApiError error = ApiError::make(401, key.empty() ? "this server wants an API key, none was given"
                                                   : "this API key is not one of the server's");
  error.code = "invalid_api_key";
  return error.response(family);
}

void Service::handle(std::shared_ptr<const HttpRequest> request, std::shared_ptr<HttpExchange> exchange) {
  const Found found = find_route(*request);
  if (found.route == nullptr) {  // admit() said no already
    exchange->respond(
        ApiError::make(404, "there is nothing at " + request->path).response(family_of(request->path)));
    return;
  }
  Task task{std::move(request), std::move(exchange), found.route->endpoint};
  // Whoever asks how the server is, or cancels, does not wait behind those who ask for much.
  if (found.route->is_quick)
    run(task, context_);
  else
    workers_->add(std::move(task));
}

HttpResponse Service::error_body(int status, std::string_view message, std::string_view path) {
  return ApiError::make(status, message).response(family_of(path));
}

}  // namespace fathom
