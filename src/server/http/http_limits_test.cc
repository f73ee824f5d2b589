// Sizes, times and numbers that clients must keep to.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"
#include "server/http/testing.h"

namespace fathom {
namespace {

using std::chrono::milliseconds;

TEST(HttpLimits, RefusesTooLargeHeaders) {
  HttpOptions options;
  options.header_bytes_max = 1000;
  TestServer server(options);
  TestClient client(server.port());
  const TestResponse response = client.ask(test_get("/", "X: " + std::string(2000, 'x') + "\r\n"));
  EXPECT_EQ(response.status, 431);
  EXPECT_TRUE(client.ended());
  TestClient endless(server.port());
  EXPECT_EQ(endless.ask("GET /" + std::string(2000, 'x')).status, 431);
  EXPECT_EQ(server.calls(), 0);
}

TEST(HttpLimits, RefusesTooLargeBodies) {
  HttpOptions options;
  options.body_bytes_max = 1000;
  TestServer server(options);
  TestClient exact(server.port());
  EXPECT_EQ(exact.ask(test_post("/", std::string(1000, 'x'))).status, 200);

  // By the length alone: nothing of the body is sent.
  TestClient announced(server.port());
  const TestResponse response =
      announced.ask("POST /some/path?q HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(response.header("x-path"), "/some/path") << "the shape of the error depends on it";
  EXPECT_NE(response.body.find("1001"), std::string::npos) << response.body;
  EXPECT_TRUE(announced.ended());

  TestClient growing(server.port());
  growing.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int chunk = 0; chunk < 11; ++chunk) growing.send("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_EQ(growing.receive().status, 413);
  EXPECT_TRUE(growing.ended());
  EXPECT_EQ(server.calls(), 1);
}

TEST(HttpLimits, BoundsAllBodiesTogether) {
  HttpOptions options;
  options.bodies_bytes_max = 2500;
  TestServer server(options);
  {
    // Two that are on their way hold their share by their length alone.
    TestClient first(server.port()), second(server.port());
    for (TestClient* client : {&first, &second}) {
      client->send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
      EXPECT_EQ(client->receive().status, 100);
      client->send("x");
    }
    TestClient third(server.port());
    TestResponse refused;
    for (int attempt = 0; attempt < 1000 && refused.status != 503; ++attempt)
      refused = TestClient(server.port()).ask(test_post("/", std::string(1000, 'x')));
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(third.ask(test_post("/", "x")).status, 200);
  }
  // And give it back when they leave, and when an answer is complete.
  int status = 0;
  for (int attempt = 0; attempt < 1000 && status != 200; ++attempt)
    status = TestClient(server.port()).ask(test_post("/", std::string(2000, 'x'))).status;
  EXPECT_EQ(status, 200);
  for (int request = 0; request < 10; ++request)
    EXPECT_EQ(TestClient(server.port()).ask(test_post("/", std::string(2000, 'x'))).status, 200);
}

/// Sends a byte now and then until an answer comes.
TestResponse send_slowly(TestClient& client, std::string_view bytes) {
  const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
  while (!client.readable(milliseconds(20)) && std::chrono::steady_clock::now() < deadline) client.send(bytes);
  return client.receive();
}

TEST(HttpLimits, BoundsTheTimeOfHeadersAsAWhole) {
  HttpOptions options;
  options.header_timeout = milliseconds(300);
  TestServer server(options);
  TestClient client(server.port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\nX: ");
  EXPECT_EQ(send_slowly(client, "x").status, 408);
  EXPECT_TRUE(client.ended());
}

TEST(HttpLimits, BoundsTheTimeOfABodyAsAWhole) {
  HttpOptions options;
  options.body_timeout = milliseconds(300);
  TestServer server(options);
  TestClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_EQ(send_slowly(client, "x").status, 408);
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(server.calls(), 0);
}

TEST(HttpLimits, ClosesIdleConnectionsWithoutAWord) {
  HttpOptions options;
  options.idle_timeout = milliseconds(200);
  TestServer server(options);
  TestClient silent(server.port());
  EXPECT_TRUE(silent.ended());
  TestClient after(server.port());
  after.send(test_get("/"));
  after.receive();
  EXPECT_TRUE(after.ended());
}

TEST(HttpLimits, LetsAnAnswerTakeLongerThanAnyTimeLimit) {
  HttpOptions options;
  options.header_timeout = options.body_timeout = options.idle_timeout = options.write_timeout = milliseconds(100);
  TestServer server(options);
  TestClient client(server.port());
  client.send(test_get("/wait"));
  const TestCall call = server.next();
  std::this_thread::sleep_for(milliseconds(400));  // no answer for longer than each of them
  EXPECT_FALSE(call.exchange->gone());
  call.exchange->respond({200, {}, "late"});
  EXPECT_EQ(client.receive().body, "late");
}

TEST(HttpLimits, RefusesConnectionsBeyondTheirNumber) {
  HttpOptions options;
  options.connections_max = 3;
  TestServer server(options);
  std::vector<std::unique_ptr<TestClient>> busy;
  std::vector<TestCall> calls;
  for (int index = 0; index < 3; ++index) {
    busy.push_back(std::make_unique<TestClient>(server.port()));
    busy.back()->send(test_get("/wait"));
    calls.push_back(server.next());
  }
  TestClient fourth(server.port());
  const TestResponse response = fourth.ask(test_get("/"));
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(fourth.ended());
  for (TestCall& call : calls) call.exchange->respond({200, {}, "served"});
  for (auto& client : busy) EXPECT_EQ(client->receive().body, "served");
}

TEST(HttpLimits, MakesPlaceByClosingTheLongestIdleConnection) {
  HttpOptions options;
  options.connections_max = 2;
  TestServer server(options);
  TestClient busy(server.port()), idle(server.port());
  EXPECT_EQ(idle.ask(test_get("/")).status, 200);
  busy.send(test_get("/wait"));
  const TestCall call = server.next();
  TestClient third(server.port());
  EXPECT_EQ(third.ask(test_get("/")).status, 200);
  EXPECT_TRUE(idle.ended());
  call.exchange->respond({200, {}, "served"});
  EXPECT_EQ(busy.receive().body, "served");
}

TEST(HttpLimits, OutlivesALackOfDescriptors) {
  TestEvent warned;
  set_log_sink([&](LogLevel, std::string_view line) {
    if (line.starts_with("accept:")) warned.set();
  });
  TestServer server;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  TestClient first(server.port());
  EXPECT_EQ(first.ask(test_get("/")).status, 200);
  rlimit none = before;
  none.rlim_cur = 3;  // every number below is taken
  const int spare = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(dup(0), -1);
  // A socket made before needs no new descriptor to connect, the server needs one to accept.
  TestClient second(server.port(), "127.0.0.1", spare);
  EXPECT_TRUE(warned.wait());
  EXPECT_EQ(first.ask(test_get("/first")).body, "GET /first ");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(second.ask(test_get("/second")).body, "GET /second ");
  server.destroy();
  set_log_sink(nullptr);
}

size_t resident_bytes() {
  size_t pages = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%zu %zu", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(HttpLimits, ServesOneMoreBesideThousandsOfIdleConnections) {
  TestServer server;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max) << "the server raises it";
  // Both ends are in this process.
  const auto count = static_cast<size_t>(std::min<rlim_t>(3000, limit.rlim_cur / 2 - 100));
  const size_t before = resident_bytes();
  std::vector<std::unique_ptr<TestClient>> idle;
  for (size_t index = 0; index < count; ++index) {
    idle.push_back(std::make_unique<TestClient>(server.port()));
    ASSERT_EQ(idle.back()->ask(test_get("/")).status, 200) << index;
  }
  const size_t grown = resident_bytes() - std::min(before, resident_bytes());
  RecordProperty("connections", static_cast<int>(count));
  RecordProperty("bytes_per_connection", static_cast<int>(grown / count));
  std::printf("%zu idle connections: %zu bytes each, both ends\n", count, grown / count);
  EXPECT_EQ(server.server().connections(), static_cast<int>(count));
  TestClient one_more(server.port());
  EXPECT_EQ(one_more.ask(test_get("/more")).body, "GET /more ");
  EXPECT_EQ(idle.front()->ask(test_get("/first")).body, "GET /first ");
}

}  // namespace
}  // namespace fathom
