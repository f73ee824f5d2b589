#include "server/http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <cerrno>
#include <system_error>
#include <vector>

namespace fathom {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kTlsReadBytes = 16 << 10;  // a record

void close_socket(HttpSocket& socket) {
  error_code ignored;
  socket.close(ignored);
}

class PlainTransport : public HttpTransport {
 public:
  explicit PlainTransport(HttpSocket socket) : socket_(std::move(socket)) {}

  HttpTask<Greeting> greet() override { co_return Greeting::kDone; }

  // Waits without a buffer: thousands of idle connections share one.
  HttpTask<bool> read(std::string& into) override {
    static thread_local std::array<char, kReadBytes> shared;
    for (;;) {
      error_code error;
      co_await socket_.async_wait(HttpSocket::wait_read, asio::redirect_error(kHttpTask, error));
      if (error) co_return false;
      const size_t count = socket_.read_some(asio::buffer(shared), error);
      if (error == asio::error::would_block || error == asio::error::try_again) continue;
      if (error) co_return false;
      into.append(shared.data(), count);
      co_return true;
    }
  }

  HttpTask<size_t> write(std::span<const asio::const_buffer> buffers) override {
    error_code error;
    const size_t count = co_await socket_.async_write_some(buffers, asio::redirect_error(kHttpTask, error));
    co_return error ? 0 : count;
  }

  void write_unencrypted(std::string_view) override {}

  void end_output() override {
    error_code ignored;
    socket_.shutdown(HttpSocket::shutdown_send, ignored);
  }

  void close() override { close_socket(socket_); }

 private:
  HttpSocket socket_;
};

class TlsTransport : public HttpTransport {
 public:
  TlsTransport(HttpSocket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  HttpTask<Greeting> greet() override {
    error_code error;
    co_await stream_.async_handshake(asio::ssl::stream_base::server, asio::redirect_error(kHttpTask, error));
    if (!error) co_return Greeting::kDone;
    const bool plain = error.category() == asio::error::get_ssl_category() &&
                       ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
    co_return plain ? Greeting::kPlainHttp : Greeting::kFailed;
  }

  // A read is always pending: it is how the client's leaving is noticed.
  HttpTask<bool> read(std::string& into) override {
    if (buffer_.empty()) buffer_.resize(kTlsReadBytes);
    error_code error;
    const size_t count =
        co_await stream_.async_read_some(asio::buffer(buffer_), asio::redirect_error(kHttpTask, error));
    into.append(buffer_.data(), count);
    co_return !error;
  }

  HttpTask<size_t> write(std::span<const asio::const_buffer> buffers) override {
    error_code error;
    const size_t count = co_await stream_.async_write_some(buffers, asio::redirect_error(kHttpTask, error));
    co_return error ? 0 : count;
  }

  void write_unencrypted(std::string_view bytes) override {
    error_code ignored;
    stream_.next_layer().write_some(asio::buffer(bytes.data(), bytes.size()), ignored);
    stream_.next_layer().shutdown(HttpSocket::shutdown_send, ignored);
  }

  void end_output() override {
    stream_.async_shutdown([self = shared_from_this()](const error_code&) {});
  }

  void close() override { close_socket(stream_.next_layer()); }

 private:
  asio::ssl::stream<HttpSocket> stream_;
  std::vector<char> buffer_;
};

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                    unsigned in_size, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_size, kOurs, sizeof kOurs - 1, in, in_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

std::string last_tls_error() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "unknown error";
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

}  // namespace

std::shared_ptr<HttpTransport> make_plain_transport(HttpSocket socket) {
  return std::make_shared<PlainTransport>(std::move(socket));
}

std::shared_ptr<HttpTransport> make_tls_transport(HttpSocket socket, asio::ssl::context& context) {
  return std::make_shared<TlsTransport>(std::move(socket), context);
}

Result<std::shared_ptr<asio::ssl::context>> make_tls_context(const std::string& certificate_path,
                                                             const std::string& key_path) {
  ERR_clear_error();
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  // A key with a passphrase is refused; the default would ask on the terminal.
  SSL_CTX_set_default_passwd_cb(raw, [](char*, int, int, void*) { return -1; });
  // What the library says of a file that is not there names neither the file nor the reason.
  for (const std::string& path : {certificate_path, key_path})
    if (::access(path.c_str(), R_OK) != 0)
      return Error::invalid("{}: cannot be read: {}", path, std::generic_category().message(errno));
  if (SSL_CTX_use_certificate_chain_file(raw, certificate_path.c_str()) != 1)
    return Error::invalid("{}: expected certificates in PEM: {}", certificate_path, last_tls_error());
  if (SSL_CTX_use_PrivateKey_file(raw, key_path.c_str(), SSL_FILETYPE_PEM) != 1)
    return Error::invalid("{}: expected a private key in PEM, without passphrase, that fits {}: {}", key_path,
                          certificate_path, last_tls_error());
  if (SSL_CTX_check_private_key(raw) != 1)
    return Error::invalid("{}: the private key does not fit {}: {}", key_path, certificate_path, last_tls_error());
  return context;
}

}  // namespace fathom
