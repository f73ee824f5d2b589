// Streams, clients that leave, and exchanges that live longer than either side.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "server/http/testing.h"

namespace fathom {
namespace {

using std::chrono::milliseconds;

struct Stream {
  explicit Stream(TestServer& server, std::string_view path = "/wait") : client(server.port()) {
    client.send(test_get(path));
    exchange = server.next().exchange;
    exchange->on_gone([event = gone] { event->set(); });
  }

  TestClient client;
  std::shared_ptr<TestEvent> gone = std::make_shared<TestEvent>();
  std::shared_ptr<HttpExchange> exchange;
};

TEST(HttpStream, SendsHeadersAndEachPieceAtOnce) {
  TestServer server;
  Stream stream(server);
  stream.exchange->start_stream(200, {{"content-type", "text/event-stream"}});
  const std::string head = stream.client.receive_until("\r\n\r\n");
  EXPECT_NE(head.find("transfer-encoding: chunked"), std::string::npos) << head;
  for (const std::string piece : {"one", "two", "three"}) {
    stream.exchange->write(piece);
    const std::string expected = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    EXPECT_EQ(stream.client.receive_bytes(expected.size()), expected);
  }
  stream.exchange->write("");
  stream.exchange->finish();
  EXPECT_EQ(stream.client.receive_bytes(5), "0\r\n\r\n");
  EXPECT_EQ(stream.client.ask(test_get("/next")).body, "GET /next ");
  EXPECT_FALSE(stream.gone->is_set());
  EXPECT_FALSE(stream.exchange->gone());
}

TEST(HttpStream, KeepsManySmallPiecesInOrder) {
  TestServer server;
  Stream stream(server);
  std::string expected;
  stream.exchange->start_stream(200, {});
  std::thread engine([exchange = stream.exchange] {
    for (int index = 0; index < 20000; ++index) exchange->write(std::to_string(index) + " ");
    exchange->finish();
  });
  for (int index = 0; index < 20000; ++index) expected += std::to_string(index) + " ";
  const TestResponse response = stream.client.receive();
  engine.join();
  EXPECT_TRUE(response.whole);
  EXPECT_TRUE(response.body == expected);
}

TEST(HttpStream, ServesManyStreamsAtOnce) {
  TestServer server;
  constexpr int kStreams = 64, kPieces = 50;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int index = 0; index < kStreams; ++index) streams.push_back(std::make_unique<Stream>(server));
  std::vector<std::thread> engines;
  for (int engine = 0; engine < 4; ++engine)
    engines.emplace_back([&, engine] {
      for (int index = engine; index < kStreams; index += 4) streams[index]->exchange->start_stream(200, {});
      for (int piece = 0; piece < kPieces; ++piece)
        for (int index = engine; index < kStreams; index += 4)
          streams[index]->exchange->write(fmt::format("{}.{} ", index, piece));
      for (int index = engine; index < kStreams; index += 4) streams[index]->exchange->finish();
    });
  for (int index = 0; index < kStreams; ++index) {
    std::string expected;
    for (int piece = 0; piece < kPieces; ++piece) expected += fmt::format("{}.{} ", index, piece);
    EXPECT_EQ(streams[index]->client.receive().body, expected);
  }
  for (std::thread& engine : engines) engine.join();
}

TEST(HttpStream, NoticesThatTheClientLeftASilentStream) {
  TestServer server;
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  stream.client.receive_until("\r\n\r\n");
  EXPECT_FALSE(stream.exchange->gone());
  stream.client.close();
  EXPECT_TRUE(stream.gone->wait());
  EXPECT_TRUE(stream.exchange->gone());
  stream.exchange->write("into the void");
  EXPECT_EQ(stream.exchange->pending_bytes(), 0u);
  stream.exchange->finish();
}

TEST(HttpStream, NoticesThatTheClientLeftBeforeAnyAnswer) {
  TestServer server;
  Stream closed(server), reset(server);
  closed.client.close();
  EXPECT_TRUE(closed.gone->wait());
  reset.client.reset();
  EXPECT_TRUE(reset.gone->wait());
  closed.exchange->respond({200, {}, "for nobody"});
  EXPECT_TRUE(closed.exchange->gone());
}

TEST(HttpStream, CallsBackAtOnceWhenTheClientHasLeftAlready) {
  TestServer server;
  TestClient client(server.port());
  client.send(test_get("/wait"));
  const TestCall call = server.next();
  client.close();
  const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
  while (!call.exchange->gone() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  bool called = false;
  call.exchange->on_gone([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(HttpStream, FreesACallbackThatHoldsItsExchange) {
  TestServer server;
  const auto token = std::make_shared<int>(0);
  for (const char* how : {"finish", "leave"}) {
    TestClient client(server.port());
    client.send(test_get("/wait"));
    TestCall call = server.next();
    call.exchange->on_gone([token, exchange = call.exchange] { exchange->finish(); });
    call.exchange->start_stream(200, {});
    if (how == std::string("finish")) {
      call.exchange->finish();
      EXPECT_TRUE(client.receive().whole);
    }
    call = {};
    client.close();
    const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
    while (token.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(token.use_count(), 1) << how;
  }
}

TEST(HttpStream, TakesAHalfClosedClientForOneThatLeft) {
  TestServer server;
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  stream.client.receive_until("\r\n\r\n");
  stream.client.half_close();
  EXPECT_TRUE(stream.gone->wait());
  EXPECT_TRUE(stream.client.ended());
}

TEST(HttpStream, AnswersAHalfClosedClientWhatIsThereAtOnce) {
  TestServer server;
  TestClient client(server.port());
  client.send(test_get("/one") + test_get("/two"));
  client.half_close();
  EXPECT_EQ(client.receive().body, "GET /one ");
  EXPECT_EQ(client.receive().body, "GET /two ");
  EXPECT_TRUE(client.ended());
}

TEST(HttpStream, CutsAStreamThatIsNotFinished) {
  TestServer server;
  for (const char* how : {"abort", "drop"}) {
    Stream stream(server);
    stream.exchange->start_stream(200, {});
    stream.exchange->write("a piece");
    if (how == std::string("abort")) stream.exchange->abort();
    stream.exchange.reset();
    const std::string all = stream.client.receive_all();
    EXPECT_TRUE(all.ends_with("\r\n\r\n7\r\na piece\r\n")) << how << ": " << all;
    EXPECT_FALSE(stream.gone->is_set()) << how;
  }
}

TEST(HttpStream, CutsAClientThatReadsTooLittle) {
  HttpOptions options;
  options.pending_bytes_max = 1 << 20;
  TestServer server(options);
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  const std::string piece(64 << 10, 'x');
  // The network takes some megabytes; a gigabyte it does not.
  size_t most = 0;
  for (int index = 0; index < 16384 && !stream.exchange->gone(); ++index) {
    stream.exchange->write(piece);
    most = std::max(most, stream.exchange->pending_bytes());
  }
  EXPECT_TRUE(stream.exchange->gone());
  EXPECT_TRUE(stream.gone->wait());
  EXPECT_GT(most, piece.size());
  EXPECT_LE(most, options.pending_bytes_max + 3 * piece.size()) << "what it owes, and what the connection holds";
  EXPECT_EQ(TestClient(server.port()).ask(test_get("/other")).status, 200);
}

// A burst of far more than a client may owe: in pieces that are made for it, in large ones, and between them small
// ones like those of an answer that goes on.
TEST(HttpStream, NeverCutsAClientThatReads) {
  HttpOptions options;
  options.pending_bytes_max = 64 << 10;
  for (const bool http_1_0 : {false, true}) {
    TestServer server(options);
    TestClient client(server.port());
    client.send(http_1_0 ? "GET /wait HTTP/1.0\r\n\r\n" : test_get("/wait"));
    const auto exchange = server.next().exchange;
    exchange->start_stream(200, {});
    std::string expected;
    for (int burst = 0; burst < 3; ++burst) {
      exchange->write_from([piece = 0, burst]() mutable {
        return ++piece <= 400 ? std::string(20000, static_cast<char>('a' + burst)) : std::string();
      });
      exchange->write(std::string(1 << 20, 'L'));
      exchange->write("small ");
      expected.append(size_t{400} * 20000, static_cast<char>('a' + burst)).append(1 << 20, 'L').append("small ");
    }
    exchange->finish();
    if (http_1_0) {
      EXPECT_TRUE(client.receive_all().ends_with("\r\n\r\n" + expected));
      continue;
    }
    const TestResponse response = client.receive();
    EXPECT_TRUE(response.whole);
    EXPECT_TRUE(response.body == expected);
    EXPECT_EQ(client.ask(test_get("/next")).body, "GET /next ");
  }
}

TEST(HttpStream, MakesNothingForAClientThatDoesNotRead) {
  HttpOptions options;
  options.pending_bytes_max = 1 << 20;
  TestServer server(options);
  Stream stream(server);
  std::atomic<int> made{0};
  stream.exchange->start_stream(200, {});
  stream.exchange->write_from([&made] { return ++made <= 16384 ? std::string(64 << 10, 'x') : std::string(); });
  const std::string small(2000, 'y');
  for (int index = 0; index < 1024 && !stream.exchange->gone(); ++index) stream.exchange->write(small);
  EXPECT_TRUE(stream.exchange->gone()) << "what waits behind a source counts";
  EXPECT_TRUE(stream.gone->wait());
  EXPECT_LT(made, 16384);
}

TEST(HttpStream, CutsAStreamWhoseSourceThrows) {
  TestServer server;
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  stream.exchange->write_from([]() -> std::string { throw std::runtime_error("a bug"); });
  EXPECT_TRUE(stream.gone->wait());
  EXPECT_EQ(TestClient(server.port()).ask(test_get("/other")).status, 200);
}

TEST(HttpStream, LetsASourceHoldTheLastReference) {
  TestServer server;
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  stream.exchange->write_from([held = stream.exchange, left = 2]() mutable {
    return std::string(left-- > 0 ? "piece " : "");
  });
  stream.exchange->finish();
  stream.exchange.reset();
  EXPECT_EQ(stream.client.receive().body, "piece piece ");
}

TEST(HttpStream, CutsAClientThatStoppedReading) {
  HttpOptions options;
  options.pending_bytes_max = size_t{1} << 30;
  options.write_timeout = milliseconds(200);
  TestServer server(options);
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  stream.exchange->write(std::string(size_t{64} << 20, 'x'));
  EXPECT_TRUE(stream.gone->wait());
}

TEST(HttpStream, SendsAnAnswerLargerThanAStreamMayKeepBack) {
  HttpOptions options;
  options.pending_bytes_max = 1000;
  TestServer server(options);
  Stream stream(server);
  const std::string body(size_t{24} << 20, 'y');
  stream.exchange->respond({200, {}, body});
  EXPECT_TRUE(stream.client.receive().body == body);
}

TEST(HttpStream, MayOutliveTheServer) {
  auto server = std::make_unique<TestServer>();
  Stream streaming(*server), silent(*server);
  streaming.exchange->start_stream(200, {});
  streaming.exchange->write("a piece");
  server->destroy();
  EXPECT_TRUE(streaming.gone->is_set());
  EXPECT_TRUE(silent.gone->is_set());
  for (Stream* stream : {&streaming, &silent}) {
    EXPECT_TRUE(stream->exchange->gone());
    stream->exchange->write("more");
    stream->exchange->respond({200, {}, ""});
    stream->exchange->abort();
    stream->exchange.reset();
  }
}

TEST(HttpStream, SurvivesServersThatEndUnderItsHands) {
  for (int round = 0; round < 20; ++round) {
    auto server = std::make_unique<TestServer>();
    std::vector<std::unique_ptr<Stream>> streams;
    for (int index = 0; index < 4; ++index) streams.push_back(std::make_unique<Stream>(*server));
    std::atomic<bool> run{true};
    std::thread engine([&] {
      for (auto& stream : streams) stream->exchange->start_stream(200, {});
      while (run)
        for (auto& stream : streams) stream->exchange->write("x");
    });
    for (auto& stream : streams) stream->client.receive_bytes(10);
    server->destroy();
    run = false;
    engine.join();
    for (auto& stream : streams) EXPECT_TRUE(stream->gone->is_set());
  }
}

TEST(HttpStop, LetsARunningAnswerFinish) {
  TestServer server;
  Stream stream(server);
  TestClient idle(server.port());
  EXPECT_EQ(idle.ask(test_get("/")).status, 200);
  stream.exchange->start_stream(200, {});
  stream.client.receive_until("\r\n\r\n");
  std::thread stopper([&] { server.server().stop(kTestPatience); });
  EXPECT_TRUE(idle.ended()) << "an idle connection is closed";
  EXPECT_LT(TestClient(server.port()).socket(), 0) << "nobody is let in any more";
  stream.exchange->write("the end");
  stream.exchange->finish();
  EXPECT_EQ(stream.client.receive_all(), "7\r\nthe end\r\n0\r\n\r\n");
  stopper.join();
  EXPECT_FALSE(stream.gone->is_set());
  EXPECT_EQ(server.server().connections(), 0);
}

TEST(HttpStop, CutsWhatDoesNotFinishInTime) {
  TestServer server;
  Stream stream(server);
  stream.exchange->start_stream(200, {});
  stream.client.receive_until("\r\n\r\n");
  server.server().stop(milliseconds(50));
  EXPECT_TRUE(stream.gone->is_set());
  EXPECT_TRUE(stream.client.ended());
  server.server().stop(milliseconds(50));  // twice is once
}

}  // namespace
}  // namespace fathom
