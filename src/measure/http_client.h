// HTTP to one server: small JSON requests, and streamed answers whose events carry the time they arrived.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/sse_parser.h"

namespace fathom::measure {

struct HttpClientOptions {
  std::string base_url;  // "http://127.0.0.1:8080"; a "/v1" at its end is dropped, paths have it themselves
  std::string key;       // sent as a bearer token; empty: none
  std::vector<std::string> headers;       // "Name: value"
  size_t event_bytes_max = 64 << 20;      // of one event of a stream
  size_t body_bytes_max = 256 << 20;      // of an answer that is no stream
  std::function<bool()> is_cancelled;     // asked a few times a second while a call waits; empty: never
};

struct HttpCall {
  std::string method = "POST";
  std::string path;  // with a query if there is one
  std::string body;  // JSON text; empty: none
  std::chrono::milliseconds time_limit{60'000};     // of the whole
  std::chrono::milliseconds silence_limit{60'000};  // without one byte from the server
};

struct HttpAnswer {
  long status = 0;
  std::string content_type, body;
};

/// How a stream went. Everything that was seen before an error has been handed over.
struct StreamEnd {
  int64_t sent_ns = 0;   // before the request's first byte, and before connecting if that was needed
  int64_t ended_ns = 0;  // when nothing more was to come
  bool is_done = false;  // "[DONE]" came; it is not handed over as an event
  std::string error;     // empty: the server closed in good order
};

/// Used by one thread. Connections are kept between calls. What went wrong begins with one of: "connection
/// refused", "no connection", "time limit", "silence", "status N", "stream cut", "invalid UTF-8", "event too
/// large", "answer too large", "not JSON", "no stream", "interrupted".
class HttpClient {
 public:
  static Result<std::unique_ptr<HttpClient>> create(HttpClientOptions options);
  virtual ~HttpClient() = default;

  /// Any answer with a 2xx status.
  virtual Result<HttpAnswer> fetch(const HttpCall& call) = 0;
  /// Of a 2xx answer whose body is JSON.
  Result<nlohmann::json> fetch_json(const HttpCall& call);

  /// Events that one read from the network completed share its time, which is taken before anything else is done
  /// with the bytes. `on_event` runs on the caller's thread, between reads: it should only keep what it gets.
  virtual StreamEnd stream(const HttpCall& call, const SseParser::Handler& on_event) = 0;
};

/// What a server says in the body of a refusal: the message in the shapes of error objects that are in use, or the
/// text itself, shortened.
std::string error_message_of(const std::string& body);

}  // namespace fathom::measure
