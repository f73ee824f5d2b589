// What a connection and the holders of an HttpExchange share: the answer's parts on their way to the connection,
// and whether the client is still there. It may outlive the connection and the server.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/http/http_server.h"

namespace fathom {

/// Parts of an answer that the connection has not taken yet, in the order of the members.
struct HttpOutbox {
  std::optional<HttpResponse> response;
  std::optional<std::pair<int, HttpHeaders>> stream;
  std::string bytes;
  bool finished = false;
  bool aborted = false;    // or dropped in mid-stream
  bool dropped = false;    // the last reference went before there was any answer
  bool too_slow = false;   // more bytes than the client may leave unread
};

/// Thread-safe.
class HttpExchangeState {
 public:
  /// wake: called from any thread, without locks held, when the outbox has something for the connection.
  HttpExchangeState(size_t pending_bytes_max, std::function<void()> wake)
      : pending_bytes_max_(pending_bytes_max),
        ahead_bytes_(std::max<size_t>(1, pending_bytes_max / 16)),
        wake_(std::move(wake)) {}

  // For the connection.
  /// What comes next: as much as the connection should hold beside the `unsent` bytes it has, and no more than one
  /// piece of a source, so that other connections have their turn.
  HttpOutbox take(size_t unsent);
  void set_unsent(size_t bytes);
  /// The connection has room for more, and there is more.
  bool has_more() const;
  /// Nobody takes the answer any more. The callback is called here, unless the answer was complete.
  void leave();
  bool complete() const;

  // For the holders; see HttpExchange.
  void respond(HttpResponse response);
  bool try_respond(HttpResponse response);
  void start_stream(int status, HttpHeaders headers);
  void write(std::string bytes);
  void write_from(HttpSource source);
  void finish();
  void abort();
  void on_gone(std::function<void()> callback);
  bool gone() const;
  size_t pending_bytes() const;
  void drop();

 private:
  /// Bytes of a stream that wait for the connection, or what makes them.
  struct Part {
    std::string bytes;
    HttpSource source;
    bool is_source = false;
    bool counts = true;
  };
  bool closed() const { return gone_ || complete_; }
  size_t room() const { return unsent_ < ahead_bytes_ ? ahead_bytes_ - unsent_ : 0; }
  /// Unlocks and wakes the connection, once for all that it has not taken.
  void wake(std::unique_lock<std::mutex> lock);
  /// The answer is complete: its callback is of no use any more, and destroyed without the lock.
  void set_complete(std::unique_lock<std::mutex> lock);

  const size_t pending_bytes_max_;
  const size_t ahead_bytes_;  // that the connection holds while there is more
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  HttpOutbox outbox_;           // all but the bytes
  std::deque<Part> parts_;
  size_t parts_bytes_ = 0;      // in all parts
  size_t owed_bytes_ = 0;       // in those that count
  std::function<void()> gone_callback_;
  size_t unsent_ = 0;      // bytes that the connection holds
  bool woken_ = false;
  bool streaming_ = false;
  bool complete_ = false;
  bool gone_ = false;
};

std::shared_ptr<HttpExchange> make_http_exchange(std::shared_ptr<HttpExchangeState> state);

}  // namespace fathom
