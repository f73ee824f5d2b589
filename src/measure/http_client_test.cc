#include "measure/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "measure/child_process.h"
#include "measure/target.h"

namespace fathom::measure {
namespace {

using namespace std::chrono_literals;

/// Answers every request on every connection, one after the other, with `answer(socket, request)`; false closes.
class TestServer {
 public:
  using Answer = std::function<bool(int socket, const std::string& request)>;

  explicit TestServer(Answer answer) : answer_(std::move(answer)) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listening_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listening_, 16), 0);
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~TestServer() {
    stopping_ = true;
    ::shutdown(listening_, SHUT_RDWR);
    if (const int socket = connection_; socket >= 0) ::shutdown(socket, SHUT_RDWR);
    thread_.join();
    ::close(listening_);
  }

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int connections() const { return connections_; }
  bool stopping() const { return stopping_; }

 private:
  void serve() {
    int socket;
    while ((socket = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0) {
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++connections_;
      connection_ = socket;
      while (!stopping_) {
        const std::string request = read_request(socket);
        if (request.empty() || !answer_(socket, request)) break;
      }
      connection_ = -1;
      ::close(socket);
    }
  }
  static std::string read_request(int socket) {
    std::string text;
    size_t whole = std::string::npos;
    char buffer[65536];
    while (text.size() < whole) {
      const ssize_t count = ::recv(socket, buffer, sizeof buffer, 0);
      if (count <= 0) return {};
      text.append(buffer, static_cast<size_t>(count));
      const size_t end = text.find("\r\n\r\n");
      if (whole != std::string::npos || end == std::string::npos) continue;
      const size_t length = text.find("Content-Length: ");
      whole = end + 4 + (length < end ? std::stoul(text.substr(length + 16)) : 0);
    }
    return text;
  }

  Answer answer_;
  int listening_ = -1, port_ = 0;
  std::atomic<int> connection_{-1}, connections_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

void say(int socket, const std::string& text) { (void)!::send(socket, text.data(), text.size(), MSG_NOSIGNAL); }

bool respond(int socket, int status, const std::string& body, const std::string& type = "application/json") {
  say(socket, fmt::format("HTTP/1.1 {} X\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}", status, type,
                          body.size(), body));
  return true;
}

const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
std::string chunk(const std::string& text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); }
std::string event(const std::string& data) { return chunk("data: " + data + "\n\n"); }
const std::string kLastChunk = "0\r\n\r\n";

std::unique_ptr<HttpClient> client_of(const std::string& url) {
  auto client = HttpClient::create({.base_url = url, .key = "secret", .headers = {"X-Own: yes"},
                                    .event_bytes_max = 4096, .body_bytes_max = 8192});
  EXPECT_TRUE(client.ok()) << client.error().message;
  return std::move(*client);
}

struct Streamed {
  std::vector<ServerEvent> events;
  StreamEnd end;
};
Streamed stream(HttpClient& client, const HttpCall& call = {.path = "/s", .body = "{}"}) {
  Streamed streamed;
  streamed.end = client.stream(call, [&](ServerEvent&& event) { streamed.events.push_back(std::move(event)); });
  return streamed;
}

TEST(HttpClient, SendsJsonWithKeyAndHeadersAndReadsJson) {
  std::string seen;
  TestServer server([&](int socket, const std::string& request) {
    seen = request;
    return respond(socket, 200, R"({"answer": 42})");
  });
  const auto client = client_of(server.url() + "/v1/");
  const auto json = client->fetch_json({.path = "/v1/x?a=b", .body = R"({"q":1})"});
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ((*json)["answer"], 42);
  EXPECT_TRUE(seen.starts_with("POST /v1/x?a=b HTTP/1.1\r\n")) << seen;
  EXPECT_NE(seen.find("Authorization: Bearer secret\r\n"), std::string::npos);
  EXPECT_NE(seen.find("X-Own: yes\r\n"), std::string::npos);
  EXPECT_NE(seen.find("Content-Type: application/json\r\n"), std::string::npos);
  EXPECT_TRUE(seen.ends_with("\r\n\r\n{\"q\":1}"));
  ASSERT_TRUE(client->fetch({.method = "GET", .path = "/health"}).ok());
  EXPECT_TRUE(seen.starts_with("GET /health HTTP/1.1\r\n")) << seen;
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, NeverWaitsForLeaveToSendALargeBody) {
  std::string seen;
  TestServer server([&](int socket, const std::string& request) {
    seen = request;
    return respond(socket, 200, "{}");
  });
  const std::string body(3 << 20, ' ');
  ASSERT_TRUE(client_of(server.url())->fetch({.path = "/x", .body = body + "{}"}).ok());
  EXPECT_EQ(seen.find("Expect:"), std::string::npos);
  EXPECT_TRUE(seen.ends_with(" {}"));
}

TEST(HttpClient, TellsWhatARefusalSays) {
  std::string body;
  TestServer server([&](int socket, const std::string&) { return respond(socket, 503, body); });
  const auto client = client_of(server.url());
  const std::pair<const char*, const char*> cases[] = {
      {R"({"error": {"message": "loading model"}})", "status 503: loading model"},
      {R"({"error": "busy"})", "status 503: busy"},
      {R"({"message": "later"})", "status 503: later"},
      {R"({"detail": "no such model"})", "status 503: no such model"},
      {"<html>\nno</html>", "status 503: <html> no</html>"},
      {"", "status 503: an empty body"}};
  for (const auto& [text, expected] : cases) {
    body = text;
    const std::string where = " (POST " + server.url() + "/s)";
    EXPECT_EQ(client->fetch({.path = "/s", .body = "{}"}).error().message, expected + where);
    EXPECT_EQ(stream(*client).end.error, expected + where);
  }
}

TEST(HttpClient, RefusesWhatIsNoJsonNoStreamOrTooLarge) {
  std::string body = "nonsense";
  TestServer server([&](int socket, const std::string&) { return respond(socket, 200, body); });
  const auto client = client_of(server.url());
  EXPECT_EQ(client->fetch_json({.path = "/x", .body = "{}"}).error().message,
            "not JSON: POST /x answered nonsense");
  EXPECT_TRUE(stream(*client).end.error.starts_with(
      "no stream: expected text/event-stream, found application/json: nonsense"));
  body.assign(9000, ' ');
  EXPECT_TRUE(
      client->fetch({.path = "/x"}).error().message.starts_with("answer too large: expected at most 8192"));
}

TEST(HttpClient, SaysThatNobodyListens) {
  const auto port = free_port();
  ASSERT_TRUE(port.ok());
  const auto client = client_of(fmt::format("http://127.0.0.1:{}", *port));
  EXPECT_TRUE(client->fetch({.path = "/x"}).error().message.starts_with("connection refused"));
  EXPECT_TRUE(stream(*client).end.error.starts_with("connection refused"));
}

TEST(HttpClient, RefusesAddressesThatAreNone) {
  for (const char* wrong : {"", "127.0.0.1:80", "ftp://x", "http://", "http://a b"})
    EXPECT_FALSE(HttpClient::create({.base_url = wrong}).ok()) << wrong;
}

TEST(HttpClient, AsksNoProxyForThisMachine) {
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  TestServer server([&](int socket, const std::string&) { return respond(socket, 200, "{}"); });
  const auto answer = client_of(server.url())->fetch({.path = "/x"});
  ::unsetenv("http_proxy");
  EXPECT_TRUE(answer.ok()) << answer.error().message;
}

TEST(HttpClient, StreamsEventsInOrder) {
  TestServer server([&](int socket, const std::string&) {
    say(socket, kStreamHead + event("a"));
    say(socket, chunk(": sign of life\n\ndata: b") + chunk("c\n") + chunk("\n") + event("[DONE]") + kLastChunk);
    return true;
  });
  const auto client = client_of(server.url());
  for (int round = 0; round < 2; ++round) {
    const Streamed streamed = stream(*client);
    EXPECT_EQ(streamed.end.error, "");
    EXPECT_TRUE(streamed.end.is_done);
    ASSERT_EQ(streamed.events.size(), 2u);
    EXPECT_EQ(streamed.events[0].data, "a");
    EXPECT_EQ(streamed.events[1].data, "bc");
    EXPECT_LE(streamed.end.sent_ns, streamed.events[0].arrived_ns);
    EXPECT_LE(streamed.events[0].arrived_ns, streamed.events[1].arrived_ns);
    EXPECT_LE(streamed.events[1].arrived_ns, streamed.end.ended_ns);
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, EventsOfOneReadShareATime) {
  TestServer server([&](int socket, const std::string&) {
    say(socket, kStreamHead);
    say(socket, event("a") + event("b") + event("c") + event("[DONE]") + kLastChunk);
    return true;
  });
  const auto client = client_of(server.url());
  const Streamed streamed = stream(*client);
  ASSERT_EQ(streamed.events.size(), 3u);
  EXPECT_EQ(streamed.events[0].arrived_ns, streamed.events[1].arrived_ns);
  EXPECT_EQ(streamed.events[0].arrived_ns, streamed.events[2].arrived_ns);
}

// The server sends an event only when the one before it has been handed over. So every arrival lies between its
// sending and the next one's, on a machine of any speed.
TEST(HttpClient, TimesLieBetweenSendings) {
  constexpr int kEvents = 50;
  std::mutex mutex;
  std::condition_variable changed;
  int handed_over = 0;
  std::vector<int64_t> sent_ns;
  int64_t received_ns = 0;
  TestServer server([&](int socket, const std::string&) {
    received_ns = monotonic_ns();
    say(socket, kStreamHead);
    for (int number = 0; number < kEvents; ++number) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return handed_over == number; });
      sent_ns.push_back(monotonic_ns());
      say(socket, event(std::to_string(number)));
    }
    say(socket, event("[DONE]") + kLastChunk);
    return true;
  });
  const auto client = client_of(server.url());
  std::vector<int64_t> arrived_ns;
  const StreamEnd end = client->stream({.path = "/s", .body = "{}"}, [&](ServerEvent&& event) {
    arrived_ns.push_back(event.arrived_ns);
    const std::lock_guard lock(mutex);
    ++handed_over;
    changed.notify_one();
  });
  EXPECT_EQ(end.error, "");
  ASSERT_EQ(arrived_ns.size(), static_cast<size_t>(kEvents));
  EXPECT_LE(end.sent_ns, received_ns);
  for (size_t number = 0; number < arrived_ns.size(); ++number) {
    EXPECT_LE(sent_ns[number], arrived_ns[number]);
    if (number + 1 < sent_ns.size()) {
      EXPECT_LE(arrived_ns[number], sent_ns[number + 1]);
    }
  }
  EXPECT_LE(arrived_ns.back(), end.ended_ns);
}

TEST(HttpClient, SaysThatAStreamWasCut) {
  std::string sent;
  TestServer server([&](int socket, const std::string&) {
    say(socket, sent);
    return false;
  });
  const auto client = client_of(server.url());
  // Without its last chunk; in the middle of a chunk; without any answer.
  for (const std::string& text :
       {kStreamHead + event("a"), kStreamHead + event("a") + "40\r\ndata: half", std::string()}) {
    sent = text;
    const Streamed streamed = stream(*client);
    EXPECT_TRUE(streamed.end.error.starts_with("stream cut")) << streamed.end.error;
    EXPECT_EQ(streamed.events.size(), text.empty() ? 0u : 1u);
    EXPECT_FALSE(streamed.end.is_done);
  }
  // In good order for HTTP, in the middle of an event.
  sent = kStreamHead + event("a") + chunk("data: half") + kLastChunk;
  const Streamed half = stream(*client);
  EXPECT_TRUE(half.end.error.starts_with("stream cut: the server closed in the middle of an event"));
  // A server without chunks ends by closing; only the dialect can tell whether that was early.
  sent = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: a\n\n";
  const Streamed closed = stream(*client);
  EXPECT_EQ(closed.end.error, "");
  EXPECT_FALSE(closed.end.is_done);
  EXPECT_EQ(closed.events.size(), 1u);
}

TEST(HttpClient, NamesInvalidUtf8AndGiantEvents) {
  std::string bad;
  TestServer server([&](int socket, const std::string&) {
    say(socket, kStreamHead + event("good") + event(bad) + event("never") + kLastChunk);
    return false;
  });
  const auto client = client_of(server.url());
  for (const auto& [data, expected] :
       {std::pair{std::string("\xC3("), "invalid UTF-8 in an event: byte 0xc3"},
        std::pair{std::string(5000, 'x'), "event too large: expected at most 4096"}}) {
    bad = data;
    const Streamed streamed = stream(*client);
    EXPECT_TRUE(streamed.end.error.starts_with(expected)) << streamed.end.error;
    ASSERT_EQ(streamed.events.size(), 1u);
    EXPECT_EQ(streamed.events[0].data, "good");
  }
}

TEST(HttpClient, EndsAtItsTimeLimitHoweverAliveTheServerIs) {
  TestServer* self = nullptr;
  TestServer server([&](int socket, const std::string&) {
    say(socket, kStreamHead);
    while (!self->stopping() && ::send(socket, "5\r\n: x\n\n\r\n", 10, MSG_NOSIGNAL) > 0)
      std::this_thread::sleep_for(5ms);
    return false;
  });
  self = &server;
  const auto client = client_of(server.url());
  const Streamed streamed =
      stream(*client, {.path = "/s", .body = "{}", .time_limit = 300ms, .silence_limit = 60s});
  EXPECT_TRUE(streamed.end.error.starts_with("time limit: no end of the answer after 0.3 s"))
      << streamed.end.error;
  EXPECT_GE(streamed.end.ended_ns - streamed.end.sent_ns, 300'000'000);
}

TEST(HttpClient, EndsWhenNothingComes) {
  TestServer* self = nullptr;
  TestServer server([&](int socket, const std::string&) {
    say(socket, kStreamHead);
    while (!self->stopping()) std::this_thread::sleep_for(5ms);
    return false;
  });
  self = &server;
  const auto client = client_of(server.url());
  const Streamed streamed =
      stream(*client, {.path = "/s", .body = "{}", .time_limit = 600s, .silence_limit = 200ms});
  EXPECT_TRUE(streamed.end.error.starts_with("silence: not one byte for 0.2 s")) << streamed.end.error;
}

}  // namespace
}  // namespace fathom::measure
