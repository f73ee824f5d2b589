// Definitions of testing.h; they belong to the test program, not to the library.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "server/http/http_parser.h"
#include "server/http/testing.h"

namespace fathom {

void TestEvent::set() {
  std::lock_guard lock(mutex_);
  set_ = true;
  changed_.notify_all();
}

bool TestEvent::wait() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kTestPatience, [&] { return set_; });
}

bool TestEvent::is_set() const {
  std::lock_guard lock(mutex_);
  return set_;
}

HttpResponse test_error_body(int status, std::string_view message, std::string_view path) {
  return {status, {{"content-type", "text/plain"}, {"x-path", std::string(path)}}, std::string(message)};
}

TestServer::TestServer(HttpOptions options, HttpAdmission admission) {
  options.port = 0;
  auto started = HttpServer::start(
      std::move(options), [this](auto request, auto exchange) { handle(std::move(request), std::move(exchange)); },
      std::move(admission), test_error_body);
  FATHOM_CHECK(started.ok(), "{}", started.error().message);
  server_ = std::move(*started);
  port_ = server_->port();
}

void TestServer::handle(std::shared_ptr<const HttpRequest> request, std::shared_ptr<HttpExchange> exchange) {
  {
    std::lock_guard lock(mutex_);
    ++calls_;
    if (request->path.starts_with("/wait")) {
      waiting_.push_back({std::move(request), std::move(exchange)});
      changed_.notify_all();
      return;
    }
  }
  if (request->path == "/throw") throw std::runtime_error("thrown by the test");
  if (request->path == "/drop") return;
  const std::string query = request->query.empty() ? "" : "?" + request->query;
  exchange->respond({200, {{"content-type", "text/plain"}}, request->method + " " + request->path + query + " " +
                                                                request->body});
}

TestCall TestServer::next() {
  std::unique_lock lock(mutex_);
  FATHOM_CHECK(changed_.wait_for(lock, kTestPatience, [&] { return !waiting_.empty(); }), "no request came");
  TestCall call = std::move(waiting_.front());
  waiting_.pop_front();
  return call;
}

int TestServer::calls() {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::string TestResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

bool TestResponse::has(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return true;
  return false;
}

TestClient::TestClient(uint16_t port, const char* address, int socket) : socket_(socket) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (std::strchr(address, ':') != nullptr) {
    auto* to = reinterpret_cast<sockaddr_in6*>(&storage);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(port);
    inet_pton(AF_INET6, address, &to->sin6_addr);
    size = sizeof *to;
  } else {
    auto* to = reinterpret_cast<sockaddr_in*>(&storage);
    to->sin_family = AF_INET;
    to->sin_port = htons(port);
    inet_pton(AF_INET, address, &to->sin_addr);
    size = sizeof *to;
  }
  if (socket_ < 0) socket_ = ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{.tv_sec = kTestPatience.count(), .tv_usec = 0};
  const int on = 1;
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&storage), size) != 0) close();
}

TestClient::~TestClient() {
  close();
}

void TestClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void TestClient::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void TestClient::half_close() {
  shutdown(socket_, SHUT_WR);
}

long TestClient::receive_some(char* to, size_t size) {
  return recv(socket_, to, size, 0);
}

long TestClient::send_some(const char* from, size_t size) {
  return ::send(socket_, from, size, MSG_NOSIGNAL);
}

void TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const long count = send_some(bytes.data(), bytes.size());
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

bool TestClient::fill() {
  std::array<char, 65536> buffer;
  const long count = receive_some(buffer.data(), buffer.size());
  if (count > 0) input_.append(buffer.data(), static_cast<size_t>(count));
  return count > 0;
}

bool TestClient::readable(std::chrono::milliseconds within) {
  pollfd entry{.fd = socket_, .events = POLLIN, .revents = 0};
  return !input_.empty() || poll(&entry, 1, static_cast<int>(within.count())) > 0;
}

bool TestClient::ended() {
  return input_.empty() && !fill();
}

std::string TestClient::receive_bytes(size_t count) {
  while (input_.size() < count && fill()) {
  }
  std::string bytes = input_.substr(0, count);
  input_.erase(0, bytes.size());
  return bytes;
}

std::string TestClient::receive_all() {
  while (fill()) {
  }
  return std::exchange(input_, {});
}

std::string TestClient::receive_until(std::string_view end) {
  size_t searched = 0;
  size_t at = 0;
  while ((at = input_.find(end, searched)) == std::string::npos) {
    searched = input_.size() < end.size() ? 0 : input_.size() - end.size();
    if (!fill()) return receive_all();
  }
  return receive_bytes(at + end.size());
}

TestResponse TestClient::receive(bool head) {
  TestResponse response;
  const std::string text = receive_until("\r\n\r\n");
  if (!text.ends_with("\r\n\r\n") || !text.starts_with("HTTP/1.1 ")) return response;
  response.status = std::atoi(text.c_str() + 9);
  for (size_t at = text.find("\r\n") + 2; at + 2 < text.size();) {
    const size_t end = text.find("\r\n", at), colon = text.find(": ", at);
    response.headers.emplace_back(text.substr(at, colon - at), text.substr(colon + 2, end - colon - 2));
    at = end + 2;
  }
  response.whole = true;
  if (head || response.status < 200 || response.status == 204 || response.status == 304) return response;
  if (response.has("content-length")) {
    const auto length = static_cast<size_t>(std::atoll(response.header("content-length").c_str()));
    response.body = receive_bytes(length);
    response.whole = response.body.size() == length;
  } else if (response.header("transfer-encoding") == "chunked") {
    for (;;) {
      const std::string line = receive_until("\r\n");
      const size_t length = std::strtoul(line.c_str(), nullptr, 16);
      const std::string data = receive_bytes(length + 2);
      response.whole = line.ends_with("\r\n") && data.size() == length + 2 && data.ends_with("\r\n");
      response.body += data.substr(0, std::min(length, data.size()));
      if (!response.whole || length == 0) break;
    }
  } else {
    response.body = receive_all();
  }
  return response;
}

TestResponse TestClient::ask(std::string_view bytes) {
  send(bytes);
  return receive();
}

std::string test_get(std::string_view path, std::string_view extra_headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, extra_headers);
}

std::string test_post(std::string_view path, std::string_view body, std::string_view extra_headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n{}\r\n{}", path, body.size(),
                     extra_headers, body);
}

}  // namespace fathom
