// TLS with a certificate made here.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "server/http/testing.h"

namespace fathom {
namespace {

struct Certificate {
  explicit Certificate(const std::string& name)
      : folder(std::filesystem::path(testing::TempDir()) / fmt::format("http_tls_test_{}_{}", name, getpid())),
        certificate(folder / "certificate.pem"),
        key(folder / "key.pem") {
    std::filesystem::create_directories(folder);
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* x509 = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, pair);
    X509_NAME* subject = X509_get_subject_name(x509);
    const auto* name_bytes = reinterpret_cast<const unsigned char*>("localhost");
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, name_bytes, -1, -1, 0);
    X509_set_issuer_name(x509, subject);
    X509_sign(x509, pair, EVP_sha256());
    if (FILE* file = std::fopen(certificate.c_str(), "w")) {
      PEM_write_X509(file, x509);
      std::fclose(file);
    }
    if (FILE* file = std::fopen(key.c_str(), "w")) {
      PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
      std::fclose(file);
    }
    X509_free(x509);
    EVP_PKEY_free(pair);
  }
  ~Certificate() { std::filesystem::remove_all(folder); }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  HttpOptions options() const {
    HttpOptions options;
    options.tls_certificate_path = certificate;
    options.tls_key_path = key;
    return options;
  }

  std::filesystem::path folder, certificate, key;
};

class TlsClient : public TestClient {
 public:
  explicit TlsClient(uint16_t port, int version_max = TLS1_3_VERSION)
      : TestClient(port), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_security_level(context_, 0);  // to be able to offer old versions
    SSL_CTX_set_max_proto_version(context_, version_max);
    static constexpr unsigned char kProtocols[] = "\x02h2\x08http/1.1";
    SSL_CTX_set_alpn_protos(context_, kProtocols, sizeof kProtocols - 1);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() override {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ERR_clear_error();
  }

  bool connected() const { return connected_; }
  SSL* ssl() { return ssl_; }

 protected:
  long receive_some(char* to, size_t size) override { return SSL_read(ssl_, to, static_cast<int>(size)); }
  long send_some(const char* from, size_t size) override {
    return SSL_write(ssl_, from, static_cast<int>(std::min(size, size_t{1} << 20)));
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
};

TEST(HttpTls, AnswersAndKeepsTheConnection) {
  const Certificate certificate("answers");
  TestServer server(certificate.options());
  for (int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.port(), version);
    ASSERT_TRUE(client.connected());
    EXPECT_EQ(SSL_version(client.ssl()), version);
    const unsigned char* protocol = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(client.ssl(), &protocol, &size);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(protocol), size), "http/1.1");
    const std::string body(3 << 20, 'b');
    EXPECT_TRUE(client.ask(test_post("/large", body)).body == "POST /large " + body);
    for (int round = 0; round < 20; ++round) EXPECT_EQ(client.ask(test_get("/again")).body, "GET /again ");
  }
}

TEST(HttpTls, StreamsAndFinishes) {
  const Certificate certificate("streams");
  TestServer server(certificate.options());
  TlsClient client(server.port());
  client.send(test_get("/wait", "Connection: close\r\n"));
  const TestCall call = server.next();
  call.exchange->start_stream(200, {});
  client.receive_until("\r\n\r\n");
  call.exchange->write("one");
  EXPECT_EQ(client.receive_bytes(8), "3\r\none\r\n");
  std::thread engine([&] {
    for (int index = 0; index < 5000; ++index) call.exchange->write("ab");
    call.exchange->finish();
  });
  const std::string rest = client.receive_all();
  engine.join();
  EXPECT_TRUE(rest.ends_with("\r\n0\r\n\r\n"));
  EXPECT_EQ(SSL_get_shutdown(client.ssl()) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN)
      << "the end of a connection is told in TLS, too";
}

TEST(HttpTls, NoticesThatTheClientLeft) {
  const Certificate certificate("leaves");
  TestServer server(certificate.options());
  for (const char* how : {"says so in TLS", "closes", "resets"}) {
    TlsClient client(server.port());
    client.send(test_get("/wait"));
    const TestCall call = server.next();
    TestEvent gone;
    call.exchange->on_gone([&] { gone.set(); });
    call.exchange->start_stream(200, {});
    client.receive_until("\r\n\r\n");
    if (how == std::string("says so in TLS")) SSL_shutdown(client.ssl());
    if (how == std::string("closes")) client.close();
    if (how == std::string("resets")) client.reset();
    EXPECT_TRUE(gone.wait()) << how;
  }
}

TEST(HttpTls, RefusesOldVersionsAndGarbage) {
  const Certificate certificate("garbage");
  TestServer server(certificate.options());
  EXPECT_FALSE(TlsClient(server.port(), TLS1_1_VERSION).connected());
  TestClient garbage(server.port());
  garbage.send(std::string("\x16\x03\x01\x00\x05hello garbage", 18));
  garbage.receive_all();
  TestClient broken(server.port());
  broken.send(std::string(1000, '\xFF'));
  broken.receive_all();
  TlsClient damaged(server.port());
  ASSERT_TRUE(damaged.connected());
  ::send(damaged.socket(), "\x17\x03\x03\x00\x20 a record that was never encrypted...", 40, MSG_NOSIGNAL);
  damaged.receive_all();
  EXPECT_EQ(TlsClient(server.port()).ask(test_get("/after")).body, "GET /after ");
  EXPECT_EQ(server.calls(), 1);
}

TEST(HttpTls, TellsAPlainHttpClientWhatIsWrong) {
  const Certificate certificate("plain");
  TestServer server(certificate.options());
  TestClient client(server.port());
  const TestResponse response = client.ask(test_get("/"));
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("HTTPS"), std::string::npos) << response.body;
  EXPECT_EQ(server.calls(), 0);
}

TEST(HttpTls, BoundsTheTimeOfTheGreeting) {
  const Certificate certificate("greeting");
  HttpOptions options = certificate.options();
  options.header_timeout = std::chrono::milliseconds(200);
  TestServer server(options);
  TestClient silent(server.port());
  EXPECT_TRUE(silent.ended());
}

TEST(HttpTls, StopsWithOpenConnections) {
  const Certificate certificate("stops");
  auto server = std::make_unique<TestServer>(certificate.options());
  TlsClient idle(server->port()), busy(server->port());
  EXPECT_EQ(idle.ask(test_get("/")).status, 200);
  busy.send(test_get("/wait"));
  const TestCall call = server->next();
  TestEvent gone;
  call.exchange->on_gone([&] { gone.set(); });
  call.exchange->start_stream(200, {});
  call.exchange->write(std::string(1 << 20, 'x'));
  server->destroy();
  EXPECT_TRUE(gone.is_set());
  busy.receive_all();
  EXPECT_TRUE(idle.ended());
}

TEST(HttpTls, SaysWhichFileIsWrong) {
  const Certificate certificate("right"), other("other");
  const auto start = [](HttpOptions options) {
    options.port = 0;
    auto started = HttpServer::start(std::move(options), [](auto, auto) {}, nullptr, test_error_body);
    return started.ok() ? Error{ErrorCode::kInternal, "started"} : started.error();
  };
  HttpOptions missing = certificate.options();
  missing.tls_certificate_path = certificate.folder / "absent.pem";
  EXPECT_EQ(start(missing).code, ErrorCode::kInvalidArgument);
  EXPECT_NE(start(missing).message.find("absent.pem"), std::string::npos) << start(missing).message;
  EXPECT_NE(start(missing).message.find("No such file"), std::string::npos) << start(missing).message;
  HttpOptions mismatch = certificate.options();
  mismatch.tls_key_path = other.key;
  EXPECT_EQ(start(mismatch).code, ErrorCode::kInvalidArgument);
  std::ofstream(certificate.folder / "noise.pem") << "noise";
  HttpOptions noise = certificate.options();
  noise.tls_key_path = certificate.folder / "noise.pem";
  EXPECT_EQ(start(noise).code, ErrorCode::kInvalidArgument);
  EXPECT_NE(start(noise).message.find("noise.pem"), std::string::npos) << start(noise).message;
}

}  // namespace
}  // namespace fathom
