#include "server/http/http_parser.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

struct Parsed {
  int status = 0;  // 0: served
  HttpHead head;
  std::string body;
  size_t consumed = 0;
  bool done = false;
};

/// `cuts`: sizes of the pieces in which the bytes arrive; the last piece is the rest.
Parsed parse(std::string_view bytes, const std::vector<size_t>& cuts = {}, size_t body_max = 1000,
             size_t head_max = 4096) {
  Parsed parsed;
  HttpHeadScanner scanner(head_max);
  std::optional<HttpHead> head;
  std::optional<HttpBodyReader> reader;
  std::optional<HttpFailure> failure;
  size_t arrived = 0;
  for (size_t piece = 0; piece <= cuts.size() && !parsed.done && !failure; ++piece) {
    arrived = piece < cuts.size() ? std::min(bytes.size(), arrived + cuts[piece]) : bytes.size();
    if (!head) {
      const size_t size = scanner.scan(bytes.substr(0, arrived), failure);
      if (size > 0) head = parse_http_head(bytes.substr(0, size), failure);
      if (!head) continue;
      parsed.consumed = size;
      reader.emplace(*head, body_max, head_max);
    }
    std::string_view rest = bytes.substr(parsed.consumed, arrived - parsed.consumed);
    reader->take(rest, parsed.body, failure);
    parsed.consumed = arrived - rest.size();
    parsed.done = reader->done() && !failure;
  }
  if (failure) parsed.status = failure->status;
  if (head) parsed.head = std::move(*head);
  return parsed;
}

constexpr std::string_view kChunked =
    "POST /v1/a%20b?x=%20y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nX-Odd:  two words \t\r\n\r\n"
    "4;name=\"v\"\r\nWiki\r\n00A\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";

TEST(HttpParser, ReadsHeadBodyAndTrailers) {
  const std::string bytes = std::string(kChunked) + "GET / HTTP/1.1";
  const Parsed parsed = parse(bytes);
  EXPECT_EQ(parsed.status, 0);
  EXPECT_TRUE(parsed.done);
  EXPECT_EQ(parsed.consumed, kChunked.size());
  EXPECT_EQ(parsed.body, "Wiki0123456789");
  const HttpRequest& request = parsed.head.request;
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/a b");
  EXPECT_EQ(request.query, "x=%20y");
  EXPECT_EQ(request.header("x-odd"), "two words");
  EXPECT_EQ(request.header("absent"), "");
  EXPECT_TRUE(parsed.head.keep_alive);
}

TEST(HttpParser, DoesNotDependOnWhereBytesAreCut) {
  for (size_t first = 0; first <= kChunked.size(); ++first) {
    for (size_t second : {size_t{1}, size_t{7}, kChunked.size()}) {
      const Parsed parsed = parse(kChunked, {first, second});
      ASSERT_TRUE(parsed.done) << first << " " << second;
      ASSERT_EQ(parsed.consumed, kChunked.size());
      ASSERT_EQ(parsed.body, "Wiki0123456789");
      ASSERT_EQ(parsed.head.request.path, "/v1/a b");
    }
  }
  const Parsed single = parse(kChunked, std::vector<size_t>(kChunked.size(), 1));
  EXPECT_TRUE(single.done);
  EXPECT_EQ(single.body, "Wiki0123456789");
}

TEST(HttpParser, NeverTakesAnUnfinishedRequestForWhole) {
  for (size_t size = 0; size < kChunked.size(); ++size) {
    const Parsed parsed = parse(kChunked.substr(0, size));
    ASSERT_FALSE(parsed.done) << size;
    ASSERT_EQ(parsed.status, 0) << size;
  }
}

struct Refused {
  const char* why;
  int status;
  std::string bytes;
};

std::string with(std::string_view headers, std::string_view body = "") {
  return "POST / HTTP/1.1\r\nHost: h\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

TEST(HttpParser, RefusesWhatCouldBeReadInTwoWays) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  const std::vector<Refused> cases = {
      {"both lengths", 400, with("Content-Length: 5\r\n" + chunked, "0\r\n\r\n")},
      {"both lengths, other order", 400, with(chunked + "Content-Length: 5\r\n", "0\r\n\r\n")},
      {"length twice", 400, with("Content-Length: 5\r\nContent-Length: 6\r\n")},
      {"length twice, equal", 400, with("Content-Length: 5\r\nContent-Length: 5\r\n", "12345")},
      {"length as a list", 400, with("Content-Length: 5, 5\r\n", "12345")},
      {"negative length", 400, with("Content-Length: -1\r\n")},
      {"signed length", 400, with("Content-Length: +5\r\n", "12345")},
      {"hexadecimal length", 400, with("Content-Length: 0x5\r\n", "12345")},
      {"empty length", 400, with("Content-Length:\r\n")},
      {"length with a space inside", 400, with("Content-Length: 1 2\r\n")},
      {"length beyond 64 bits", 413, with("Content-Length: 99999999999999999999999\r\n")},
      {"space before the colon", 400, with("Content-Length : 5\r\n", "12345")},
      {"space before the name", 400, with(" Content-Length: 5\r\n", "12345")},
      {"folded header", 400, with("X: a\r\n b\r\n")},
      {"folded header with a tab", 400, with("X: a\r\n\tb\r\n")},
      {"line feed alone", 400, "POST / HTTP/1.1\nHost: h\n\n"},
      {"line feed alone in the middle", 400, with("X: a\nContent-Length: 5\r\n")},
      {"carriage return alone", 400, with("X: a\rContent-Length: 5\r\n")},
      {"carriage return twice", 400, with("X: a\r\r\n")},
      {"NUL in a value", 400, with(std::string("X: a\0b\r\n", 8))},
      {"NUL in a name", 400, with(std::string("X\0: a\r\n", 7))},
      {"control character in a value", 400, with("X: a\x01\r\n")},
      {"delete in a value", 400, with("X: a\x7f\r\n")},
      {"no colon", 400, with("Header\r\n")},
      {"no name", 400, with(": value\r\n")},
      {"brackets in a name", 400, with("X[]: value\r\n")},
      {"unknown coding", 501, with("Transfer-Encoding: xchunked\r\n")},
      {"two codings", 501, with("Transfer-Encoding: gzip, chunked\r\n")},
      {"chunked twice", 400, with(chunked + chunked, "0\r\n\r\n")},
      {"coding with a vertical tab", 400, with("Transfer-Encoding:\x0b" "chunked\r\n")},
      {"coding in HTTP/1.0", 400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {"two hosts", 400, with("Host: other\r\n")},
      {"no host", 400, "GET / HTTP/1.1\r\n\r\n"},
      {"empty chunk size", 400, with(chunked, "\r\n")},
      {"no number as chunk size", 400, with(chunked, "x\r\n")},
      {"chunk size with 0x", 400, with(chunked, "0x5\r\nhello\r\n0\r\n\r\n")},
      {"signed chunk size", 400, with(chunked, "+5\r\nhello\r\n0\r\n\r\n")},
      {"space before the chunk size", 400, with(chunked, " 5\r\nhello\r\n0\r\n\r\n")},
      {"space after the chunk size", 400, with(chunked, "5 \r\nhello\r\n0\r\n\r\n")},
      {"chunk size beyond 64 bits", 400, with(chunked, "10000000000000005\r\nhello\r\n0\r\n\r\n")},
      {"chunk size with a line feed alone", 400, with(chunked, "5\nhello\r\n0\r\n\r\n")},
      {"extension with a line feed alone", 400, with(chunked, "5;x\nhello\r\n0\r\n\r\n")},
      {"chunk longer than it says", 400, with(chunked, "4\r\nhello\r\n0\r\n\r\n")},
      {"chunk without an end", 400, with(chunked, "5\r\nhello0\r\n\r\n")},
      {"chunk with a line feed alone", 400, with(chunked, "5\r\nhello\n0\r\n\r\n")},
      {"trailer that is none", 400, with(chunked, "0\r\nnothing\r\n\r\n")},
      {"trailer with a line feed alone", 400, with(chunked, "0\r\nA: b\n\r\n")},
      {"no target", 400, "GET HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"two spaces", 400, "GET  / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"space in the target", 400, "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"tab for a space", 400, "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"space at the end", 400, "GET / HTTP/1.1 \r\nHost: h\r\n\r\n"},
      {"fragment", 400, "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"raw bytes in the target", 400, "GET /\xC3\xA9 HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"target without slash", 400, "GET a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"target without host", 400, "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"HTTP/0.9", 400, "GET /\r\n\r\n"},
      {"lower-case protocol", 400, "GET / http/1.1\r\nHost: h\r\n\r\n"},
      {"protocol with more digits", 400, "GET / HTTP/1.10\r\nHost: h\r\n\r\n"},
      {"HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"CONNECT", 501, "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"TRACE", 501, "TRACE / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"lower-case method", 501, "get / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {"unknown expectation", 417, with("Expect: wonders\r\n")},
      {"a TLS greeting", 400, std::string("\x16\x03\x01\x02\x00\x01", 6)},
      {"an SSH greeting of control characters", 400, std::string("\x00\x00", 2)},
  };
  for (const Refused& each : cases) {
    EXPECT_EQ(parse(each.bytes).status, each.status) << each.why;
    EXPECT_EQ(parse(each.bytes, std::vector<size_t>(each.bytes.size(), 1)).status, each.status) << each.why;
    EXPECT_FALSE(parse(each.bytes).done) << each.why;
  }
}

TEST(HttpParser, TakesWhatIsOdd) {
  EXPECT_EQ(parse("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").head.request.path, "/");
  EXPECT_EQ(parse("GET http://h:1/a?b HTTP/1.1\r\nHost: h\r\n\r\n").head.request.path, "/a");
  EXPECT_EQ(parse("GET HTTPS://h?b HTTP/1.1\r\nHost: h\r\n\r\n").head.request.query, "b");
  EXPECT_EQ(parse("GET HTTPS://h?b HTTP/1.1\r\nHost: h\r\n\r\n").head.request.path, "/");
  EXPECT_EQ(parse("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").head.request.path, "/");
  EXPECT_EQ(parse("GET /? HTTP/1.1\r\nHost:\r\n\r\n").head.request.query, "");
  EXPECT_TRUE(parse(with("Content-Length: 00\r\n")).done);
  EXPECT_EQ(parse(with("X: \xC3\xA9\r\n")).head.request.header("x"), "\xC3\xA9");
  const HttpHead head = parse("HEAD / HTTP/1.0\r\n\r\n").head;
  EXPECT_TRUE(head.is_head);
  EXPECT_EQ(head.request.method, "GET");
}

TEST(HttpParser, DecidesAboutKeepingTheConnection) {
  const auto keeps = [](const char* version, const std::string& headers) {
    return parse("GET / " + std::string(version) + "\r\nHost: h\r\n" + headers + "\r\n").head.keep_alive;
  };
  EXPECT_TRUE(keeps("HTTP/1.1", ""));
  EXPECT_TRUE(keeps("HTTP/1.2", ""));
  EXPECT_FALSE(keeps("HTTP/1.1", "Connection: Close\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.1", "Connection: keep-alive, close\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.1", "Connection: x\r\nConnection: close\r\n"));
  EXPECT_TRUE(keeps("HTTP/1.1", "Connection: enclose\r\n"));
  EXPECT_FALSE(keeps("HTTP/1.0", ""));
  EXPECT_TRUE(keeps("HTTP/1.0", "Connection: Keep-Alive\r\n"));
}

TEST(HttpParser, KeepsToItsLimits) {
  const std::string long_value = with("X: " + std::string(5000, 'a') + "\r\n");
  EXPECT_EQ(parse(long_value).status, 431);
  EXPECT_EQ(parse(long_value, {}, 0, 6000).status, 0);
  EXPECT_EQ(parse(std::string(5000, 'G')).status, 431);
  std::string many;
  for (int index = 0; index < 201; ++index) many += "X: y\r\n";
  EXPECT_EQ(parse(with(many)).status, 431);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(parse(with(chunked, "3e8\r\n" + std::string(1000, 'b') + "\r\n0\r\n\r\n")).body.size(), 1000u);
  EXPECT_EQ(parse(with(chunked, "3e9\r\n")).status, 413);
  EXPECT_EQ(parse(with(chunked, "3e7\r\n" + std::string(999, 'b') + "\r\n2\r\n")).status, 413);
  EXPECT_EQ(parse(with(chunked, "1;" + std::string(5000, 'e'))).status, 431);
  EXPECT_EQ(parse(with(chunked, "0\r\n" + std::string(5000, 't'))).status, 431);
}

TEST(HttpParser, DecodesPaths) {
  EXPECT_EQ(decode_http_path("/v1/models"), "/v1/models");
  EXPECT_EQ(decode_http_path("/%ED%95%9c%2Fb"), "/\xED\x95\x9C/b");
  EXPECT_EQ(decode_http_path("//a..b/.c/..."), "//a..b/.c/...");
  EXPECT_EQ(decode_http_path("/%25%32%65"), "/%2e");  // once, not twice
  for (const char* wrong :
       {"/%", "/%4", "/%4g", "/%-1", "/%00", "/%0a", "/%7f", "/\\", "/%5c", "/..", "/../a", "/a/..", "/%2e%2E/a",
        "/.", "/a/./b", "/%2e", "/..%2fa", "/%C3", "/%C3%28", "/%C0%AF", "/%ED%A0%80", "/%F4%90%80%80",
        "/%F0%80%80%80", "/%E0%80%80", "/%FF"})
    EXPECT_EQ(decode_http_path(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace fathom
