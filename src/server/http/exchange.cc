#include "server/http/exchange.h"

#include "base/check.h"

namespace fathom {
namespace {

class Exchange : public HttpExchange {
 public:
  explicit Exchange(std::shared_ptr<HttpExchangeState> state) : state_(std::move(state)) {}
  ~Exchange() override { state_->drop(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void respond(HttpResponse response) override { state_->respond(std::move(response)); }
  void start_stream(int status, HttpHeaders headers) override { state_->start_stream(status, std::move(headers)); }
  void write(std::string bytes) override { state_->write(std::move(bytes)); }
  void finish() override { state_->finish(); }
  void abort() override { state_->abort(); }
  void on_gone(std::function<void()> callback) override { state_->on_gone(std::move(callback)); }
  bool gone() const override { return state_->gone(); }
  size_t pending_bytes() const override { return state_->pending_bytes(); }

 private:
  std::shared_ptr<HttpExchangeState> state_;
};

}  // namespace

std::shared_ptr<HttpExchange> make_http_exchange(std::shared_ptr<HttpExchangeState> state) {
  return std::make_shared<Exchange>(std::move(state));
}

HttpOutbox HttpExchangeState::take() {
  std::lock_guard lock(mutex_);
  woken_ = false;
  unsent_ += outbox_.bytes.size();
  return std::exchange(outbox_, {});
}

void HttpExchangeState::set_unsent(size_t bytes) {
  std::lock_guard lock(mutex_);
  unsent_ = bytes;
}

void HttpExchangeState::leave() {
  std::function<void()> callback;
  HttpOutbox outbox;
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    outbox = std::exchange(outbox_, {});
    unsent_ = 0;
    callback = std::exchange(gone_callback_, nullptr);
    if (complete_) return;
  }
  if (callback) callback();
}

bool HttpExchangeState::complete() const {
  std::lock_guard lock(mutex_);
  return complete_;
}

void HttpExchangeState::wake(std::unique_lock<std::mutex> lock) {
  const bool needed = !std::exchange(woken_, true);
  lock.unlock();
  if (needed) wake_();
}

void HttpExchangeState::set_complete(std::unique_lock<std::mutex> lock) {
  complete_ = true;
  const std::function<void()> callback = std::exchange(gone_callback_, nullptr);
  wake(std::move(lock));
}

void HttpExchangeState::respond(HttpResponse response) {
  std::unique_lock lock(mutex_);
  if (closed()) return;
  FATHOM_CHECK(!streaming_, "respond() in a stream");
  outbox_.response = std::move(response);
  set_complete(std::move(lock));
}

void HttpExchangeState::start_stream(int status, HttpHeaders headers) {
  std::unique_lock lock(mutex_);
  if (closed()) return;
  FATHOM_CHECK(!streaming_, "the stream was started already");
  streaming_ = true;
  outbox_.stream.emplace(status, std::move(headers));
  wake(std::move(lock));
}

void HttpExchangeState::write(std::string bytes) {
  std::unique_lock lock(mutex_);
  if (closed() || bytes.empty() || outbox_.too_slow) return;
  FATHOM_CHECK(streaming_, "write() before start_stream()");
  if (outbox_.bytes.empty())
    outbox_.bytes = std::move(bytes);
  else
    outbox_.bytes += bytes;
  if (unsent_ + outbox_.bytes.size() > pending_bytes_max_) outbox_.too_slow = true;
  wake(std::move(lock));
}

void HttpExchangeState::finish() {
  std::unique_lock lock(mutex_);
  if (closed() || outbox_.too_slow) return;
  FATHOM_CHECK(streaming_, "finish() before start_stream()");
  outbox_.finished = true;
  set_complete(std::move(lock));
}

void HttpExchangeState::abort() {
  std::unique_lock lock(mutex_);
  if (closed() || outbox_.too_slow) return;
  outbox_.aborted = true;
  set_complete(std::move(lock));
}

void HttpExchangeState::drop() {
  std::unique_lock lock(mutex_);
  if (closed() || outbox_.too_slow) return;
  (streaming_ ? outbox_.aborted : outbox_.dropped) = true;
  set_complete(std::move(lock));
}

void HttpExchangeState::on_gone(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (complete_) return;
    if (!gone_) {
      FATHOM_CHECK(!gone_callback_, "on_gone() was set already");
      gone_callback_ = std::move(callback);
      return;
    }
  }
  if (callback) callback();
}

bool HttpExchangeState::gone() const {
  std::lock_guard lock(mutex_);
  return gone_ || outbox_.too_slow;
}

size_t HttpExchangeState::pending_bytes() const {
  std::lock_guard lock(mutex_);
  return unsent_ + outbox_.bytes.size();
}

}  // namespace fathom
