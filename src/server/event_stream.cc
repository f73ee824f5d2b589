#include "server/event_stream.h"

namespace fathom {
namespace {

std::string event_text(const Json& data, std::string_view event) {
  std::string text;
  if (!event.empty()) text.append("event: ").append(event).append("\n");
  text.append("data: ").append(json_line(data)).append("\n\n");
  return text;
}

}  // namespace

EventStream::EventStream(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers)
    : exchange_(std::move(exchange)), headers_(std::move(headers)) {
  headers_.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  headers_.emplace_back("Cache-Control", "no-store");
  // Proxies that collect answers would hold back the stream.
  headers_.emplace_back("X-Accel-Buffering", "no");
}

void EventStream::open() {
  const std::lock_guard lock(mutex_);
  if (open_) return;
  open_ = true;
  exchange_->start_stream(200, std::move(headers_));
  for (const std::function<void()>& write : std::exchange(waiting_, {})) write();
  if (closed_) exchange_->finish();
}

void EventStream::write(std::function<void()> write) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  last_sent_ = std::chrono::steady_clock::now();
  if (open_)
    write();
  else
    waiting_.push_back(std::move(write));
}

void EventStream::put(std::string text) {
  write([this, text = std::move(text)]() mutable { exchange_->write(std::move(text)); });
}

void EventStream::send(const Json& data, std::string_view event) { put(event_text(data, event)); }

void EventStream::send_from(std::function<std::optional<Json>()> next) {
  write([this, next = std::move(next)]() mutable {
    exchange_->write_from([next = std::move(next)] {
      const std::optional<Json> data = next();
      return data ? event_text(*data, "") : std::string();
    });
  });
}

void EventStream::send_text(std::string_view data) {
  put(std::string("data: ").append(data).append("\n\n"));
}

void EventStream::comment(std::string_view text) { put(std::string(": ").append(text).append("\n\n")); }

void EventStream::close() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  if (open_) exchange_->finish();
}

void EventStream::beat(std::chrono::milliseconds interval) {
  {
    const std::lock_guard lock(mutex_);
    if (!open_ || closed_ || std::chrono::steady_clock::now() - last_sent_ < interval) return;
  }
  if (keep_alive_)
    keep_alive_(*this);
  else
    comment("waiting");
}

}  // namespace fathom
