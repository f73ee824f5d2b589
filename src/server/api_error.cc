#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "server/live_requests.h"

namespace fathom {
namespace {

constexpr int kRetryAfterS = 2;

// "messages[2].role: expected a string": the part before the colon, if it can be a path.
std::string param_of(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos || colon == 0 || colon > 200) return "";
  const std::string_view head = message.substr(0, colon);
  return head.find(' ') == std::string_view::npos ? std::string(head) : "";
}

std::string_view openai_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiFamily family_of(std::string_view path) {
  const bool is_anthropic = path == "/v1/messages" || path.starts_with("/v1/messages/");
  return is_anthropic ? ApiFamily::kAnthropic : ApiFamily::kOpenAi;
}

ApiError ApiError::make(int status, std::string_view message) {
  ApiError error;
  error.status = status;
  error.type = openai_type(status);
  error.message = message;
  if (status == 429 || status == 503) error.retry_after_s = kRetryAfterS;
  return error;
}

ApiError ApiError::from(const Error& error) {
  int status = 500;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kContextFull: status = 400; break;
    case ErrorCode::kNotFound: status = 404; break;
    case ErrorCode::kBusy: status = 429; break;
    case ErrorCode::kState:
    case ErrorCode::kNoMemory: status = 503; break;
    case ErrorCode::kCancelled: status = 499; break;
    case ErrorCode::kIo:
    case ErrorCode::kBadPack:
    case ErrorCode::kInternal: status = 500; break;
  }
  ApiError result = make(status, error.message);
  if (status == 400) result.param = param_of(error.message);
  if (error.code == ErrorCode::kContextFull) result.code = "context_length_exceeded";
  if (error.code == ErrorCode::kUnsupported) result.code = "unsupported_value";
  if (error.code == ErrorCode::kBusy) result.code = "queue_full";
  return result;
}

Json ApiError::body(ApiFamily family) const {
  if (family == ApiFamily::kAnthropic)
    return {{"type", "error"},
            {"error", {{"type", anthropic_type(status)}, {"message", message}}},
            {"request_id", text_or_null(request_id)}};
  return {{"error",
           {{"message", message}, {"type", type}, {"param", text_or_null(param)}, {"code", text_or_null(code)}}}};
}

HttpResponse ApiError::response(ApiFamily family, HttpHeaders more) const {
  if (family == ApiFamily::kAnthropic && request_id.empty()) {
    ApiError named = *this;
    named.request_id = random_name("req_");
    return named.response(family, std::move(more));
  }
  HttpResponse response = json_response(status, body(family), std::move(more));
  if (family == ApiFamily::kAnthropic) response.headers.emplace_back("request-id", request_id);
  if (retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse json_response(int status, const Json& body, HttpHeaders more) {
  more.emplace_back("Content-Type", "application/json");
  return {.status = status, .headers = std::move(more), .body = json_line(body)};
}

}  // namespace fathom
