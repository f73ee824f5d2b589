// Requests and answers on the wire.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "server/http/testing.h"

namespace fathom {
namespace {

TEST(HttpServer, AnswersARequest) {
  TestServer server;
  TestClient client(server.port());
  const TestResponse response = client.ask(test_post("/a%20b?c=d", "body", "X-Test: 1\r\n"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POST /a b?c=d body");
  EXPECT_EQ(response.header("content-type"), "text/plain");
  EXPECT_EQ(response.header("x-content-type-options"), "nosniff");
  EXPECT_FALSE(response.has("connection"));
  EXPECT_FALSE(response.has("access-control-allow-origin"));
  EXPECT_FALSE(response.has("vary"));
  EXPECT_TRUE(std::regex_match(response.header("date"),
                               std::regex("[A-Z][a-z]{2}, \\d\\d [A-Z][a-z]{2} \\d{4} \\d\\d:\\d\\d:\\d\\d GMT")))
      << response.header("date");
}

TEST(HttpServer, TellsTheHandlerWhoAsks) {
  TestServer server;
  TestClient client(server.port());
  client.send(test_get("/wait", "X-Test: One\r\nx-test: Two\r\n"));
  const TestCall call = server.next();
  EXPECT_TRUE(call.request->peer.starts_with("127.0.0.1:")) << call.request->peer;
  EXPECT_EQ(call.request->header("x-test"), "One");
  EXPECT_EQ(call.request->headers.size(), 3u);
  call.exchange->respond({204, {}, ""});
  const TestResponse response = client.receive();
  EXPECT_EQ(response.status, 204);
  EXPECT_FALSE(response.has("content-length"));
  EXPECT_EQ(client.ask(test_get("/next")).body, "GET /next ");
}

TEST(HttpServer, KeepsTheConnection) {
  TestServer server;
  TestClient client(server.port());
  for (int round = 0; round < 50; ++round)
    ASSERT_EQ(client.ask(test_get("/" + std::to_string(round))).body, "GET /" + std::to_string(round) + " ");
  EXPECT_EQ(server.server().connections(), 1);
}

TEST(HttpServer, ClosesTheConnectionWhenAsked) {
  TestServer server;
  TestClient client(server.port());
  const TestResponse response = client.ask(test_get("/", "Connection: close\r\n") + test_get("/never"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(server.calls(), 1);
}

TEST(HttpServer, AnswersPipelinedRequestsInTheirOrder) {
  TestServer server;
  TestClient client(server.port());
  std::string requests;
  for (int index = 0; index < 100; ++index)
    requests += index % 3 == 0 ? test_get("/wait/" + std::to_string(index))
                               : test_post("/now/" + std::to_string(index), std::string(index, 'b'));
  client.send(requests);
  std::thread engine([&] {
    for (int index = 0; index < 100; index += 3) {
      const TestCall call = server.next();
      call.exchange->respond({200, {}, call.request->path});
    }
  });
  for (int index = 0; index < 100; ++index) {
    const std::string number = std::to_string(index);
    EXPECT_EQ(client.receive().body,
              index % 3 == 0 ? "/wait/" + number : "POST /now/" + number + " " + std::string(index, 'b'));
  }
  engine.join();
}

TEST(HttpServer, HoldsBackAPipelineThatReadsNothing) {
  HttpOptions options;
  TestServer server(options);
  TestClient client(server.port());
  const std::string body(100000, 'x');
  constexpr int kRequests = 200;
  std::thread sender([&] {
    for (int index = 0; index < kRequests; ++index) client.send(test_post("/", body));
  });
  for (int index = 0; index < kRequests; ++index)
    ASSERT_EQ(client.receive().body.size(), body.size() + 7) << index;
  sender.join();
}

TEST(HttpServer, TakesARequestInPiecesOfAnySize) {
  TestServer server;
  const std::string request =
      "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2;e\r\nde\r\n0\r\nT: u\r\n\r\n";
  TestClient client(server.port());
  for (size_t cut = 1; cut < request.size(); ++cut) {
    client.send(request.substr(0, cut));
    std::this_thread::yield();
    client.send(request.substr(cut));
    ASSERT_EQ(client.receive().body, "POST /p abcde") << cut;
  }
  for (char byte : request) client.send(std::string_view(&byte, 1));
  EXPECT_EQ(client.receive().body, "POST /p abcde");
}

TEST(HttpServer, SpeaksHttp10) {
  TestServer server;
  TestClient plain(server.port());
  const TestResponse closed = plain.ask("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_EQ(closed.body, "GET /a ");
  EXPECT_EQ(closed.header("connection"), "close");
  EXPECT_TRUE(plain.ended());

  TestClient keeping(server.port());
  const TestResponse kept = keeping.ask("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.header("connection"), "keep-alive");
  keeping.send("GET /wait HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const TestCall call = server.next();
  call.exchange->start_stream(200, {});
  call.exchange->write("one ");
  call.exchange->write("two");
  call.exchange->finish();
  const TestResponse streamed = keeping.receive();
  EXPECT_FALSE(streamed.has("transfer-encoding"));
  EXPECT_EQ(streamed.header("connection"), "close");
  EXPECT_EQ(streamed.body, "one two");
}

TEST(HttpServer, AnswersHeadWithTheHeadersOfGet) {
  TestServer server;
  TestClient client(server.port());
  client.send("HEAD /head HTTP/1.1\r\nHost: h\r\n\r\n");
  const TestResponse response = client.receive(true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("content-length"), "10");
  EXPECT_EQ(client.ask(test_get("/next")).body, "GET /next ");

  client.send("HEAD /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  const TestCall call = server.next();
  EXPECT_EQ(call.request->method, "GET");
  TestEvent gone;
  call.exchange->on_gone([&] { gone.set(); });
  call.exchange->start_stream(200, {{"content-type", "text/event-stream"}});
  call.exchange->write("never sent");
  EXPECT_EQ(client.receive(true).header("content-type"), "text/event-stream");
  EXPECT_TRUE(gone.wait()) << "nobody reads the stream of a HEAD request";
  call.exchange->write("nor this");
  call.exchange->finish();
  EXPECT_EQ(client.ask(test_get("/after")).body, "GET /after ");
}

TEST(HttpServer, InvitesTheBodyThatWaitsForIt) {
  TestServer server;
  TestClient client(server.port());
  client.send("POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.ask("body").body, "POST /c body");
}

TEST(HttpServer, TakesALargeBodyAndGivesItBack) {
  TestServer server;
  TestClient client(server.port());
  std::string body(20 << 20, '\0');
  for (size_t at = 0; at < body.size(); ++at) body[at] = static_cast<char>(at * 31 + at / 4099);
  std::thread sender([&] { client.send(test_post("/", body)); });
  const TestResponse response = client.receive();
  sender.join();
  EXPECT_TRUE(response.body == "POST / " + body);
}

TEST(HttpServer, RefusesWithAnAnswerAndCloses) {
  TestServer server;
  const std::string next = test_get("/smuggled");
  const std::vector<std::pair<int, std::string>> cases = {
      {400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n"},
      {400, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n+0\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n folded\r\n\r\n"},
      {400, std::string("GET / HTTP/1.1\r\nHost: h\r\nX: \0\r\n\r\n", 34)},
      {400, "GET / HTTP/1.1\nHost: h\n\n"},
      {400, "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET /a/../b HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET /a\\b HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, std::string("\x16\x03\x01\x00\xA5\x01\x00\x00\xA1\x03\x03", 11)},
      {417, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: more\r\n\r\n"},
      {501, "BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n"},
      {501, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"},
      {505, "GET / HTTP/3.0\r\nHost: h\r\n\r\n"},
  };
  for (const auto& [status, bytes] : cases) {
    TestClient client(server.port());
    const TestResponse response = client.ask(bytes + next);
    EXPECT_EQ(response.status, status) << bytes;
    EXPECT_EQ(response.header("connection"), "close") << bytes;
    EXPECT_FALSE(response.body.empty()) << bytes;
    EXPECT_TRUE(client.ended()) << bytes;
  }
  EXPECT_EQ(server.calls(), 0);
}

TEST(HttpServer, AnswersForAHandlerThatDoesNot) {
  TestServer server;
  TestClient client(server.port());
  EXPECT_EQ(client.ask(test_get("/drop")).status, 500);
  EXPECT_EQ(client.ask(test_get("/throw")).status, 500);
  client.send(test_get("/wait"));
  server.next();  // and let go
  EXPECT_EQ(client.receive().status, 500);
  EXPECT_EQ(client.ask(test_get("/after")).status, 200);
}

TEST(HttpServer, KeepsHeadersInTheirLines) {
  TestServer server;
  TestClient client(server.port());
  client.send(test_get("/wait"));
  const TestCall call = server.next();
  call.exchange->respond({200,
                          {{"x-text", "a\r\nx-injected: b\nc"},
                           {"Content-Length", "999"},
                           {"Transfer-Encoding", "chunked"},
                           {"connection", "close"},
                           {"Date", "never"}},
                          "body"});
  const TestResponse response = client.receive();
  EXPECT_EQ(response.header("x-text"), "a  x-injected: b c");
  EXPECT_FALSE(response.has("x-injected"));
  EXPECT_EQ(response.header("content-length"), "4");
  EXPECT_FALSE(response.has("transfer-encoding"));
  EXPECT_EQ(response.headers.size(), 4u);
  EXPECT_EQ(client.ask(test_get("/after")).status, 200);
}

TEST(HttpServer, RefusesBeforeTheBodyWasSent) {
  HttpOptions options;
  options.body_bytes_max = 1000;
  TestServer server(options, [](const HttpRequest& request) -> std::optional<HttpResponse> {
    EXPECT_TRUE(request.body.empty());
    if (request.header("authorization") == "Bearer key") return std::nullopt;
    return HttpResponse{401, {{"www-authenticate", "Bearer"}}, "no key"};
  });
  TestClient client(server.port());
  const TestResponse refused = client.ask(test_get("/"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header("www-authenticate"), "Bearer");
  EXPECT_FALSE(refused.has("connection"));
  EXPECT_EQ(client.ask(test_post("/", "x", "Authorization: Bearer key\r\n")).body, "POST / x");

  // Nothing of the body is sent: the answer must come all the same.
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n");
  const TestResponse early = client.receive();
  EXPECT_EQ(early.status, 401);
  EXPECT_EQ(early.header("connection"), "close");
  EXPECT_TRUE(client.ended());

  // All of a large body is sent before the client looks: the answer must not be lost.
  TestClient stubborn(server.port());
  stubborn.send(test_post("/", std::string(8 << 20, 'x')));
  EXPECT_EQ(stubborn.receive().status, 401);
  EXPECT_TRUE(stubborn.ended());
  EXPECT_EQ(server.calls(), 1);
}

TEST(HttpServer, SaysNothingOfOtherOriginsByDefault) {
  TestServer server;
  TestClient client(server.port());
  const TestResponse response = client.ask(test_get("/", "Origin: http://page\r\n"));
  EXPECT_FALSE(response.has("access-control-allow-origin"));
  const TestResponse preflight = client.ask(
      "OPTIONS /p HTTP/1.1\r\nHost: h\r\nOrigin: http://page\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(preflight.body, "OPTIONS /p ");
}

TEST(HttpServer, AllowsTheOriginsItWasToldOf) {
  HttpOptions options;
  options.cors_origins = {"http://page", "http://other"};
  TestServer server(options, [](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.path == "/closed") return HttpResponse{401, {}, ""};
    return std::nullopt;
  });
  TestClient client(server.port());
  const TestResponse allowed = client.ask(test_get("/", "Origin: http://other\r\n"));
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "http://other");
  EXPECT_EQ(allowed.header("vary"), "Origin");
  const TestResponse foreign = client.ask(test_get("/", "Origin: http://evil\r\n"));
  EXPECT_FALSE(foreign.has("access-control-allow-origin"));
  EXPECT_EQ(foreign.header("vary"), "Origin");
  EXPECT_FALSE(client.ask(test_get("/")).has("access-control-allow-origin"));

  // The question comes without the key that the request will have, so admission is not asked.
  const TestResponse preflight = client.ask(
      "OPTIONS /closed HTTP/1.1\r\nHost: h\r\nOrigin: http://page\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization, x-own\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "http://page");
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization, x-own");
  EXPECT_NE(preflight.header("access-control-allow-methods").find("POST"), std::string::npos);
  const TestResponse denied = client.ask(
      "OPTIONS / HTTP/1.1\r\nHost: h\r\nOrigin: null\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(denied.status, 204);
  EXPECT_FALSE(denied.has("access-control-allow-origin"));
  EXPECT_FALSE(denied.has("access-control-allow-methods"));
  EXPECT_EQ(client.ask(test_get("/closed", "Origin: http://page\r\n")).header("access-control-allow-origin"),
            "http://page");
}

TEST(HttpServer, AllowsAllOriginsWhenTold) {
  HttpOptions options;
  options.cors_origins = {"*"};
  TestServer server(options);
  TestClient client(server.port());
  const TestResponse response = client.ask(test_get("/", "Origin: null\r\n"));
  EXPECT_EQ(response.header("access-control-allow-origin"), "*");
  EXPECT_FALSE(response.has("access-control-allow-credentials"));
}

TEST(HttpServer, ListensOnNamesAndIpv6) {
  HttpOptions options;
  options.host = "localhost";
  TestServer named(options);
  EXPECT_EQ(TestClient(named.port()).ask(test_get("/")).status, 200);

  options.host = "::";
  TestServer everywhere(options);
  TestClient v6(everywhere.port(), "::1"), v4(everywhere.port());
  if (v6.socket() < 0) GTEST_SKIP() << "this machine has no IPv6";
  v6.send(test_get("/wait"));
  TestCall call = everywhere.next();
  EXPECT_TRUE(call.request->peer.starts_with("[::1]:")) << call.request->peer;
  v4.send(test_get("/wait"));
  call = everywhere.next();
  EXPECT_TRUE(call.request->peer.starts_with("127.0.0.1:")) << call.request->peer;
}

TEST(HttpServer, SaysWhyItCannotStart) {
  TestServer server;
  const auto start = [](HttpOptions options) {
    auto started = HttpServer::start(std::move(options), [](auto, auto) {}, nullptr, test_error_body);
    return started.ok() ? Error{ErrorCode::kInternal, "started"} : started.error();
  };
  HttpOptions taken;
  taken.port = server.port();
  EXPECT_EQ(start(taken).code, ErrorCode::kIo);
  EXPECT_NE(start(taken).message.find(std::to_string(server.port())), std::string::npos);
  HttpOptions unknown;
  unknown.host = "no-such-host.invalid";
  EXPECT_EQ(start(unknown).code, ErrorCode::kIo);
  HttpOptions half;
  half.tls_key_path = "key.pem";
  EXPECT_EQ(start(half).code, ErrorCode::kInvalidArgument);
  HttpOptions hasty;
  hasty.header_timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(start(hasty).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace fathom
