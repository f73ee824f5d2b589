// What all endpoints share, and which endpoint answers which path.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "server/api_error.h"
#include "server/constraint.h"
#include "server/event_stream.h"
#include "server/finish.h"
#include "server/generation_fields.h"
#include "server/http/http_server.h"
#include "server/live_requests.h"
#include "server/turn_memory.h"
#include "text/tokenizer.h"

namespace fathom {

class ResponseStore;

/// What clients may know of the model. No path of this machine.
struct ModelCard {
  std::string name;
  int64_t created_s = 0;
  int64_t context_tokens = 0;
  std::string fingerprint;  // hexadecimal
  std::string backend;      // "cpu avx2, 2 threads"
  bool has_vision = false;
};

struct ServiceOptions {
  GenerationDefaults defaults;
  LoopFinishReason loop_finish_reason = LoopFinishReason::kLength;
  std::chrono::milliseconds keep_alive_interval{5000};
  /// A line of a system text that changes with every request of some clients and would spoil every prefix.
  bool drops_billing_header = true;
  std::vector<std::string> api_keys;  // none: open
  size_t turn_memory_ids = size_t{4} << 20;
  int workers = 4;                    // threads that parse and render requests
};

/// Endpoints get this; all of it may be used from any thread.
class ServiceContext {
 public:
  ServiceContext(Generator& generator, const Tokenizer& tokenizer, ModelCard card, const ServiceOptions& options);

  Generator& generator;
  const Tokenizer& tokenizer;
  const ModelCard card;
  const ServiceOptions options;
  GrammarCompiler compiler;
  TurnMemory memory;
  LiveRequests live;
  const std::shared_ptr<ResponseStore> responses;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  const size_t longest_token_bytes;
  /// AnswerSettings::run_end of whole answers.
  std::function<void(std::function<void()>)> run_end;

  /// Streams that want to be kept alive while nothing is generated.
  void keep_alive(const std::shared_ptr<EventStream>& stream);
  void beat();

 private:
  std::mutex streams_mutex_;
  std::vector<std::weak_ptr<EventStream>> streams_;
};

/// An endpoint's work, on a worker's thread. Errors become the response.
using Endpoint = Result<void> (*)(ServiceContext& context, const HttpRequest& request,
                                  const std::shared_ptr<HttpExchange>& exchange);

class Service {
 public:
  Service(Generator& generator, const Tokenizer& tokenizer, ModelCard card, ServiceOptions options);
  ~Service();

  /// For HttpServer::start(). The service must outlive the server.
  void handle(std::shared_ptr<const HttpRequest> request, std::shared_ptr<HttpExchange> exchange);
  /// When the generator has ended: whoever still waits for an answer to begin, or comes later, hears 503.
  void end();
  /// Refuses missing keys, unknown paths and wrong methods before a body is read.
  std::optional<HttpResponse> admit(const HttpRequest& request) const;
  /// Of the HTTP server itself, in the shape of the path's API.
  static HttpResponse error_body(int status, std::string_view message, std::string_view path);
  ServiceContext& context() { return context_; }

 private:
  struct Workers;
  ServiceContext context_;
  std::unique_ptr<Workers> workers_;
};

// ---- Endpoints, one file a family ----

using Exchange = std::shared_ptr<HttpExchange>;
Result<void> post_chat_completions(ServiceContext&, const HttpRequest&, const Exchange&);  // chat_api.cc
Result<void> post_completions(ServiceContext&, const HttpRequest&, const Exchange&);       // completions_api.cc
Result<void> post_responses(ServiceContext&, const HttpRequest&, const Exchange&);         // responses_api.cc
Result<void> get_response(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> delete_response(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> post_messages(ServiceContext&, const HttpRequest&, const Exchange&);          // messages_api.cc
Result<void> post_count_tokens(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> post_tokenize(ServiceContext&, const HttpRequest&, const Exchange&);          // tokens_api.cc
Result<void> post_detokenize(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> post_apply_template(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> get_models(ServiceContext&, const HttpRequest&, const Exchange&);             // status_api.cc
Result<void> get_model(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> get_health(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> get_metrics(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> get_slots(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> get_props(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> post_cancel(ServiceContext&, const HttpRequest&, const Exchange&);
Result<void> get_page(ServiceContext&, const HttpRequest&, const Exchange&);

}  // namespace fathom
