// HTTP/1.1 over TCP or TLS: connections, limits, streams. Knows nothing of models.
//
// Boost stays inside this folder; this header is plain C++.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fathom {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "POST"; HEAD is told as "GET", its answer's body is not sent
  std::string path;     // "/v1/models", percent-decoded, without query; always begins with "/"
  std::string query;    // as received, without "?"
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string peer;     // "127.0.0.1:51234"

  /// "" if absent; `name` in lower case.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // content-type and others; lengths, date and connection are the server's
  std::string body;
};

/// Makes the next piece of a stream; an empty one: that was all.
using HttpSource = std::function<std::string()>;

/// One request's answer: either respond(), or start_stream(), write()... and finish(). Calls may come from any
/// thread and never block; they do nothing after the client has left or the answer was completed by respond(),
/// finish() or abort(). The order is the caller's duty: write() before start_stream() is checked and ends the
/// program. When the last reference goes before an answer was complete, the client gets 500, or its stream is cut
/// without the final chunk. May outlive the server.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual void respond(HttpResponse response) = 0;
  /// respond(), unless an answer has begun; whether it was said. For those who are not the answer's maker.
  virtual bool try_respond(HttpResponse response) = 0;
  /// Sends status and headers at once.
  virtual void start_stream(int status, HttpHeaders headers) = 0;
  virtual void write(std::string bytes) = 0;
  /// Pieces that are made as the client takes them; what is written later comes behind. The source is called on a
  /// thread of the server, must not block, and should make some 100 KiB at a time. It may hold this exchange: it
  /// is destroyed when it has ended or the client has left.
  virtual void write_from(HttpSource source) = 0;
  virtual void finish() = 0;
  /// Cuts the connection without the final chunk, after what was written: the client sees that it is not whole.
  virtual void abort() = 0;
  /// Called once, on a thread of the server, if the client leaves or is too slow before the answer is complete; at
  /// once, on the calling thread, if that has happened already. Set at most once. It may hold this exchange: it is
  /// destroyed when it was called or the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
  /// Bytes written and not yet taken by the network.
  virtual size_t pending_bytes() const = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address or a name; "::" and "0.0.0.0" listen everywhere
  uint16_t port = 8080;            // 0: any free one
  std::string tls_certificate_path, tls_key_path;  // PEM; both or none
  std::vector<std::string> cors_origins;           // allowed origins, "*" for all; empty: no CORS headers at all
  size_t header_bytes_max = 64 << 10;
  size_t body_bytes_max = size_t{64} << 20;
  size_t bodies_bytes_max = size_t{1} << 30;       // of all requests that are read or held at a time; beyond: 503
  size_t pending_bytes_max = size_t{16} << 20;     // of one stream whose client does not read; see serve_http.md
  int connections_max = 10000;  // beyond, the longest idle one is closed, or 503 said to the new one
  std::chrono::milliseconds header_timeout{10000};  // first byte of a request -> end of its headers
  std::chrono::milliseconds body_timeout{60000};    // end of headers -> end of body
  std::chrono::milliseconds idle_timeout{300000};   // between requests of a connection
  std::chrono::milliseconds write_timeout{60000};   // no byte taken by the client
};

/// Runs on a thread of the server and must not block for long.
using HttpHandler = std::function<void(std::shared_ptr<const HttpRequest>, std::shared_ptr<HttpExchange>)>;
/// Looks at a request before its body is read (`body` is empty). A response refuses it.
using HttpAdmission = std::function<std::optional<HttpResponse>(const HttpRequest&)>;
/// Makes the body of errors that the server itself answers (400, 408, 413, 417, 431, 500, 501, 503, 505): status,
/// a sentence, and the request's path, empty if it could not be read.
using HttpErrorBody = std::function<HttpResponse(int status, std::string_view message, std::string_view path)>;

class HttpServer {
 public:
  /// Listens when it returns. kIo: the address is taken or not to be had; kInvalidArgument: an option, a
  /// certificate that does not load.
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, HttpHandler handler,
                                                   HttpAdmission admission, HttpErrorBody error_body);
  /// Calls stop() with no patience.
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;
  virtual int connections() const = 0;
  /// Accepts no more connections, closes idle ones, lets running answers finish for `patience`, then closes all.
  /// Returns when no handler and no on_gone() callback runs and none will. Not from a thread of the server.
  virtual void stop(std::chrono::milliseconds patience) = 0;
};

}  // namespace fathom
