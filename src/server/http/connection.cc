#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <exception>

#include "base/log.h"

namespace fathom {
namespace {

constexpr HttpClock::time_point kNever = HttpClock::time_point::max();
// Requests that a client may send ahead of the answers. Beyond, its bytes stay in the network, and its leaving is
// noticed when something is written only.
constexpr size_t kInputAheadBytes = 256 << 10;
constexpr size_t kOutputAheadBytes = 1 << 20;  // answers to such requests that may wait for the client
constexpr size_t kMergeBytes = 16 << 10;       // shorter pieces of output are copied together
constexpr size_t kWriteBuffers = 16;
// After an answer that leaves a part of the request unread: an early close would make the client's network throw
// the answer away, so its bytes are read for a while.
constexpr std::chrono::seconds kLingerIdle{5}, kLingerTotal{30}, kLingerStopping{1};

}  // namespace

const std::string& HttpShared::date_now() {
  const std::time_t now = std::time(nullptr);
  if (now != date_time || date.empty()) {
    date_time = now;
    date = http_date(now);
  }
  return date;
}

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, std::shared_ptr<HttpTransport> transport,
                               std::string peer)
    : shared_(std::move(shared)),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      event_(shared_->loop->executor()) {}

void HttpConnection::start(bool refuse) {
  shared_->all.insert(this);
  ++shared_->connections;
  spawn(run(refuse));
}

void HttpConnection::spawn(HttpTask<void> task) {
  const auto ended = [self = shared_from_this()](std::exception_ptr thrown) {
    if (!thrown) return;
    log_warning("connection of {}: an exception ended it", self->peer_);
    self->close();
  };
  asio::co_spawn(shared_->loop->executor(), std::move(task), ended);
}

void HttpConnection::close() {
  if (closed_) return;
  closed_ = true;
  const Self self = shared_from_this();
  leave_idle();
  transport_->close();
  event_.cancel();
  shared_->all.erase(this);
  {
    std::lock_guard lock(shared_->mutex);
    --shared_->connections;
  }
  shared_->changed.notify_all();
  const std::shared_ptr<HttpExchangeState> exchange = std::exchange(exchange_, nullptr);
  if (exchange) exchange->leave();
}

void HttpConnection::wind_up() {
  keep_alive_ = false;
  event_.cancel();
}

void HttpConnection::check_deadlines(HttpClock::time_point now) {
  if (now >= std::min(greet_deadline_, write_deadline_)) close();
}

HttpTask<bool> HttpConnection::wait(HttpClock::time_point deadline) {
  error_code ignored;
  event_.expires_at(deadline);
  co_await event_.async_wait(asio::redirect_error(kHttpTask, ignored));
  co_return deadline == kNever || HttpClock::now() < deadline;
}

HttpTask<void> HttpConnection::run(bool refuse_all) {
  const bool greeted = co_await greet();
  if (!greeted) {
    close();
    co_return;
  }
  if (refuse_all) {
    refuse({503, "the server has too many connections"});
  } else {
    while (!closed_) {
      std::optional<HttpHead> head = co_await read_head();
      if (!head) break;
      co_await serve(std::move(*head));
      if (!keep_alive_) break;
      while (!closed_ && output_bytes_ > kOutputAheadBytes) co_await wait(kNever);
    }
  }
  co_await end();
}

HttpTask<bool> HttpConnection::greet() {
  greet_deadline_ = HttpClock::now() + shared_->options.header_timeout;
  const HttpTransport::Greeting greeting = co_await transport_->greet();
  greet_deadline_ = kNever;
  if (closed_ || greeting == HttpTransport::Greeting::kFailed) co_return false;
  if (greeting == HttpTransport::Greeting::kDone) co_return true;
  const std::string_view why = "this port speaks HTTPS, the request came as HTTP";
  const HttpResponse response = shared_->error_body(400, why, "");
  keep_alive_ = false;
  HttpAnswerHead head = answer_head(400, response.headers);
  head.body_bytes = response.body.size();
  transport_->write_unencrypted(format_http_head(head) + response.body);
  co_return false;
}

HttpTask<void> HttpConnection::end() {
  while (!closed_ && !output_.empty()) co_await wait(kNever);
  if (closed_) co_return;
  transport_->end_output();
  discarding_ = true;
  consume(input_.size() - input_at_);
  resume_reading();
  const HttpClock::time_point last = HttpClock::now() + kLingerTotal;
  bool patient = true;
  while (!closed_ && !input_ended_ && patient) {
    const HttpClock::duration idle = shared_->stopping ? kLingerStopping : kLingerIdle;
    patient = co_await wait(std::min(last, HttpClock::now() + idle));
  }
  close();
}

// --- input

void HttpConnection::resume_reading() {
  if (reading_ || closed_ || input_ended_ || input_.size() - input_at_ >= kInputAheadBytes) return;
  reading_ = true;
  spawn(read_loop());
}

HttpTask<void> HttpConnection::read_loop() {
  bool more = true;
  while (more && !closed_ && input_.size() - input_at_ < kInputAheadBytes) {
    more = co_await transport_->read(input_);
    if (closed_) break;
    if (discarding_) consume(input_.size() - input_at_);
    event_.cancel();
  }
  reading_ = false;
  if (more || closed_) co_return;
  input_ended_ = true;
  if (exchange_) client_left();
}

void HttpConnection::client_left() {
  close();
}

void HttpConnection::consume(size_t bytes) {
  input_at_ += bytes;
  if (input_at_ == input_.size()) {
    input_.clear();
    if (input_.capacity() > kMergeBytes) input_.shrink_to_fit();
    input_at_ = 0;
  } else if (input_at_ > input_.size() / 2) {
    input_.erase(0, input_at_);
    input_at_ = 0;
  }
}

void HttpConnection::enter_idle() {
  if (!idle_at_) idle_at_ = shared_->idle.insert(shared_->idle.end(), this);
}

void HttpConnection::leave_idle() {
  if (idle_at_) shared_->idle.erase(*idle_at_);
  idle_at_.reset();
}

HttpTask<std::optional<HttpHead>> HttpConnection::read_head() {
  HttpHeadScanner scanner(shared_->options.header_bytes_max);
  HttpClock::time_point deadline = HttpClock::now() + shared_->options.idle_timeout;
  bool begun = false;
  is_head_ = version_1_0_ = false;
  cors_origin_.clear();
  path_.clear();
  while (!closed_) {
    if (!begun && !unread().empty()) {
      begun = true;
      leave_idle();
      deadline = HttpClock::now() + shared_->options.header_timeout;
    }
    std::optional<HttpFailure> failure;
    const size_t bytes = scanner.scan(unread(), failure);
    std::optional<HttpHead> head;
    if (bytes > 0) head = parse_http_head(unread().substr(0, bytes), failure);
    if (failure) refuse(*failure);
    if (failure || (shared_->stopping && !begun)) break;
    if (head) {
      consume(bytes);
      co_return head;
    }
    if (input_ended_) break;
    if (!begun) enter_idle();
    resume_reading();
    const bool in_time = co_await wait(deadline);
    if (!in_time) {
      if (begun) refuse({408, "the headers took too long to come"});
      break;
    }
  }
  leave_idle();
  co_return std::nullopt;
}

/// A request and its share of the memory for bodies, which goes back when nobody holds the request any more.
struct HttpConnection::HeldRequest : HttpRequest {
  HeldRequest(HttpRequest request, std::shared_ptr<HttpShared> of)
      : HttpRequest(std::move(request)), shared(std::move(of)) {}
  ~HeldRequest() { shared->bodies_bytes -= held_bytes; }
  /// False if so many bytes are more than there is room for.
  bool hold(size_t bytes) {
    if (bytes <= held_bytes) return true;
    const size_t all = shared->bodies_bytes += bytes - held_bytes;
    held_bytes = bytes;
    return all <= shared->options.bodies_bytes_max;
  }
  std::shared_ptr<HttpShared> shared;
  size_t held_bytes = 0;
};

HttpTask<bool> HttpConnection::read_body(const HttpHead& head, HeldRequest& request) {
  const HttpOptions& options = shared_->options;
  std::string& body = request.body;
  const HttpClock::time_point deadline = HttpClock::now() + options.body_timeout;
  HttpBodyReader reader(head, options.body_bytes_max, options.header_bytes_max);
  while (!closed_) {
    std::optional<HttpFailure> failure;
    std::string_view bytes = unread();
    const size_t before = bytes.size();
    reader.take(bytes, body, failure);
    consume(before - bytes.size());
    if (!failure && !request.hold(std::max<size_t>(body.size(), head.content_length)))
      failure = HttpFailure{503, "the requests that are held take all the memory there is for them"};
    if (failure) refuse(*failure);
    if (failure || reader.done()) co_return !failure;
    if (input_ended_) break;
    resume_reading();
    const bool in_time = co_await wait(deadline);
    if (!in_time) {
      refuse({408, "the body took too long to come"});
      co_return false;
    }
  }
  keep_alive_ = false;
  co_return false;
}

// --- one request

bool HttpConnection::is_preflight(const HttpRequest& request) const {
  return !shared_->options.cors_origins.empty() && request.method == "OPTIONS" &&
         !request.header("origin").empty() && !request.header("access-control-request-method").empty();
}

HttpTask<void> HttpConnection::serve(HttpHead head) {
  auto request = std::make_shared<HeldRequest>(std::move(head.request), shared_);
  request->peer = peer_;
  path_ = request->path;
  is_head_ = head.is_head;
  version_1_0_ = head.version_1_0;
  keep_alive_ = head.keep_alive && !shared_->stopping;
  cors_origin_ = cors_allowed_origin(shared_->options.cors_origins, request->header("origin"));
  // An answer before the body was read ends the connection: what follows it would be the body.
  const auto answer_early = [&](HttpResponse response) {
    if (head.has_body()) keep_alive_ = false;
    send_response(std::move(response));
  };
  if (is_preflight(*request)) {
    const bool allowed = !cors_origin_.empty();
    answer_early({204, allowed ? cors_preflight_headers(request->header("access-control-request-headers"))
                               : HttpHeaders(), ""});
    co_return;
  }
  if (shared_->admission) {
    std::optional<HttpResponse> refusal = shared_->admission(*request);
    if (refusal) {
      answer_early(std::move(*refusal));
      co_return;
    }
  }
  if (head.content_length > shared_->options.body_bytes_max) {
    refuse({413, fmt::format("the body has {} bytes, at most {} are taken", head.content_length,
                             shared_->options.body_bytes_max)});
    co_return;
  }
  if (head.has_body()) {
    if (head.expects_continue && unread().empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
    const bool whole = co_await read_body(head, *request);
    if (!whole) co_return;
  }
  call_handler(std::move(request));  // who may let go of the body long before the answer is complete
  while (exchange_ && !closed_) {
    resume_reading();
    co_await wait(kNever);
  }
}

void HttpConnection::call_handler(std::shared_ptr<const HttpRequest> request) {
  std::weak_ptr<HttpConnection> weak = weak_from_this();
  const auto wake = [loop = shared_->loop, weak = std::move(weak)] {
    loop->post([weak] {
      if (const Self self = weak.lock()) self->pull();
    });
  };
  exchange_ = std::make_shared<HttpExchangeState>(shared_->options.pending_bytes_max, wake);
  std::shared_ptr<HttpExchange> exchange = make_http_exchange(exchange_);
  try {
    shared_->handler(std::move(request), std::move(exchange));
  } catch (const std::exception& thrown) {
    log_warning("request of {}: {}", peer_, thrown.what());
  }
  exchange = nullptr;
  pull();
  // A client that has ended its side gets answers that are there at once, and otherwise counts as one that left.
  if (exchange_ && input_ended_) client_left();
}

// --- output

void HttpConnection::pull() {
  if (!exchange_ || closed_) return;
  const std::shared_ptr<HttpExchangeState> exchange = exchange_;
  HttpOutbox outbox;
  try {
    outbox = exchange->take(output_bytes_);
  } catch (const std::exception& thrown) {  // of a source: out of memory, or a bug
    log_warning("stream to {}: cut: {}", peer_, thrown.what());
    return close();
  }
  if (outbox.too_slow) {
    log_warning("stream to {}: cut, the client has left more than {} bytes unread", peer_,
                shared_->options.pending_bytes_max);
    return close();
  }
  bool complete = outbox.finished || outbox.aborted;
  if (outbox.dropped) outbox.response = shared_->error_body(500, "the server lost the request", path_);
  if (outbox.response) {
    send_response(std::move(*outbox.response));
    complete = true;
  }
  if (outbox.stream) send_stream_head(outbox.stream->first, outbox.stream->second);
  if (framing_ == HttpFraming::kChunked) {
    std::string chunk;
    append_http_chunk(chunk, outbox.bytes);
    if (outbox.finished) chunk += "0\r\n\r\n";
    send(std::move(chunk));
  } else if (framing_ == HttpFraming::kUntilClose) {
    send(std::move(outbox.bytes));
  }
  if (outbox.aborted) keep_alive_ = false;
  exchange->set_unsent(output_bytes_);
  if (!complete && framing_ != HttpFraming::kLength) return;
  exchange_ = nullptr;
  framing_ = HttpFraming::kNone;
  event_.cancel();
  if (!complete) exchange->leave();
}

void HttpConnection::refuse(const HttpFailure& failure) {
  keep_alive_ = false;
  send_response(shared_->error_body(failure.status, failure.message, path_));
}

HttpAnswerHead HttpConnection::answer_head(int status, const HttpHeaders& headers) {
  const std::vector<std::string>& origins = shared_->options.cors_origins;
  if (shared_->stopping) keep_alive_ = false;
  return {.status = status,
          .headers = &headers,
          .version_1_0 = version_1_0_,
          .keep_alive = keep_alive_,
          .cors_origin = cors_origin_,
          .varies_by_origin = !origins.empty() && cors_origin_ != "*",
          .date = shared_->date_now()};
}

void HttpConnection::send_response(HttpResponse response) {
  HttpAnswerHead head = answer_head(response.status, response.headers);
  const bool has_body = http_status_has_body(response.status);
  head.framing = has_body ? HttpFraming::kLength : HttpFraming::kNone;
  head.body_bytes = response.body.size();
  send(format_http_head(head));
  if (has_body && !is_head_) send(std::move(response.body));
}

void HttpConnection::send_stream_head(int status, const HttpHeaders& headers) {
  const bool has_body = http_status_has_body(status);
  framing_ = !has_body ? HttpFraming::kNone : version_1_0_ ? HttpFraming::kUntilClose : HttpFraming::kChunked;
  if (framing_ == HttpFraming::kUntilClose) keep_alive_ = false;
  HttpAnswerHead head = answer_head(status, headers);
  head.framing = framing_;
  send(format_http_head(head));
  // Marks that the answer is complete with its head; pull() then lets the stream's maker know.
  if (is_head_ || !has_body) framing_ = HttpFraming::kLength;
}

void HttpConnection::send(std::string bytes) {
  if (closed_ || bytes.empty()) return;
  output_bytes_ += bytes.size();
  const bool mergeable = output_.size() > in_flight_ && output_.back().size() + bytes.size() <= kMergeBytes;
  if (mergeable)
    output_.back() += bytes;
  else
    output_.push_back(std::move(bytes));
  flush();
}

void HttpConnection::flush() {
  if (writing_ || closed_) return;
  writing_ = true;
  spawn(write_loop());
}

HttpTask<void> HttpConnection::write_loop() {
  while (!closed_ && !output_.empty()) {
    std::array<asio::const_buffer, kWriteBuffers> buffers;
    in_flight_ = std::min(output_.size(), buffers.size());
    for (size_t index = 0; index < in_flight_; ++index) buffers[index] = asio::buffer(output_[index]);
    buffers[0] += output_at_;
    write_deadline_ = HttpClock::now() + shared_->options.write_timeout;
    size_t sent = co_await transport_->write(std::span(buffers.data(), in_flight_));
    write_deadline_ = kNever;
    in_flight_ = 0;
    if (closed_) break;
    if (sent == 0) {
      close();
      break;
    }
    output_bytes_ -= sent;
    sent += output_at_;
    while (!output_.empty() && sent >= output_.front().size()) {
      sent -= output_.front().size();
      output_.pop_front();
    }
    output_at_ = sent;
    if (!exchange_) continue;
    exchange_->set_unsent(output_bytes_);
    if (exchange_->has_more()) pull();
  }
  writing_ = false;
  event_.cancel();
}

}  // namespace fathom
