// A stream of server-sent events to one client, fed from the engine's thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"
#include "server/json_fields.h"

namespace fathom {

/// Any thread. What is written before open() is kept until then: answers may begin before the request is known to
/// be accepted as a whole.
class EventStream {
 public:
  EventStream(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers);

  /// Status 200 and the headers, at once.
  void open();
  /// `data: {...}`, with `event: name` in front unless the name is empty.
  void send(const Json& data, std::string_view event = {});
  /// Events that are made as the client takes them, until there is none; what is sent later comes behind. `next`
  /// is called on a thread of the HTTP server.
  void send_from(std::function<std::optional<Json>()> next);
  /// `data: [DONE]` and other literal data.
  void send_text(std::string_view data);
  /// A line that clients skip; shows that the server lives.
  void comment(std::string_view text);
  void close();
  /// Sends `keep_alive()` if nothing was sent for `interval`.
  void beat(std::chrono::milliseconds interval);
  /// What beat() sends; a comment unless set. Called with no lock held.
  void set_keep_alive(std::function<void(EventStream&)> keep_alive) { keep_alive_ = std::move(keep_alive); }

 private:
  void put(std::string text);
  void write(std::function<void()> write);

  std::shared_ptr<HttpExchange> exchange_;
  HttpHeaders headers_;
  std::function<void(EventStream&)> keep_alive_;
  std::mutex mutex_;
  std::vector<std::function<void()>> waiting_;  // writes before open()
  bool open_ = false, closed_ = false;
  std::chrono::steady_clock::time_point last_sent_ = std::chrono::steady_clock::now();
};

}  // namespace fathom
