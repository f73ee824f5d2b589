// Errors as HTTP clients see them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/http_server.h"
#include "server/json_fields.h"

namespace fathom {

/// The two families of error bodies: {"error": {...}} and {"type": "error", "error": {...}}.
enum class ApiFamily : uint8_t { kOpenAi, kAnthropic };
/// By path: Anthropic's are /v1/messages and what lies below.
ApiFamily family_of(std::string_view path);

struct ApiError {
  int status = 500;
  std::string type;     // "invalid_request_error", ...
  std::string code;     // "context_length_exceeded", ...; empty: null
  std::string param;    // the member at fault; empty: null
  std::string message;
  std::string request_id;  // what Anthropic's shape names the request by; response() makes one up if it is empty
  int retry_after_s = 0;   // 429 and 503

  /// Errors of requests begin with the path of the member: `messages[2].role: expected ...`. It becomes `param`.
  static ApiError from(const Error& error);
  static ApiError make(int status, std::string_view message);
  Json body(ApiFamily family) const;
  /// `more`: headers beside those of the error.
  HttpResponse response(ApiFamily family, HttpHeaders more = {}) const;
};

/// `more`: headers beside the content's type.
HttpResponse json_response(int status, const Json& body, HttpHeaders more = {});

}  // namespace fathom
