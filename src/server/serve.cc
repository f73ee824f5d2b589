#include "server/serve.h"

#include <arpa/inet.h>

#include "base/log.h"
#include "base/sha256.h"
#include "capi/handles.h"
#include "engine/disk_cache.h"
#include "engine/session.h"
#include "server/scripted_generator.h"
#include "server/submit.h"

namespace fathom {
namespace {

// Time for clients to read what is written, once nothing is generated any more.
constexpr std::chrono::milliseconds kDeliveryPatience{2000};

Result<void> check(const ServeOptions& options) {
  // It would be the key of whoever gives none; scripts get one out of a variable that is not set.
  for (const std::string& key : options.service.api_keys)
    if (key.empty()) return Error::invalid("API key: expected at least one character, found an empty key");
  if (is_loopback(options.http.host) || !options.service.api_keys.empty() || options.allow_open) return {};
  return Error::invalid(
      "host {}: others than this machine could use the server without a key: give API keys, or say that it is "
      "meant",
      options.http.host);
}

ModelCard make_card(const fathom_engine& engine, const ServeOptions& options) {
  ModelCard card;
  card.name = options.model_name.empty() ? engine.name : options.model_name;
  card.created_s = now_s();
  card.context_tokens = options.scheduler.context_tokens;
  card.fingerprint = hex_string(engine.model->fingerprint());
  card.backend = engine.backend_description;
  card.has_vision = false;  // the pack may have it, the engine does not read images
  return card;
}

// The engine was opened for its slots alone.
Result<void> check_memory(const fathom_engine& engine, const ServeOptions& options) {
  MemoryPlanOptions wanted = engine.plan.options;
  wanted.sessions = options.scheduler.slots;
  wanted.context_tokens = options.scheduler.context_tokens;
  wanted.is_scheduler = true;
  wanted.cache_bytes = options.scheduler.cache_bytes;
  if (!options.cache_folder.empty()) wanted.disk_queue_bytes = DiskCacheOptions().queue_bytes_max;
  const MemoryPlan plan =
      plan_memory(engine.model->config(), engine.plan.weights, wanted, engine.plan.budget_bytes);
  if (plan.fits()) return {};
  return Error::no_memory("{} requests at once with {} tokens each do not fit in memory\n{}", wanted.sessions,
                          wanted.context_tokens, plan.report());
}

Result<std::unique_ptr<DiskCache>> open_disk_cache(const Model& model, const ServeOptions& options) {
  if (options.cache_folder.empty()) return std::unique_ptr<DiskCache>();
  return DiskCache::open({.folder = options.cache_folder,
                          .bytes_max = options.cache_folder_bytes,
                          .owner = saved_state_owner(model, options.scheduler.context_tokens),
                          .rewind_tokens = model.options().rewind_tokens});
}

}  // namespace

bool is_loopback(std::string_view host) {
  // Names may begin with "127." as well, and belong to anybody.
  in_addr address{};
  const bool is_v4 = inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || host == "[::1]" || (is_v4 && host.starts_with("127."));
}

struct Server::Parts {
  std::string host;
  bool is_tls = false;
  // In the order in which they need each other; destroyed from the last to the first.
  std::unique_ptr<DiskCache> disk;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<Service> service;
  std::unique_ptr<HttpServer> http;
};

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

Result<std::unique_ptr<Server>> Server::start(fathom_engine& engine, ServeOptions options) {
  FATHOM_TRY(check(options));
  if (engine.tokenizer == nullptr) return Error::unsupported("{}: the pack has no tokenizer", engine.path);
  const Tokenizer& tokenizer = engine.tokenizer->tokenizer;
  auto parts = std::make_unique<Parts>();
  parts->host = options.http.host;
  parts->is_tls = !options.http.tls_certificate_path.empty();
  if (options.script_json.empty()) {
    FATHOM_TRY(check_memory(engine, options));
    FATHOM_ASSIGN(parts->disk, open_disk_cache(*engine.model, options));
    FATHOM_ASSIGN(parts->generator, Scheduler::make(*engine.model, options.scheduler, parts->disk.get()));
  } else {
    FATHOM_ASSIGN(parts->generator, make_scripted_generator(options.script_json, tokenizer));
    options.scheduler.context_tokens = parts->generator->status().context_tokens;
  }
  parts->service =
      std::make_unique<Service>(*parts->generator, tokenizer, make_card(engine, options), options.service);
  Service* service = parts->service.get();
  FATHOM_ASSIGN(
      parts->http,
      HttpServer::start(
          options.http,
          [service](std::shared_ptr<const HttpRequest> request, std::shared_ptr<HttpExchange> exchange) {
            service->handle(std::move(request), std::move(exchange));
          },
          [service](const HttpRequest& request) { return service->admit(request); }, Service::error_body));
  return std::unique_ptr<Server>(new Server(std::move(parts)));
}

uint16_t Server::port() const { return parts_->http->port(); }

std::string Server::address() const {
  const bool is_v6 = parts_->host.find(':') != std::string::npos && !parts_->host.starts_with('[');
  return fmt::format("{}://{}{}{}:{}", parts_->is_tls ? "https" : "http", is_v6 ? "[" : "", parts_->host,
                     is_v6 ? "]" : "", port());
}

void Server::stop(std::chrono::milliseconds patience) {
  parts_->generator->shutdown(GenerationClock::now() + patience);
  // A grammar may take longer to compile than clients are waited for.
  parts_->service->end();
  parts_->http->stop(patience.count() == 0 ? patience : kDeliveryPatience);
}

}  // namespace fathom
