// For the tests of this folder: a server whose answers the test gives, and a client that is no more than a socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/http_server.h"

namespace fathom {

// Far longer than anything here takes, also on a busy machine under a sanitizer.
inline constexpr std::chrono::seconds kTestPatience{60};

/// One moment that a thread announces and the test waits for.
class TestEvent {
 public:
  void set();
  bool wait();        // false: it did not come within the patience
  bool is_set() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

struct TestCall {
  std::shared_ptr<const HttpRequest> request;
  std::shared_ptr<HttpExchange> exchange;
};

/// Requests for "/wait..." are handed to the test; others are answered at once with "METHOD path?query body".
class TestServer {
 public:
  /// Port 0 is set. The program ends if the server does not start.
  explicit TestServer(HttpOptions options = {}, HttpAdmission admission = nullptr);

  HttpServer& server() { return *server_; }
  void destroy() { server_.reset(); }
  uint16_t port() const { return port_; }
  TestCall next();  // waits; the program ends if none comes
  int calls();      // of the handler, so far

 private:
  void handle(std::shared_ptr<const HttpRequest> request, std::shared_ptr<HttpExchange> exchange);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TestCall> waiting_;
  int calls_ = 0;
  uint16_t port_ = 0;
  std::unique_ptr<HttpServer> server_;  // last: its thread uses the others
};

HttpResponse test_error_body(int status, std::string_view message, std::string_view path);

struct TestResponse {
  int status = 0;  // 0: none came
  HttpHeaders headers;
  std::string body;
  bool whole = false;

  std::string header(std::string_view name) const;
  bool has(std::string_view name) const;
};

/// Moves bytes of a TestClient; TLS in its test.
class TestClient {
 public:
  /// Uses and owns `socket` if it is given.
  explicit TestClient(uint16_t port, const char* address = "127.0.0.1", int socket = -1);
  virtual ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void send(std::string_view bytes);  // stops without complaint when the server has closed
  /// One answer; `head`: it has no body whatever its headers say.
  TestResponse receive(bool head = false);
  TestResponse ask(std::string_view bytes);
  std::string receive_bytes(size_t count);  // fewer if the connection ends
  std::string receive_all();                // until the connection ends
  std::string receive_until(std::string_view end);
  bool ended();                             // waits; true if the server has closed and sent nothing before
  bool readable(std::chrono::milliseconds within);
  void half_close();
  void close();
  void reset();                             // closes so that the server's network is told of an error
  int socket() const { return socket_; }

 protected:
  virtual long receive_some(char* to, size_t size);
  virtual long send_some(const char* from, size_t size);
  bool fill();

  int socket_ = -1;
  std::string input_;
};

std::string test_get(std::string_view path, std::string_view extra_headers = "");
std::string test_post(std::string_view path, std::string_view body, std::string_view extra_headers = "");

}  // namespace fathom
