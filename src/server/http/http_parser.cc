#include "server/http/http_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/utf8.h"

namespace fathom {
namespace {

constexpr size_t kHeaderCountMax = 200;
constexpr int kSizeDigitsMax = 15;  // below 2^60: no sum with it can overflow

constexpr std::array<std::string_view, 7> kMethods = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"};

bool is_token_char(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool fail(std::optional<HttpFailure>& failure, int status, std::string message) {
  failure = HttpFailure{status, std::move(message)};
  return false;
}

/// The next line without its CRLF; the scanner has seen to it that line ends are CRLF.
std::string_view take_line(std::string_view& bytes) {
  const size_t end = bytes.find("\r\n");
  const std::string_view line = bytes.substr(0, end);
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 2);
  return line;
}

/// Splits "Name: value". False if it is none.
bool split_field(std::string_view line, std::string_view& name, std::string_view& value) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return false;
  name = line.substr(0, colon);
  value = trim(line.substr(colon + 1));
  return is_http_token(name) &&
         std::none_of(value.begin(), value.end(), [](char c) { return c != '\t' && is_control(c); });
}

bool has_dot_segment(std::string_view path) {
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view segment = path.substr(0, end);
    if (segment == "." || segment == "..") return true;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return false;
}

bool parse_target(std::string_view target, HttpRequest& request, std::optional<HttpFailure>& failure) {
  if (std::any_of(target.begin(), target.end(), [](char c) { return c <= 0x20 || c >= 0x7F || c == '#'; }))
    return fail(failure, 400, "the request target has a character that must be percent-encoded");
  if (target == "*" && request.method == "OPTIONS") target = "/";
  // Proxies are sent the whole address; every server must understand it.
  const std::string scheme = http_lower_case(target.substr(0, 8));
  for (std::string_view prefix : {std::string_view("http://"), std::string_view("https://")}) {
    if (!scheme.starts_with(prefix)) continue;
    target.remove_prefix(prefix.size());
    const size_t slash = target.find_first_of("/?");
    if (slash == 0) return fail(failure, 400, "the request target has no host");
    target = slash == std::string_view::npos ? std::string_view() : target.substr(slash);
    break;
  }
  const size_t question = std::min(target.find('?'), target.size());
  request.query = target.substr(std::min(question + 1, target.size()));
  target = target.substr(0, question);
  if (target.empty() && !scheme.empty() && scheme[0] != '/' && scheme[0] != '?') target = "/";
  if (target.empty() || target[0] != '/')
    return fail(failure, 400, "the request target does not begin with \"/\"");
  std::optional<std::string> path = decode_http_path(target);
  if (!path)
    return fail(failure, 400,
                "the path has a wrong percent-encoding, a control character, \"\\\", \".\" or \"..\"");
  request.path = std::move(*path);
  return true;
}

bool parse_request_line(std::string_view line, HttpHead& head, std::optional<HttpFailure>& failure) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !is_http_token(line.substr(0, first)))
    return fail(failure, 400, "the request line is not \"METHOD target HTTP/1.1\"");
  const std::string_view version = line.substr(last + 1);
  if (version.size() != 8 || !version.starts_with("HTTP/") || version[6] != '.' || version[5] < '0' ||
      version[5] > '9' || version[7] < '0' || version[7] > '9')
    return fail(failure, 400, "the request line is not \"METHOD target HTTP/1.1\"");
  if (version[5] != '1') return fail(failure, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  head.version_1_0 = version[7] == '0';
  head.request.method = line.substr(0, first);
  if (std::find(kMethods.begin(), kMethods.end(), head.request.method) == kMethods.end())
    return fail(failure, 501, "the method is not one of GET, HEAD, POST, PUT, DELETE, PATCH and OPTIONS");
  if (!parse_target(line.substr(first + 1, last - first - 1), head.request, failure)) return false;
  head.is_head = head.request.method == "HEAD";
  if (head.is_head) head.request.method = "GET";
  return true;
}

bool parse_fields(std::string_view bytes, HttpHead& head, std::optional<HttpFailure>& failure) {
  while (!bytes.empty()) {
    const std::string_view line = take_line(bytes);
    if (line.empty()) break;
    if (line[0] == ' ' || line[0] == '\t') return fail(failure, 400, "a header is folded over two lines");
    std::string_view name, value;
    if (!split_field(line, name, value)) return fail(failure, 400, "a header line is not \"Name: value\"");
    if (head.request.headers.size() == kHeaderCountMax)
      return fail(failure, 431, "the request has too many headers");
    head.request.headers.emplace_back(http_lower_case(name), value);
  }
  return true;
}

bool parse_length(const std::string& value, uint64_t& length, std::optional<HttpFailure>& failure) {
  length = 0;
  if (value.empty() || !std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return fail(failure, 400, "Content-Length is not a number");
  if (value.size() > kSizeDigitsMax) return fail(failure, 413, "Content-Length is too large");
  for (char c : value) length = length * 10 + static_cast<uint64_t>(c - '0');
  return true;
}

bool apply_fields(HttpHead& head, std::optional<HttpFailure>& failure) {
  int hosts = 0, lengths = 0, codings = 0;
  bool close = false, keep = false;
  for (const auto& [name, value] : head.request.headers) {
    if (name == "host") {
      ++hosts;
    } else if (name == "content-length") {
      ++lengths;
      if (!parse_length(value, head.content_length, failure)) return false;
    } else if (name == "transfer-encoding") {
      ++codings;
      if (http_lower_case(value) != "chunked")
        return fail(failure, 501, "no Transfer-Encoding but \"chunked\" is understood");
      head.chunked = true;
    } else if (name == "connection") {
      close = close || http_list_has(value, "close");
      keep = keep || http_list_has(value, "keep-alive");
    } else if (name == "expect" && !head.version_1_0) {
      if (http_lower_case(value) != "100-continue")
        return fail(failure, 417, "no expectation but \"100-continue\" can be met");
      head.expects_continue = true;
    }
  }
  if (hosts > 1 || (hosts == 0 && !head.version_1_0))
    return fail(failure, 400, "expected exactly one Host header");
  if (lengths + codings > 1)
    return fail(failure, 400, "expected at most one of Content-Length and Transfer-Encoding, and that once");
  if (codings > 0 && head.version_1_0) return fail(failure, 400, "HTTP/1.0 has no Transfer-Encoding");
  head.keep_alive = !close && (!head.version_1_0 || keep);
  return true;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

bool is_http_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

std::string http_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

bool http_list_has(std::string_view value, std::string_view token) {
  while (!value.empty()) {
    const size_t end = std::min(value.find(','), value.size());
    if (http_lower_case(trim(value.substr(0, end))) == token) return true;
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  return false;
}

std::optional<std::string> decode_http_path(std::string_view path) {
  std::string decoded;
  decoded.reserve(path.size());
  for (size_t at = 0; at < path.size(); ++at) {
    char c = path[at];
    if (c == '%') {
      const int high = at + 1 < path.size() ? hex_value(path[at + 1]) : -1;
      const int low = at + 2 < path.size() ? hex_value(path[at + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      at += 2;
    }
    if (is_control(c) || c == '\\') return std::nullopt;
    decoded.push_back(c);
  }
  if (!is_valid_utf8(decoded) || has_dot_segment(decoded)) return std::nullopt;
  return decoded;
}

size_t HttpHeadScanner::scan(std::string_view bytes, std::optional<HttpFailure>& failure) {
  for (; at_ < bytes.size(); ++at_) {
    if (at_ >= bytes_max_) {
      fail(failure, 431, "the request's headers are too long");
      return 0;
    }
    const char c = bytes[at_];
    const bool after_cr = at_ > 0 && bytes[at_ - 1] == '\r';
    if ((c == '\n') != after_cr) {
      fail(failure, 400, "a line of the headers does not end with CR LF");
      return 0;
    }
    if (c == '\n') {
      const bool empty = at_ == line_begin_ + 1;
      line_begin_ = at_ + 1;
      if (empty && begun_) return ++at_;
    } else if (c != '\r') {
      // Garbage, a TLS greeting for example, is told at once; it may never have an end of line.
      if ((is_control(c) && c != '\t') || (!begun_ && !is_token_char(c))) {
        fail(failure, 400, "this is not HTTP: a control character in the headers, or a method that is none");
        return 0;
      }
      begun_ = true;
    }
  }
  return 0;
}

std::optional<HttpHead> parse_http_head(std::string_view bytes, std::optional<HttpFailure>& failure) {
  HttpHead head;
  while (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  if (!parse_request_line(take_line(bytes), head, failure) || !parse_fields(bytes, head, failure) ||
      !apply_fields(head, failure))
    return std::nullopt;
  return head;
}

HttpBodyReader::HttpBodyReader(const HttpHead& head, size_t bytes_max, size_t framing_bytes_max)
    : bytes_max_(bytes_max), framing_bytes_max_(framing_bytes_max) {
  if (head.chunked) {
    state_ = State::kSize;
  } else if (head.content_length > 0) {
    state_ = State::kData;
    left_ = head.content_length;
  }
}

bool HttpBodyReader::take(std::string_view& bytes, std::string& body, std::optional<HttpFailure>& failure) {
  while (!bytes.empty() && state_ != State::kDone) {
    if (state_ != State::kData && state_ != State::kChunkData) {
      if (!take_framing(bytes[0], failure)) return false;
      bytes.remove_prefix(1);
      continue;
    }
    const auto count = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
    if (count > bytes_max_ - taken_) return fail(failure, 413, "the body is too long");
    body.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    taken_ += count;
    left_ -= count;
    if (left_ == 0) state_ = state_ == State::kData ? State::kDone : State::kChunkCr;
  }
  return true;
}

bool HttpBodyReader::take_framing(char byte, std::optional<HttpFailure>& failure) {
  switch (state_) {
    case State::kSize:
      return take_size_digit(byte, failure);
    case State::kExtension:
      if (byte == '\r') {
        state_ = State::kSizeEnd;
      } else if (is_control(byte) && byte != '\t') {
        return fail(failure, 400, "a control character in a chunk's extension");
      } else if (++framing_ > framing_bytes_max_) {
        return fail(failure, 431, "a chunk's extension is too long");
      }
      return true;
    case State::kSizeEnd:
      return byte == '\n' ? begin_chunk(failure) : fail(failure, 400, "a chunk's size does not end with CR LF");
    case State::kChunkCr:
      state_ = State::kChunkLf;
      return byte == '\r' || fail(failure, 400, "a chunk does not end with CR LF");
    case State::kChunkLf:
      state_ = State::kSize;
      return byte == '\n' || fail(failure, 400, "a chunk does not end with CR LF");
    case State::kTrailer:
      return take_trailer(byte, failure);
    case State::kData:
    case State::kChunkData:
    case State::kDone:
      break;
  }
  return true;
}

bool HttpBodyReader::take_size_digit(char byte, std::optional<HttpFailure>& failure) {
  const int digit = hex_value(byte);
  if (digit >= 0) {
    if (++digits_ > kSizeDigitsMax) return fail(failure, 400, "a chunk's size has too many digits");
    left_ = left_ * 16 + static_cast<uint64_t>(digit);
    return true;
  }
  if (digits_ == 0 || (byte != ';' && byte != '\r')) return fail(failure, 400, "a chunk's size is not a number");
  state_ = byte == ';' ? State::kExtension : State::kSizeEnd;
  framing_ = 0;
  return true;
}

bool HttpBodyReader::begin_chunk(std::optional<HttpFailure>& failure) {
  digits_ = 0;
  framing_ = 0;
  state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
  return left_ <= bytes_max_ - taken_ || fail(failure, 413, "the body is too long");
}

bool HttpBodyReader::take_trailer(char byte, std::optional<HttpFailure>& failure) {
  if (++framing_ > framing_bytes_max_) return fail(failure, 431, "the body's trailers are too long");
  const bool after_cr = !line_.empty() && line_.back() == '\r';
  if ((byte == '\n') != after_cr) return fail(failure, 400, "a trailer does not end with CR LF");
  if (byte != '\n') {
    line_.push_back(byte);
    return true;
  }
  line_.pop_back();
  std::string_view name, value;
  if (line_.empty())
    state_ = State::kDone;
  else if (!split_field(line_, name, value))
    return fail(failure, 400, "a trailer is not \"Name: value\"");
  line_.clear();
  return true;
}

}  // namespace fathom
