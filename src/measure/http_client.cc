#include "measure/http_client.h"

#include <curl/curl.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>

#include "measure/target.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr size_t kRefusalBytesMax = 64 << 10;

template <auto release>
struct Released {
  void operator()(auto* object) const { release(object); }
};
// libcurl's first two types are both void.
using Easy = std::unique_ptr<CURL, Released<curl_easy_cleanup>>;
using Multi = std::unique_ptr<CURLM, Released<curl_multi_cleanup>>;
using Url = std::unique_ptr<CURLU, Released<curl_url_cleanup>>;
using List = std::unique_ptr<curl_slist, Released<curl_slist_free_all>>;
using Text = std::unique_ptr<char, Released<curl_free>>;

bool is_loopback(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost") || host.starts_with("127.") || host == "[::1]" ||
         host == "::1";
}

/// What libcurl's callbacks write to while a request runs. They do no more than keep bytes and times.
struct Received {
  struct Piece {
    int64_t arrived_ns;
    size_t bytes;
  };
  int64_t read_ns = 0;       // of the last read from the network
  int64_t last_byte_ns = 0;  // of anything
  std::string bytes;
  std::vector<Piece> pieces;
};

size_t keep_body(char* data, size_t size, size_t count, void* user) {
  auto& received = *static_cast<Received*>(user);
  if (received.read_ns == 0) received.last_byte_ns = received.read_ns = monotonic_ns();
  received.bytes.append(data, size * count);
  if (!received.pieces.empty() && received.pieces.back().arrived_ns == received.read_ns)
    received.pieces.back().bytes += size * count;
  else
    received.pieces.push_back({received.read_ns, size * count});
  return size * count;
}

// libcurl tells of each read here before it takes the chunks apart, each of which is a call of keep_body().
int note_read(CURL*, curl_infotype type, char*, size_t, void* user) {
  if (type != CURLINFO_DATA_IN && type != CURLINFO_HEADER_IN) return 0;
  auto& received = *static_cast<Received*>(user);
  received.last_byte_ns = received.read_ns = monotonic_ns();
  return 0;
}

class CurlClient final : public HttpClient {
 public:
  CurlClient(HttpClientOptions options, bool without_proxy)
      : options_(std::move(options)), without_proxy_(without_proxy), easy_(curl_easy_init()),
        multi_(curl_multi_init()) {
    FATHOM_CHECK(easy_ && multi_, "libcurl gave no handle");
  }

  Result<HttpAnswer> fetch(const HttpCall& call) override {
    HttpAnswer answer;
    const auto keep = [&](std::string_view bytes, int64_t) -> Result<void> {
      if (answer.body.size() + bytes.size() > options_.body_bytes_max)
        return Error::io("answer too large: expected at most {} bytes, found more", options_.body_bytes_max);
      answer.body += bytes;
      return {};
    };
    int64_t sent_ns = 0;
    const std::string error = transfer(call, keep, sent_ns);
    if (!error.empty()) return failed(call, error);
    answer.status = status();
    answer.content_type = content_type();
    if (answer.status / 100 != 2)
      return failed(call, fmt::format("status {}: {}", answer.status, error_message_of(answer.body)));
    return answer;
  }

  StreamEnd stream(const HttpCall& call, const SseParser::Handler& on_event) override {
    StreamEnd end;
    SseParser parser(options_.event_bytes_max);
    std::string other;  // what is no stream of events
    const auto hand_over = [&](ServerEvent&& event) {
      if (event.data == "[DONE]") end.is_done = true;
      else on_event(std::move(event));
    };
    const auto keep = [&](std::string_view bytes, int64_t arrived_ns) -> Result<void> {
      if (is_event_stream()) return parser.feed(bytes, arrived_ns, hand_over);
      other += bytes.substr(0, kRefusalBytesMax - std::min(kRefusalBytesMax, other.size()));
      return {};
    };
    end.error = transfer(call, keep, end.sent_ns);
    end.ended_ns = monotonic_ns();
    // A refusal that came whole says more than how its connection ended.
    if (const long code = status(); code != 0 && code / 100 != 2)
      end.error = fmt::format("status {}: {}", code, error_message_of(other));
    else if (end.error.empty() && !is_event_stream())
      end.error = fmt::format("no stream: expected text/event-stream, found {}: {}", content_type(),
                              error_message_of(other));
    else if (end.error.empty() && parser.is_inside_event())
      end.error = "stream cut: the server closed in the middle of an event";
    if (!end.error.empty()) end.error = failed(call, end.error).message;
    return end;
  }

 private:
  using Keep = std::function<Result<void>(std::string_view bytes, int64_t arrived_ns)>;

  Error failed(const HttpCall& call, const std::string& what) const {
    return Error::io("{} ({} {}{})", what, call.method, options_.base_url, call.path);
  }

  long status() const {
    long code = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
  std::string content_type() const {
    char* type = nullptr;
    curl_easy_getinfo(easy_.get(), CURLINFO_CONTENT_TYPE, &type);
    return type == nullptr ? "no content type" : type;
  }
  bool is_event_stream() const {
    return status() / 100 == 2 && content_type().starts_with("text/event-stream");
  }

  List headers() const {
    curl_slist* list = nullptr;
    // Without this a body of more than 1 MiB waits a second for a "100 Continue" that few servers send.
    list = curl_slist_append(list, "Expect:");
    list = curl_slist_append(list, "Content-Type: application/json");
    if (!options_.key.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + options_.key).c_str());
    for (const std::string& header : options_.headers) list = curl_slist_append(list, header.c_str());
    return List(list);
  }

  void set_up(const HttpCall& call, Received& received, const curl_slist* list) {
    CURL* easy = easy_.get();
    curl_easy_reset(easy);  // keeps connections
    curl_easy_setopt(easy, CURLOPT_URL, (options_.base_url + call.path).c_str());
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    if (without_proxy_) curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (call.method == "POST") {
      curl_easy_setopt(easy, CURLOPT_POST, 1L);
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
      curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call.body.c_str());
    } else if (call.method != "GET") {
      curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call.method.c_str());
    }
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &received);
    curl_easy_setopt(easy, CURLOPT_VERBOSE, 1L);
    curl_easy_setopt(easy, CURLOPT_DEBUGFUNCTION, note_read);
    curl_easy_setopt(easy, CURLOPT_DEBUGDATA, &received);
  }

  static Result<void> hand_over(Received& received, const Keep& keep) {
    std::string_view rest = received.bytes;
    for (const Received::Piece& piece : received.pieces) {
      FATHOM_TRY(keep(rest.substr(0, piece.bytes), piece.arrived_ns));
      rest.remove_prefix(piece.bytes);
    }
    received.bytes.clear();
    received.pieces.clear();
    return {};
  }

  /// Returns what went wrong.
  std::string transfer(const HttpCall& call, const Keep& keep, int64_t& sent_ns) {
    Received received;
    const auto list = headers();
    set_up(call, received, list.get());
    sent_ns = received.last_byte_ns = monotonic_ns();
    curl_multi_add_handle(multi_.get(), easy_.get());
    std::string error = run(call, received, keep, sent_ns);
    curl_multi_remove_handle(multi_.get(), easy_.get());
    return error;
  }

  std::string run(const HttpCall& call, Received& received, const Keep& keep, int64_t sent_ns) {
    constexpr int64_t kMs = 1'000'000;
    const int64_t wait_ms_max = options_.is_cancelled ? 200 : 60'000;
    for (int running = 1;;) {
      curl_multi_perform(multi_.get(), &running);
      if (auto kept = hand_over(received, keep); !kept) return kept.error().message;
      if (running == 0) return outcome();
      if (options_.is_cancelled && options_.is_cancelled()) return "interrupted";
      const int64_t now = monotonic_ns();
      const int64_t whole_ms = call.time_limit.count() - (now - sent_ns) / kMs;
      const int64_t silence_ms = call.silence_limit.count() - (now - received.last_byte_ns) / kMs;
      if (whole_ms <= 0)
        return fmt::format("time limit: no end of the answer after {} s", double(call.time_limit.count()) / 1e3);
      if (silence_ms <= 0)
        return fmt::format("silence: not one byte for {} s", double(call.silence_limit.count()) / 1e3);
      curl_multi_poll(multi_.get(), nullptr, 0,
                      static_cast<int>(std::min<int64_t>({whole_ms, silence_ms, wait_ms_max})), nullptr);
    }
  }

  std::string outcome() const {
    CURLcode code = CURLE_OK;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left))
      if (message->msg == CURLMSG_DONE) code = message->data.result;
    switch (code) {
      case CURLE_OK: return {};
      case CURLE_COULDNT_CONNECT: {
        long number = 0;
        curl_easy_getinfo(easy_.get(), CURLINFO_OS_ERRNO, &number);
        if (number == ECONNREFUSED) return "connection refused: nobody listens there";
        return std::string("no connection: ") + curl_easy_strerror(code);
      }
      case CURLE_COULDNT_RESOLVE_HOST: return "no connection: the host's name has no address";
      case CURLE_PARTIAL_FILE:
      case CURLE_GOT_NOTHING:
      case CURLE_RECV_ERROR:
      case CURLE_SEND_ERROR: return "stream cut: the server closed before the answer's end";
      default: return std::string("no connection: ") + curl_easy_strerror(code);
    }
  }

  HttpClientOptions options_;
  bool without_proxy_;
  Easy easy_;
  Multi multi_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::create(HttpClientOptions options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  std::string& base = options.base_url;
  while (base.ends_with('/')) base.pop_back();
  if (base.ends_with("/v1")) base.resize(base.size() - 3);
  const Url url(curl_url());
  char* host = nullptr;
  if (!(base.starts_with("http://") || base.starts_with("https://")) ||
      curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      curl_url_get(url.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK)
    return Error::invalid("server address: expected http://HOST:PORT or https://HOST:PORT, found \"{}\"", base);
  const Text owned(host);
  const bool without_proxy = is_loopback(host);
  return std::unique_ptr<HttpClient>(new CurlClient(std::move(options), without_proxy));
}

Result<Json> HttpClient::fetch_json(const HttpCall& call) {
  FATHOM_ASSIGN(const HttpAnswer answer, fetch(call));
  Json json = parse_shallow(answer.body);
  if (json.is_discarded())
    return Error::io("not JSON: {} {} answered {}", call.method, call.path, error_message_of(answer.body));
  return json;
}

std::string error_message_of(const std::string& body) {
  constexpr size_t kShown = 400;
  const Json json = parse_shallow(body);
  if (json.is_object()) {
    for (const char* pointer : {"/error/message", "/message", "/detail", "/error"}) {
      const Json::json_pointer at(pointer);
      if (json.contains(at) && json[at].is_string()) return json[at].get<std::string>();
    }
  }
  if (body.empty()) return "an empty body";
  std::string shown = body.substr(0, kShown);
  for (char& character : shown)
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7F) character = ' ';
  if (const size_t invalid = invalid_utf8_offset(shown); invalid != std::string::npos) shown.resize(invalid);
  return body.size() > kShown ? shown + "..." : shown;
}

}  // namespace fathom::measure
