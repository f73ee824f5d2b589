// Status lines and headers of answers. No I/O.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_server.h"

namespace fathom {

enum class HttpFraming { kLength, kChunked, kUntilClose, kNone };

struct HttpAnswerHead {
  int status = 200;
  const HttpHeaders* headers = nullptr;
  HttpFraming framing = HttpFraming::kLength;
  uint64_t body_bytes = 0;        // for kLength
  bool version_1_0 = false;       // of the request
  bool keep_alive = true;
  std::string_view cors_origin;   // "": no other page may read this
  bool varies_by_origin = false;
  std::string_view date;          // from http_date()
};

/// Status line and headers with the empty line. Headers that frame the message and name the date are the server's;
/// those given under these names are left out. Line ends in values become spaces.
std::string format_http_head(const HttpAnswerHead& head);

/// The answer to a preflight question; `requested_headers` is allowed as it was asked.
HttpHeaders cors_preflight_headers(std::string_view requested_headers);

/// What Access-Control-Allow-Origin shall say to `origin`: "" for nothing.
std::string cors_allowed_origin(const std::vector<std::string>& allowed, std::string_view origin);

/// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::time_t time);

bool http_status_has_body(int status);

/// "5\r\nhello\r\n"; nothing for no bytes, which would end the body.
void append_http_chunk(std::string& out, std::string_view bytes);

}  // namespace fathom
