#include "server/http/http_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/check.h"
#include "server/http/http_parser.h"

namespace fathom {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    case 529: return "Overloaded";
    default: return "Status";
  }
}

bool is_ours(const std::string& name) {
  static constexpr std::array<std::string_view, 6> kOurs = {"connection", "content-length", "date",
                                                            "keep-alive", "transfer-encoding", "trailer"};
  return std::find(kOurs.begin(), kOurs.end(), http_lower_case(name)) != kOurs.end();
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (char c : value) out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c);
  out.append("\r\n");
}

}  // namespace

bool http_status_has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

std::string format_http_head(const HttpAnswerHead& head) {
  FATHOM_CHECK(head.status >= 100 && head.status <= 999, "status {}", head.status);
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason_of(head.status));
  append_field(out, "date", head.date);
  append_field(out, "x-content-type-options", "nosniff");
  for (const auto& [name, value] : *head.headers) {
    FATHOM_CHECK(is_http_token(name), "\"{}\" is no name of a header", name);
    if (!is_ours(name)) append_field(out, name, value);
  }
  if (!head.cors_origin.empty()) {
    append_field(out, "access-control-allow-origin", head.cors_origin);
    append_field(out, "access-control-expose-headers", "*");
  }
  if (head.varies_by_origin) append_field(out, "vary", "Origin");
  if (head.framing == HttpFraming::kLength)
    fmt::format_to(std::back_inserter(out), "content-length: {}\r\n", head.body_bytes);
  else if (head.framing == HttpFraming::kChunked)
    append_field(out, "transfer-encoding", "chunked");
  if (!head.keep_alive)
    append_field(out, "connection", "close");
  else if (head.version_1_0)
    append_field(out, "connection", "keep-alive");
  out.append("\r\n");
  return out;
}

HttpHeaders cors_preflight_headers(std::string_view requested_headers) {
  HttpHeaders headers = {{"access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
                         {"access-control-max-age", "600"}};
  if (!requested_headers.empty()) headers.emplace_back("access-control-allow-headers", requested_headers);
  return headers;
}

std::string cors_allowed_origin(const std::vector<std::string>& allowed, std::string_view origin) {
  if (origin.empty()) return {};
  for (const std::string& each : allowed) {
    if (each == "*") return "*";
    if (each == origin) return each;
  }
  return {};
}

std::string http_date(std::time_t time) {
  static constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(utc.tm_wday)],
                     utc.tm_mday, kMonths[static_cast<size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour,
                     utc.tm_min, utc.tm_sec);
}

void append_http_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out.append(bytes).append("\r\n");
}

}  // namespace fathom
