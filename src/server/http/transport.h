// Bytes of one connection: TCP, or TLS over TCP. For the loop's thread only.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "server/http/asio.h"

namespace boost::asio::ssl {
class context;
}

namespace fathom {

class HttpTransport : public std::enable_shared_from_this<HttpTransport> {
 public:
  enum class Greeting { kDone, kFailed, kPlainHttp };

  virtual ~HttpTransport() = default;
  virtual HttpTask<Greeting> greet() = 0;
  /// Appends what came to `into`. False: the client has ended its side, or the connection is broken.
  virtual HttpTask<bool> read(std::string& into) = 0;
  /// At most one at a time, next to a read(). Bytes taken; 0 if the connection is broken.
  virtual HttpTask<size_t> write(std::span<const asio::const_buffer> buffers) = 0;
  /// For the client that came to a TLS port without TLS. Tries once.
  virtual void write_unencrypted(std::string_view bytes) = 0;
  /// Tells the client that nothing follows. Nothing may be written any more.
  virtual void end_output() = 0;
  virtual void close() = 0;
};

std::shared_ptr<HttpTransport> make_plain_transport(HttpSocket socket);
std::shared_ptr<HttpTransport> make_tls_transport(HttpSocket socket, asio::ssl::context& context);

/// kInvalidArgument: a file that cannot be read, is no PEM, or a key that does not fit the certificate.
Result<std::shared_ptr<asio::ssl::context>> make_tls_context(const std::string& certificate_path,
                                                             const std::string& key_path);

}  // namespace fathom
