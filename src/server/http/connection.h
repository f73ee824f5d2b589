// One client's connection: reads requests, has them answered one at a time in their order, notices when the client
// leaves. Everything happens on the loop's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "server/http/exchange.h"
#include "server/http/http_format.h"
#include "server/http/http_parser.h"
#include "server/http/http_server.h"
#include "server/http/loop.h"
#include "server/http/transport.h"

namespace fathom {

class HttpConnection;

/// What the connections of a server have in common.
struct HttpShared {
  HttpOptions options;
  HttpHandler handler;
  HttpAdmission admission;
  HttpErrorBody error_body;
  std::shared_ptr<HttpLoop> loop;

  // For the loop's thread.
  bool stopping = false;
  std::unordered_set<HttpConnection*> all;
  std::list<HttpConnection*> idle;           // between requests; the longest idle first
  std::time_t date_time = 0;
  std::string date;

  std::mutex mutex;
  std::condition_variable changed;
  bool stop_begun = false;                   // guarded by mutex
  std::atomic<int> connections{0};
  std::atomic<size_t> bodies_bytes{0};       // of requests that are read or held

  const std::string& date_now();
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpShared> shared, std::shared_ptr<HttpTransport> transport, std::string peer);

  /// refuse: says 503 and nothing else.
  void start(bool refuse);
  /// Takes no further request; an idle connection ends now.
  void wind_up();
  /// Cuts the connection.
  void close();
  /// Cuts a connection whose client takes too long to say hello or to read.
  void check_deadlines(HttpClock::time_point now);

 private:
  using Self = std::shared_ptr<HttpConnection>;

  HttpTask<void> run(bool refuse);
  HttpTask<bool> greet();
  HttpTask<void> read_loop();
  HttpTask<void> write_loop();
  HttpTask<std::optional<HttpHead>> read_head();
  HttpTask<void> serve(HttpHead head);
  struct HeldRequest;
  HttpTask<bool> read_body(const HttpHead& head, HeldRequest& request);
  HttpTask<void> end();
  /// Until something happens on this connection. False: the deadline came first.
  HttpTask<bool> wait(HttpClock::time_point deadline);

  void spawn(HttpTask<void> task);
  void resume_reading();
  std::string_view unread() const { return std::string_view(input_).substr(input_at_); }
  void consume(size_t bytes);
  void enter_idle();
  void leave_idle();
  void client_left();

  bool is_preflight(const HttpRequest& request) const;
  void call_handler(std::shared_ptr<const HttpRequest> request);
  /// Moves what the exchange's holders have said to the output.
  void pull();
  void refuse(const HttpFailure& failure);
  void send_response(HttpResponse response);
  void send_stream_head(int status, const HttpHeaders& headers);
  HttpAnswerHead answer_head(int status, const HttpHeaders& headers);
  void send(std::string bytes);
  void flush();

  const std::shared_ptr<HttpShared> shared_;
  const std::shared_ptr<HttpTransport> transport_;
  const std::string peer_;

  HttpTimer event_;  // run() waits on it; cancelled when something has happened
  HttpClock::time_point greet_deadline_ = HttpClock::time_point::max();
  HttpClock::time_point write_deadline_ = HttpClock::time_point::max();
  bool closed_ = false;

  std::string input_;
  size_t input_at_ = 0;
  bool reading_ = false;
  bool input_ended_ = false;  // the client will send nothing more
  bool discarding_ = false;   // nobody is interested in more input
  std::optional<std::list<HttpConnection*>::iterator> idle_at_;

  // Of the request being answered.
  std::shared_ptr<HttpExchangeState> exchange_;  // null: the answer is complete
  std::string path_;
  std::string cors_origin_;
  bool is_head_ = false;
  bool version_1_0_ = false;
  bool keep_alive_ = true;
  HttpFraming framing_ = HttpFraming::kNone;  // of a stream

  std::deque<std::string> output_;
  size_t output_at_ = 0;     // of the first string, sent already
  size_t output_bytes_ = 0;  // not sent
  size_t in_flight_ = 0;     // strings that a write is looking at
  bool writing_ = false;
};

}  // namespace fathom
