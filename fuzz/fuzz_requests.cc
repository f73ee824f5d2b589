// Requests of every endpoint: the first byte chooses the path, the rest is the body.
#include <cstdint>
#include <string>

#include "server/test_exchange.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  static TestService service(Json::parse(
      R"({"context_tokens": 512, "answers": [{"text": "a<｜end▁of▁sentence｜>", "uses": -1}]})"));
  static const char* const kPaths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                       "/v1/messages", "/v1/messages/count_tokens", "/tokenize",
                                       "/detokenize", "/apply-template"};
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto exchange = service.start("POST", kPaths[data[0] % std::size(kPaths)], body);
  exchange->wait();
  // Nothing a client sends is the server's fault, except where the scripted answer breaks a form that was asked
  // for.
  FATHOM_CHECK(exchange->status() != 500 || exchange->body().find("mask forbids") != std::string::npos, "{}",
               exchange->body());
  return 0;
}
