// What the server tells of itself: models, health, slots, properties, cancelling, the chat page.
#include <nlohmann/json.hpp>

#include "server/submit.h"
#include "server/web_assets.h"

namespace fathom {
namespace {

Json model_entry(const ServiceContext& context) {
  const ModelCard& card = context.card;
  return {{"id", card.name},
          {"object", "model"},
          {"created", card.created_s},
          {"owned_by", "fathom"},
          {"type", "model"},
          {"display_name", card.name},
          {"context_length", card.context_tokens},
          {"max_model_len", card.context_tokens},
          {"meta",
           {{"n_ctx", card.context_tokens},
            {"n_vocab", context.generator.status().vocab_size},
            {"fingerprint", card.fingerprint},
            {"has_vision", card.has_vision}}}};
}

std::string_view phase_name(SlotStatus::Phase phase) {
  switch (phase) {
    case SlotStatus::Phase::kIdle: return "idle";
    case SlotStatus::Phase::kPrefill: return "prefill";
    case SlotStatus::Phase::kDecode: return "decode";
  }
  return "idle";
}

std::string_view guard_name(LoopGuardMode mode) {
  switch (mode) {
    case LoopGuardMode::kOff: return "off";
    case LoopGuardMode::kObserve: return "observe";
    case LoopGuardMode::kStop: return "stop";
  }
  return "off";
}

Json defaults_json(const GenerationDefaults& defaults) {
  return {{"temperature", defaults.temperature},
          {"top_p", defaults.top_p},
          {"top_k", defaults.top_k},
          {"min_p", defaults.min_p},
          {"max_tokens", defaults.max_tokens},
          {"reasoning_effort", "high"},
          {"loop_guard", guard_name(defaults.loop_guard.mode)}};
}

}  // namespace

Result<void> get_models(ServiceContext& context, const HttpRequest&, const Exchange& exchange) {
  const Json entry = model_entry(context);
  // `models` is what one coding agent looks for beside the usual `data`.
  exchange->respond(json_response(200, {{"object", "list"},
                                        {"data", Json::array({entry})},
                                        {"models", Json::array({entry})},
                                        {"has_more", false},
                                        {"first_id", context.card.name},
                                        {"last_id", context.card.name}}));
  return {};
}

Result<void> get_model(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string_view id = std::string_view(http.path).substr(kPrefix.size());
  if (id != context.card.name)
    return Error::not_found("model: expected \"{}\", the one that is served, found \"{}\"", context.card.name, id);
  exchange->respond(json_response(200, model_entry(context)));
  return {};
}

Result<void> get_health(ServiceContext& context, const HttpRequest&, const Exchange& exchange) {
  const GeneratorStatus status = context.generator.status();
  const bool accepts = status.accepts_requests;
  exchange->respond(json_response(accepts ? 200 : 503, {{"status", accepts ? "ok" : "shutting down"}}));
  return {};
}

Result<void> get_slots(ServiceContext& context, const HttpRequest&, const Exchange& exchange) {
  const GeneratorStatus status = context.generator.status();
  Json slots = Json::array();
  for (size_t index = 0; index < status.slots.size(); ++index) {
    const SlotStatus& slot = status.slots[index];
    slots.push_back({{"id", index},
                     {"state", phase_name(slot.phase)},
                     {"is_processing", slot.phase != SlotStatus::Phase::kIdle},
                     {"request", slot.name.empty() ? Json() : Json(slot.name)},
                     {"n_ctx", slot.context_tokens},
                     {"held_tokens", slot.held_tokens},
                     {"prompt_tokens", slot.prompt_tokens},
                     {"cached_tokens", slot.cached_tokens},
                     {"generated_tokens", slot.generated_tokens}});
  }
  exchange->respond(json_response(200, {{"slots", std::move(slots)},
                                        {"queue", status.queued_requests},
                                        {"queue_limit", status.queue_limit}}));
  return {};
}

Result<void> get_props(ServiceContext& context, const HttpRequest&, const Exchange& exchange) {
  const GeneratorStatus status = context.generator.status();
  exchange->respond(json_response(200, {{"model", context.card.name},
                                        {"fingerprint", context.card.fingerprint},
                                        {"backend", context.card.backend},
                                        {"version", FATHOM_VERSION},
                                        {"context_size", status.context_tokens},
                                        {"n_ctx", status.context_tokens},
                                        {"total_slots", status.slots.size()},
                                        {"vocab_size", status.vocab_size},
                                        {"has_vision", context.card.has_vision},
                                        {"modalities", {{"vision", context.card.has_vision}}},
                                        {"defaults", defaults_json(context.options.defaults)}}));
  return {};
}

Result<void> post_cancel(ServiceContext& context, const HttpRequest& http, const Exchange& exchange) {
  constexpr std::string_view kPrefix = "/v1/cancel/";
  const std::string_view name = std::string_view(http.path).substr(kPrefix.size());
  if (!context.live.cancel(name)) return Error::not_found("id: no request \"{}\" is being answered", name);
  exchange->respond(json_response(200, {{"id", name}, {"cancelled", true}}));
  return {};
}

Result<void> get_page(ServiceContext&, const HttpRequest& http, const Exchange& exchange) {
  for (const WebAsset& asset : web_assets()) {
    if (asset.path != http.path) continue;
    HttpResponse response{.status = 200, .headers = {}, .body = std::string(asset.bytes)};
    response.headers = {{"Content-Type", std::string(asset.content_type)},
                        {"Content-Security-Policy", std::string(kWebContentSecurityPolicy)},
                        {"Referrer-Policy", "no-referrer"},
                        {"Cache-Control", asset.immutable ? "public, max-age=31536000, immutable" : "no-cache"}};
    exchange->respond(std::move(response));
    return {};
  }
  return Error::not_found("there is nothing at {}", http.path);
}

}  // namespace fathom
