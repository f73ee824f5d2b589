// For tests: a service that plays a script, and requests whose answers are recorded instead of sent.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "server/scripted_generator.h"
#include "server/service.h"

namespace fathom {

// What scripted models say: the end of a turn, and a call in its block.
inline const std::string kEos = "<｜end▁of▁sentence｜>";
inline const std::string kOpenCalls = "\n\n<｜DSML｜ calls>\n";
inline const std::string kWeather =
    "<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"city\" string=\"true\">Paris \"<&>\"\n2</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n";
inline const std::string kCloseCalls = "</｜DSML｜ calls>";

/// Records an answer; wait() returns when it is complete, or cut.
class TestExchange : public HttpExchange {
 public:
  void respond(HttpResponse response) override { try_respond(std::move(response)); }
  bool try_respond(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    if (done_ || status_ != 0) return false;
    status_ = response.status;
    headers_ = std::move(response.headers);
    body_ = std::move(response.body);
    end(true);
    return true;
  }
  void start_stream(int status, HttpHeaders headers) override {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    status_ = status;
    headers_ = std::move(headers);
    changed_.notify_all();
  }
  void write(std::string bytes) override {
    const std::lock_guard lock(mutex_);
    if (!done_) body_ += bytes;
    changed_.notify_all();
  }
  void write_from(HttpSource source) override {
    for (std::string piece = source(); !piece.empty(); piece = source()) write(std::move(piece));
  }
  void finish() override {
    const std::lock_guard lock(mutex_);
    end(true);
  }
  void abort() override {
    const std::lock_guard lock(mutex_);
    end(false);
  }
  void on_gone(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    on_gone_ = std::move(callback);
  }
  bool gone() const override { return gone_; }
  size_t pending_bytes() const override { return 0; }

  /// As if the client had closed the connection.
  void leave() {
    gone_ = true;
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      callback = on_gone_;
    }
    if (callback) callback();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  /// Until `text` was written or the answer is complete.
  void wait_for(std::string_view text) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ || body_.find(text) != std::string::npos; });
  }
  int status() const { return status_; }
  bool whole() const { return whole_; }
  const std::string& body() const { return body_; }
  Json json() const { return Json::parse(body_, nullptr, false); }
  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers_)
      if (key == name) return value;
    return "";
  }

 private:
  void end(bool whole) {
    if (!done_) whole_ = whole;
    done_ = true;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> gone_ = false;
  bool done_ = false, whole_ = false;
  std::atomic<int> status_ = 0;
  HttpHeaders headers_;
  std::string body_;
  std::function<void()> on_gone_;
};

/// One event of a stream: `event:` and `data:`.
struct TestEvent {
  std::string name;
  std::string text;
  Json json() const { return Json::parse(text, nullptr, false); }
};
inline std::vector<TestEvent> read_events(const std::string& body) {
  std::vector<TestEvent> events;
  TestEvent event;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find('\n', begin);
    const std::string line = body.substr(begin, end - begin);
    begin = end == std::string::npos ? body.size() : end + 1;
    if (line.starts_with("event: ")) event.name = line.substr(7);
    if (line.starts_with("data: ")) event.text = line.substr(6);
    if (line.empty() && !event.text.empty()) events.push_back(std::exchange(event, {}));
  }
  return events;
}

inline const Tokenizer& test_tokenizer() {
  static const Tokenizer tokenizer = [] {
    Result<Tokenizer> loaded = Tokenizer::load(FATHOM_SOURCE_DIR "/models/mini/tokenizer.json");
    FATHOM_CHECK(loaded.ok(), "{}", loaded.error().message);
    return std::move(loaded).value();
  }();
  return tokenizer;
}

/// A service over a script: {"answers": [...]} of docs/testing_serve.md.
class TestService {
 public:
  explicit TestService(const Json& script, ServiceOptions options = {}) {
    Result<std::unique_ptr<Generator>> made = make_scripted_generator(script.dump(), test_tokenizer());
    FATHOM_CHECK(made.ok(), "{}", made.error().message);
    generator_ = std::move(made).value();
    ModelCard card;
    card.name = "mini";
    card.fingerprint = std::string(64, 'a');
    card.context_tokens = generator_->status().context_tokens;
    service_ = std::make_unique<Service>(*generator_, test_tokenizer(), card, std::move(options));
  }

  /// As the server does: what the generator still holds of requests refers to the service.
  ~TestService() { generator_->shutdown(GenerationClock::now()); }

  Generator& generator() { return *generator_; }
  Service& service() { return *service_; }

  /// Sends a request on its way.
  std::shared_ptr<TestExchange> start(std::string method, std::string path, std::string body,
                                      HttpHeaders headers = {}) {
    auto request = std::make_shared<HttpRequest>();
    request->method = std::move(method);
    request->path = std::move(path);
    request->body = std::move(body);
    request->headers = std::move(headers);
    auto exchange = std::make_shared<TestExchange>();
    if (std::optional<HttpResponse> refused = service_->admit(*request))
      exchange->respond(std::move(*refused));
    else
      service_->handle(request, exchange);
    return exchange;
  }
  /// And waits for the whole answer.
  std::shared_ptr<TestExchange> post(std::string path, const Json& body) {
    auto exchange = start("POST", std::move(path), body.dump());
    exchange->wait();
    return exchange;
  }
  std::shared_ptr<TestExchange> get(std::string path) {
    auto exchange = start("GET", std::move(path), "");
    exchange->wait();
    return exchange;
  }

 private:
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<Service> service_;
};

}  // namespace fathom
