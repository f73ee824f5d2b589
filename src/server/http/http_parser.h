// The bytes of an HTTP/1 request become an HttpRequest. No I/O: bytes may come in pieces of any size.
//
// Stricter than the RFCs demand wherever a proxy in front could read the same bytes differently: no folded lines,
// no bare line feeds, one way to say a body's length. What is refused here closes the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace fathom {

/// Why a request is refused.
struct HttpFailure {
  int status = 0;  // 400, 413, 417, 431, 501, 503 or 505
  std::string message;
};

struct HttpHead {
  HttpRequest request;   // without body and peer; HEAD is told as GET
  bool version_1_0 = false;
  bool is_head = false;  // asked by HEAD: the answer goes without its body
  bool keep_alive = false;
  bool expects_continue = false;
  bool chunked = false;
  uint64_t content_length = 0;

  bool has_body() const { return chunked || content_length > 0; }
};

/// Finds the end of a head.
class HttpHeadScanner {
 public:
  explicit HttpHeadScanner(size_t bytes_max) : bytes_max_(bytes_max) {}

  /// `bytes`: all that was received since the head began, at least as much as last time. Returns the size of the
  /// head with its empty line; 0 if more is needed or, with `failure` set, if it can never become one.
  size_t scan(std::string_view bytes, std::optional<HttpFailure>& failure);

 private:
  size_t bytes_max_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  bool begun_ = false;  // the request line's first byte was seen; empty lines before it are skipped
};

/// `bytes`: what the scanner found. Sets `failure` and returns nothing if it is no request that can be served.
std::optional<HttpHead> parse_http_head(std::string_view bytes, std::optional<HttpFailure>& failure);

/// Collects a request's body.
class HttpBodyReader {
 public:
  /// bytes_max: of the body; framing_bytes_max: of the trailers, and of one chunk's extensions.
  HttpBodyReader(const HttpHead& head, size_t bytes_max, size_t framing_bytes_max);

  /// Takes what belongs to the body from the front of `bytes` and appends it to `body`. False: the body is
  /// malformed or too long, see `failure`.
  bool take(std::string_view& bytes, std::string& body, std::optional<HttpFailure>& failure);
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kData, kSize, kExtension, kSizeEnd, kChunkData, kChunkCr, kChunkLf, kTrailer, kDone };

  bool take_framing(char byte, std::optional<HttpFailure>& failure);
  bool take_size_digit(char byte, std::optional<HttpFailure>& failure);
  bool take_trailer(char byte, std::optional<HttpFailure>& failure);
  bool begin_chunk(std::optional<HttpFailure>& failure);

  size_t bytes_max_, framing_bytes_max_;
  State state_ = State::kDone;
  uint64_t left_ = 0;   // of the body, or of the chunk
  size_t taken_ = 0;    // of the body
  size_t framing_ = 0;  // bytes of the extension, or of all trailers
  int digits_ = 0;
  std::string line_;    // of the trailers
};

/// "/a%20b" -> "/a b". Nothing for wrong escapes, control characters, backslashes, invalid UTF-8 and for segments
/// "." and "..", escaped or not.
std::optional<std::string> decode_http_path(std::string_view path);

/// Whether `value`, a list like "keep-alive, Upgrade", has `token` (lower case) in any case.
bool http_list_has(std::string_view value, std::string_view token);

bool is_http_token(std::string_view text);
std::string http_lower_case(std::string_view text);

}  // namespace fathom
