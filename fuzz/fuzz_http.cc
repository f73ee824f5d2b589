// Requests off the wire. What is parsed must not depend on how the bytes were cut; what we serve, Boost.Beast must
// refuse or read in the same way, byte for byte: two servers in a row that disagree about where a request ends are
// how requests are smuggled. Paths that are let through have nothing in them that could lead out of a folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/asio.h"
#include "server/http/http_parser.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace {

using namespace fathom;
namespace beast = boost::beast::http;

constexpr size_t kHeadMax = 2000, kBodyMax = 5000;

void require(bool holds) {
  if (!holds) std::abort();
}

struct Parsed {
  int status = 0;
  std::optional<HttpHead> head;
  std::string body;
  size_t consumed = 0;
  bool done = false;
};

/// step: how many bytes arrive at a time.
Parsed parse(std::string_view bytes, size_t step) {
  Parsed parsed;
  HttpHeadScanner scanner(kHeadMax);
  std::optional<HttpBodyReader> reader;
  std::optional<HttpFailure> failure;
  for (size_t arrived = 0; arrived < bytes.size() && !parsed.done && !failure;) {
    arrived = std::min(bytes.size(), arrived + step);
    if (!parsed.head) {
      const size_t size = scanner.scan(bytes.substr(0, arrived), failure);
      require(size <= arrived);
      if (size > 0) parsed.head = parse_http_head(bytes.substr(0, size), failure);
      if (!parsed.head) continue;
      parsed.consumed = size;
      reader.emplace(*parsed.head, kBodyMax, kHeadMax);
    }
    std::string_view rest = bytes.substr(parsed.consumed, arrived - parsed.consumed);
    const bool fine = reader->take(rest, parsed.body, failure);
    require(fine != failure.has_value());
    parsed.consumed = arrived - rest.size();
    parsed.done = reader->done() && fine;
  }
  if (failure) parsed.status = failure->status;
  return parsed;
}

void compare_with_beast(std::string_view bytes, const Parsed& ours) {
  std::string_view trimmed = bytes.substr(0, ours.consumed);
  while (trimmed.starts_with("\r\n")) trimmed.remove_prefix(2);  // Beast takes no empty lines in front
  beast::request_parser<beast::string_body> parser;
  parser.eager(true);
  parser.header_limit(1 << 20);
  parser.body_limit(1 << 20);
  size_t consumed = 0;
  error_code error;
  while (!parser.is_done() && !error && consumed < trimmed.size()) {
    const size_t count =
        parser.put(asio::const_buffer(trimmed.data() + consumed, trimmed.size() - consumed), error);
    consumed += count;
    if (count == 0) break;
  }
  if (error) return;  // it looks into fields that are of no consequence here, the extensions of chunks for example
  require(parser.is_done());
  require(consumed == trimmed.size());
  require(parser.get().body() == ours.body);
  require((parser.get().method_string() == "HEAD") == ours.head->is_head);
  require(parser.chunked() == ours.head->chunked);
}

void check_path(std::string_view path) {
  for (char c : path) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F && c != '\\');
  const std::string framed = std::string(path) + "/";
  require(framed.find("/../") == std::string::npos && framed.find("/./") == std::string::npos);
  require(!framed.starts_with("../") && !framed.starts_with("./"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Parsed whole = parse(bytes, bytes.size() + 1);
  for (size_t step : {size_t{1}, size_t{3}, size_t{64}}) {
    const Parsed cut = parse(bytes, step);
    require(cut.status == whole.status && cut.done == whole.done);
    require(cut.head.has_value() == whole.head.has_value());
    require(!cut.done || (cut.body == whole.body && cut.consumed == whole.consumed));
  }
  require(whole.body.size() <= kBodyMax);
  if (whole.head) {
    require(!whole.head->request.path.empty() && whole.head->request.path[0] == '/');
    check_path(whole.head->request.path);
  }
  if (whole.done) compare_with_beast(bytes, whole);
  if (const std::optional<std::string> path = decode_http_path(bytes)) check_path(*path);
  return 0;
}
