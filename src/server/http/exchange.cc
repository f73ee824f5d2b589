#include "server/http/exchange.h"

#include "base/check.h"

namespace fathom {
namespace {

constexpr size_t kPartBytes = 64 << 10;  // shorter pieces are put together

class Exchange : public HttpExchange {
 public:
  explicit Exchange(std::shared_ptr<HttpExchangeState> state) : state_(std::move(state)) {}
  ~Exchange() override { state_->drop(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void respond(HttpResponse response) override { state_->respond(std::move(response)); }
  bool try_respond(HttpResponse response) override { return state_->try_respond(std::move(response)); }
  void start_stream(int status, HttpHeaders headers) override { state_->start_stream(status, std::move(headers)); }
  void write(std::string bytes) override { state_->write(std::move(bytes)); }
  void write_from(HttpSource source) override { state_->write_from(std::move(source)); }
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

HttpOutbox HttpExchangeState::take(size_t unsent) {
  std::unique_lock lock(mutex_);
  woken_ = false;
  unsent_ = unsent;
  std::string bytes;
  bool made_some = false;
  while (!parts_.empty() && bytes.size() < room() && !made_some) {
    Part& part = parts_.front();
    if (!part.is_source) {
      parts_bytes_ -= part.bytes.size();
      if (part.counts) owed_bytes_ -= part.bytes.size();
      if (bytes.empty())
        bytes = std::move(part.bytes);
      else
        bytes += part.bytes;
      parts_.pop_front();
      continue;
    }
    HttpSource source = std::move(part.source);
    lock.unlock();
    const std::string made = source();
    made_some = !made.empty();
    if (!made_some) source = nullptr;  // it may hold the last reference to this answer
    lock.lock();
    bytes += made;
    if (made_some)
      part.source = std::move(source);
    else
      parts_.pop_front();
  }
  unsent_ += bytes.size();
  HttpOutbox outbox = std::exchange(outbox_, {});
  outbox.bytes = std::move(bytes);
  // The end comes behind what is still to be sent.
  if (!parts_.empty()) {
    std::swap(outbox_.finished, outbox.finished);
    std::swap(outbox_.aborted, outbox.aborted);
  }
  return outbox;
}

void HttpExchangeState::set_unsent(size_t bytes) {
  std::lock_guard lock(mutex_);
  unsent_ = bytes;
}

void HttpExchangeState::leave() {
  std::function<void()> callback;
  HttpOutbox outbox;
  std::deque<Part> parts;
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    outbox = std::exchange(outbox_, {});
    parts = std::exchange(parts_, {});
    unsent_ = parts_bytes_ = owed_bytes_ = 0;
    callback = std::exchange(gone_callback_, nullptr);
    if (complete_) return;
  }
  if (callback) callback();
}

bool HttpExchangeState::complete() const {
  std::lock_guard lock(mutex_);
  return complete_;
}

bool HttpExchangeState::has_more() const {
  std::lock_guard lock(mutex_);
  return !parts_.empty() && room() > 0;
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

bool HttpExchangeState::try_respond(HttpResponse response) {
  std::unique_lock lock(mutex_);
  if (closed() || streaming_) return false;
  outbox_.response = std::move(response);
  set_complete(std::move(lock));
  return true;
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
  const size_t size = bytes.size();
  // That a client has not read so much at a moment says nothing about how fast it reads.
  const bool counts = size <= ahead_bytes_;
  parts_bytes_ += size;
  if (counts) owed_bytes_ += size;
  const bool merges = counts && !parts_.empty() && !parts_.back().is_source && parts_.back().counts &&
                      parts_.back().bytes.size() + size <= kPartBytes;
  if (merges)
    parts_.back().bytes += bytes;
  else
    parts_.push_back({.bytes = std::move(bytes), .source = {}, .is_source = false, .counts = counts});
  if (owed_bytes_ > pending_bytes_max_) outbox_.too_slow = true;
  wake(std::move(lock));
}

void HttpExchangeState::write_from(HttpSource source) {
  std::unique_lock lock(mutex_);
  if (closed() || outbox_.too_slow) return;
  FATHOM_CHECK(streaming_, "write_from() before start_stream()");
  parts_.push_back({.bytes = {}, .source = std::move(source), .is_source = true, .counts = false});
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
  return unsent_ + parts_bytes_;
}

}  // namespace fathom
