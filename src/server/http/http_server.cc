#include "server/http/http_server.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <boost/asio/ip/v6_only.hpp>
#include <deque>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "server/http/connection.h"

namespace fathom {
namespace {

constexpr int kRefusingMax = 64;          // connections at a time that are only told that there are too many
constexpr rlim_t kDescriptorsKept = 256;  // for everything but connections
constexpr std::chrono::milliseconds kAcceptPause{100};

/// As many descriptors as the program may have, and no more connections than they are enough for.
void fit_descriptors(int& connections_max) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (before != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  log_info("open files: the limit is {}, was {}", limit.rlim_cur, before);
  const rlim_t enough_for = limit.rlim_cur > 2 * kDescriptorsKept ? limit.rlim_cur - kDescriptorsKept
                                                                  : limit.rlim_cur / 2;
  if (static_cast<rlim_t>(connections_max) <= enough_for) return;
  log_warning("connections: at most {} instead of {}, for the limit of open files", enough_for, connections_max);
  connections_max = static_cast<int>(enough_for);
}

std::string describe(const asio::ip::tcp::endpoint& endpoint) {
  asio::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return fmt::format(fmt::runtime(address.is_v6() ? "[{}]:{}" : "{}:{}"), address.to_string(), endpoint.port());
}

void set_option(HttpSocket& socket, int level, int name, int value) {
  setsockopt(socket.native_handle(), level, name, &value, sizeof value);
}

Result<void> check_options(const HttpOptions& options) {
  if (options.tls_certificate_path.empty() != options.tls_key_path.empty())
    return Error::invalid("TLS: expected a certificate and a key, found only one of them");
  if (options.header_bytes_max == 0 || options.connections_max < 1)
    return Error::invalid("HTTP: the headers' size and the number of connections must be at least 1");
  for (std::chrono::milliseconds timeout :
       {options.header_timeout, options.body_timeout, options.idle_timeout, options.write_timeout})
    if (timeout.count() < 1)
      return Error::invalid("HTTP: time limits must be at least 1 ms, found {}", timeout.count());
  return {};
}

class Server : public HttpServer {
 public:
  explicit Server(std::shared_ptr<HttpShared> shared)
      : shared_(std::move(shared)), tick_timer_(loop().executor()) {}
  ~Server() override { stop(std::chrono::milliseconds(0)); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Result<void> listen(std::shared_ptr<asio::ssl::context> tls);
  void run();

  uint16_t port() const override { return port_; }
  int connections() const override { return shared_->connections; }
  void stop(std::chrono::milliseconds patience) override;

 private:
  HttpLoop& loop() { return *shared_->loop; }
  Result<void> bind(const asio::ip::tcp::endpoint& endpoint, bool with_v4);
  HttpTask<void> accept_loop(HttpAcceptor& acceptor);
  HttpTask<void> pause(std::chrono::milliseconds time);
  HttpTask<void> tick();
  void spawn(HttpTask<void> task);
  void admit(HttpSocket socket);
  bool close_longest_idle();
  void begin_stop();
  void close_all();

  std::shared_ptr<HttpShared> shared_;
  std::shared_ptr<asio::ssl::context> tls_;
  std::deque<HttpAcceptor> acceptors_;
  HttpTimer tick_timer_;
  HttpClock::time_point warned_at_{};
  uint16_t port_ = 0;
  std::mutex stop_mutex_;
  std::thread thread_;
};

Result<void> Server::bind(const asio::ip::tcp::endpoint& endpoint, bool with_v4) {
  error_code error;
  HttpAcceptor acceptor(loop().executor());
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error && endpoint.protocol() == asio::ip::tcp::v6())
    acceptor.set_option(asio::ip::v6_only(!with_v4), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error::io("listen on {}: {}", describe(endpoint), error.message());
  port_ = acceptor.local_endpoint(error).port();
  acceptors_.push_back(std::move(acceptor));
  return {};
}

Result<void> Server::listen(std::shared_ptr<asio::ssl::context> tls) {
  tls_ = std::move(tls);
  const HttpOptions& options = shared_->options;
  error_code error;
  asio::ip::basic_resolver<asio::ip::tcp, HttpExecutor> resolver(loop().executor());
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      asio::ip::resolver_base::passive | asio::ip::resolver_base::numeric_service,
                                      error);
  if (error || found.empty()) return Error::io("listen on {}: {}", options.host, error.message());
  port_ = options.port;
  Result<void> refused = Error::io("listen on {}: no address found", options.host);
  // A name may have several addresses; one that this machine lacks, often IPv6, is no reason to give up.
  for (const auto& entry : found) {
    asio::ip::tcp::endpoint endpoint = entry.endpoint();
    endpoint.port(port_);
    Result<void> bound = bind(endpoint, endpoint.address().is_unspecified());
    if (!bound.ok()) refused = std::move(bound);
  }
  if (acceptors_.empty()) return refused;
  return {};
}

void Server::spawn(HttpTask<void> task) {
  asio::co_spawn(loop().executor(), std::move(task), [](std::exception_ptr thrown) {
    FATHOM_CHECK(!thrown, "an exception in the HTTP server");
  });
}

void Server::run() {
  for (HttpAcceptor& acceptor : acceptors_) spawn(accept_loop(acceptor));
  spawn(tick());
  // Signals from outside are for the program's own threads.
  sigset_t outside, before;
  sigfillset(&outside);
  for (int own_fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&outside, own_fault);
  pthread_sigmask(SIG_SETMASK, &outside, &before);
  thread_ = std::thread([loop = shared_->loop] { loop->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

HttpTask<void> Server::pause(std::chrono::milliseconds time) {
  error_code ignored;
  HttpTimer timer(loop().executor(), time);
  co_await timer.async_wait(asio::redirect_error(kHttpTask, ignored));
}

HttpTask<void> Server::accept_loop(HttpAcceptor& acceptor) {
  while (acceptor.is_open()) {
    error_code error;
    HttpSocket socket(loop().executor());
    co_await acceptor.async_accept(socket, asio::redirect_error(kHttpTask, error));
    if (!acceptor.is_open()) break;
    if (!error) {
      admit(std::move(socket));
      continue;
    }
    // Out of descriptors or memory: it would fail again at once.
    if (HttpClock::now() - warned_at_ > std::chrono::seconds(10)) {
      log_warning("accept: {}; {} connections are open", error.message(), shared_->connections.load());
      warned_at_ = HttpClock::now();
    }
    co_await pause(kAcceptPause);
  }
}

void Server::admit(HttpSocket socket) {
  error_code error;
  const asio::ip::tcp::endpoint peer = socket.remote_endpoint(error);
  if (!error) socket.non_blocking(true, error);
  if (!error) socket.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return;
  // Clients that vanish without a word, with their machine for example, are found out.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(shared_->options.write_timeout.count()));
  const bool full = static_cast<int>(shared_->all.size()) >= shared_->options.connections_max;
  const bool refuse = full && !close_longest_idle();
  if (refuse && (tls_ || static_cast<int>(shared_->all.size()) >= shared_->options.connections_max + kRefusingMax))
    return;
  std::shared_ptr<HttpTransport> transport =
      tls_ ? make_tls_transport(std::move(socket), *tls_) : make_plain_transport(std::move(socket));
  std::make_shared<HttpConnection>(shared_, std::move(transport), describe(peer))->start(refuse);
}

bool Server::close_longest_idle() {
  if (shared_->idle.empty()) return false;
  shared_->idle.front()->close();
  return true;
}

HttpTask<void> Server::tick() {
  const HttpOptions& options = shared_->options;
  const std::chrono::milliseconds period =
      std::clamp(std::min(options.header_timeout, options.write_timeout) / 4, std::chrono::milliseconds(5),
                 std::chrono::milliseconds(1000));
  while (!shared_->stopping || !shared_->all.empty()) {
    error_code ignored;
    tick_timer_.expires_after(period);
    co_await tick_timer_.async_wait(asio::redirect_error(kHttpTask, ignored));
    const HttpClock::time_point now = HttpClock::now();
    const std::vector<HttpConnection*> all(shared_->all.begin(), shared_->all.end());
    for (HttpConnection* connection : all)
      if (shared_->all.contains(connection)) connection->check_deadlines(now);
  }
}

void Server::begin_stop() {
  shared_->stopping = true;
  error_code ignored;
  for (HttpAcceptor& acceptor : acceptors_) acceptor.close(ignored);
  for (HttpConnection* connection : shared_->all) connection->wind_up();
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stop_begun = true;
  }
  shared_->changed.notify_all();
}

void Server::close_all() {
  while (!shared_->all.empty()) (*shared_->all.begin())->close();
  tick_timer_.cancel();
}

void Server::stop(std::chrono::milliseconds patience) {
  std::lock_guard stop_lock(stop_mutex_);
  if (!thread_.joinable()) return;
  FATHOM_CHECK(thread_.get_id() != std::this_thread::get_id(), "stop() on a thread of the server");
  loop().post([this] { begin_stop(); });
  {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, patience, [&] { return shared_->stop_begun && shared_->connections == 0; });
  }
  loop().post([this] { close_all(); });
  loop().close();
  thread_.join();
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, HttpHandler handler,
                                                      HttpAdmission admission, HttpErrorBody error_body) {
  FATHOM_CHECK(handler && error_body, "an HTTP server needs a handler and bodies of errors");
  FATHOM_TRY(check_options(options));
  std::shared_ptr<asio::ssl::context> tls;
  if (!options.tls_certificate_path.empty()) {
    FATHOM_ASSIGN(tls, make_tls_context(options.tls_certificate_path, options.tls_key_path));
  }
  fit_descriptors(options.connections_max);
  auto shared = std::make_shared<HttpShared>();
  shared->options = std::move(options);
  shared->handler = std::move(handler);
  shared->admission = std::move(admission);
  shared->error_body = std::move(error_body);
  shared->loop = std::make_shared<HttpLoop>();
  auto server = std::make_unique<Server>(std::move(shared));
  FATHOM_TRY(server->listen(std::move(tls)));
  server->run();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace fathom
