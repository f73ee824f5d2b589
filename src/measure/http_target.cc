#include "measure/http_target.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <tuple>
#include <utility>

#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kSmallLimit{std::chrono::seconds(60)};
constexpr size_t kOtherEventsMax = 1 << 14;  // of progress and the like, in one answer
constexpr std::chrono::milliseconds kReadyLimit{2000};  // of one question whether it is ready

std::string body_text(const Json& body) { return body.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// "http://host:80/path" with another port: "http://host:8123/path".
std::string address_with_port(const std::string& address, int port) {
  const size_t scheme = address.find("://");
  const size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  const size_t path = std::min(address.find('/', host), address.size());
  const size_t bracket = address.rfind(']', path);  // an IPv6 address has colons of its own
  const size_t colon = address.find(':', bracket == std::string::npos || bracket < host ? host : bracket);
  return fmt::format("{}:{}{}", address.substr(0, std::min(colon, path)), port, address.substr(path));
}

std::optional<int32_t> id_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "token_id:";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  int32_t id = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), id);
  if (code != std::errc() || end != name.data() + name.size()) return {};
  return id;
}

Result<std::vector<TokenLogprob>> read_logprobs(const LogprobsEndpoint& endpoint, const Json& answer) {
  const auto wrong = [&](const Json& found) {
    return Error::io("wrong log probabilities: expected ids and numbers at {}, found {}",
                     endpoint.entries.to_string(), shown_json(found));
  };
  if (!answer.contains(endpoint.entries)) return wrong(answer);
  const Json& entries = answer.at(endpoint.entries);
  std::vector<TokenLogprob> tokens;
  if (!entries.is_structured()) return wrong(entries);
  for (const auto& [name, entry] : entries.items()) {
    std::optional<int32_t> id;
    const Json* logprob = &entry;
    if (entries.is_object()) {
      id = id_of_name(name);
    } else {
      if (!entry.contains(endpoint.id) || !entry.contains(endpoint.logprob)) return wrong(entry);
      const Json& number = entry.at(endpoint.id);
      if (number.is_number_integer()) id = number.get<int32_t>();
      logprob = &entry.at(endpoint.logprob);
    }
    if (!id || !logprob->is_number()) return wrong(entries);
    tokens.push_back({*id, logprob->get<double>()});
  }
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
    return std::tuple(-a.logprob, a.id) < std::tuple(-b.logprob, b.id);
  });
  return tokens;
}

}  // namespace

Result<void> HttpTarget::launch() {
  address_ = options_.address;
  if (options_.command.empty()) {
    if (address_.empty()) return Error::invalid("target: expected an address or a command, found neither");
    return {};
  }
  std::string command = options_.command;
  if (command.find("{port}") != std::string::npos) {
    FATHOM_ASSIGN(const int port, free_port());
    command = with_port(std::move(command), port);
    address_ = address_with_port(address_.empty() ? "http://127.0.0.1" : address_, port);
  } else if (address_.empty()) {
    return Error::invalid("target: expected \"{{port}}\" in the command, or an address, found neither in: {}",
                          command);
  }
  FATHOM_TRY(check_nobody_answers());
  FATHOM_ASSIGN(child_, ChildProcess::start(command, options_.log_path));
  return {};
}

/// Otherwise an old server would be measured as a fresh one.
Result<void> HttpTarget::check_nobody_answers() const {
  FATHOM_ASSIGN(const std::unique_ptr<HttpClient> client,
                HttpClient::create({.base_url = address_, .key = options_.key}));
  const Result<HttpAnswer> answer = client->fetch({.method = "GET", .path = options_.driver.ready_path,
                                                   .time_limit = kReadyLimit, .silence_limit = kReadyLimit});
  const bool is_free = !answer.ok() && answer.error().message.starts_with("connection refused");
  if (is_free) return {};
  return Error::state("{}: expected nobody to answer before the server is started, found somebody who does",
                      address_);
}

Result<TargetInfo> HttpTarget::start() {
  stop();
  FATHOM_TRY(launch());
  const Driver& driver = options_.driver;
  const auto is_cancelled = [this] { return is_flooded_ || (options_.is_cancelled && options_.is_cancelled()); };
  FATHOM_ASSIGN(client_, HttpClient::create({.base_url = address_, .key = options_.key,
                                             .is_cancelled = is_cancelled}));
  const HttpCall ready{.method = "GET", .path = driver.ready_path, .time_limit = kReadyLimit,
                       .silence_limit = kReadyLimit};
  if (child_) {
    auto waited = child_->wait_ready([&] { return client_->fetch(ready).ok(); }, options_.ready_limit,
                                     options_.is_cancelled);
    if (!waited) {
      stop();
      return waited.error();
    }
  } else {
    FATHOM_TRY([&]() -> Result<void> {
      FATHOM_ASSIGN(const HttpAnswer answer, client_->fetch(ready));
      return {};
    }());
  }
  model_ = options_.model.empty() ? probe(driver.model) : options_.model;
  const std::string version = probe(driver.version);
  TargetInfo info;
  info.engine = driver.engine + (version.empty() ? "" : " " + version);
  info.driver = options_.driver_name.empty() ? driver.name : options_.driver_name;
  info.address = address_;
  info.command = options_.command;
  info.model = model_;
  info.pack_path = options_.pack_path;
  info.takes_ids = driver.takes_ids;
  info.gives_ids = driver.gives_ids;
  info.gives_logprobs = driver.gives_logprobs;
  info.is_http = true;
  info.continues_exactly = driver.continues_exactly;
  if (!driver.gives_ids)
    info.details = "no ids: one time for each piece of text, tokens as the server counts them";
  for (const std::string& note : driver.notes) info.details += (info.details.empty() ? "" : "; ") + note;
  return info;
}

void HttpTarget::stop() {
  client_.reset();
  if (child_) child_->stop(options_.grace);
  child_.reset();
  next_request_ = nullptr;
}

std::string HttpTarget::probe(const std::optional<Probe>& probe) {
  if (!probe) return {};
  const auto answer = client_->fetch_json({.method = "GET", .path = probe->path, .time_limit = kSmallLimit});
  if (!answer || !answer->contains(probe->pointer)) return {};
  const Json& value = answer->at(probe->pointer);
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

Result<Json> HttpTarget::ask(const std::string& path, const Json& body) {
  if (!client_) return Error::state("target {}: it is not started", options_.driver.name);
  return client_->fetch_json({.path = path, .body = body_text(body),
                              .time_limit = std::chrono::hours(1), .silence_limit = std::chrono::hours(1)});
}

bool HttpTarget::clear_state() {
  const auto& clear = options_.driver.clear;
  if (!clear || !client_) return false;
  if (clear->next_request) {
    next_request_ = *clear->next_request;
    return true;
  }
  return client_
      ->fetch({.method = clear->method, .path = clear->path, .body = clear->body ? body_text(*clear->body) : "",
               .time_limit = kSmallLimit})
      .ok();
}

Result<Json> HttpTarget::body_of(const Endpoint& endpoint, const GenerateRequest& request, bool with_ids) {
  RequestValues values;
  if (with_ids) values.ids = request.prompt_ids;
  else values.text = request.prompt_text;
  if (!with_ids && request.prompt_text.empty())
    return Error::invalid("driver {}: expected a prompt as text, as it takes no ids here, found ids only",
                          options_.driver.name);
  if (const size_t offset = invalid_utf8_offset(request.prompt_text); !with_ids && offset != std::string::npos)
    return Error::invalid("prompt: expected UTF-8, found byte 0x{:02x} at offset {}",
                          static_cast<uint8_t>(request.prompt_text[offset]), offset);
  if (!model_.empty()) values.model = model_;
  values.max_tokens = request.max_tokens;
  values.temperature = request.temperature;
  values.seed = request.seed;
  Json body = fill_body(endpoint.body, values);
  if (request.ignore_eos) body.merge_patch(endpoint.when_ignore_eos);
  if (next_request_.is_object()) body.merge_patch(next_request_);
  next_request_ = nullptr;
  return body;
}

Generation HttpTarget::generate(const GenerateRequest& request) {
  Generation failed;
  failed.sent_ns = failed.ended_ns = monotonic_ns();
  const Driver& driver = options_.driver;
  const auto& endpoint = request.is_chat ? driver.chat : driver.completion;
  if (!client_) {
    failed.error = fmt::format("target {}: it is not started", driver.name);
    return failed;
  }
  if (!endpoint) {
    failed.error = fmt::format("driver {} has no {}", driver.name, request.is_chat ? "chat" : "completion");
    return failed;
  }
  const bool with_ids = !request.is_chat && driver.takes_ids && !request.prompt_ids.empty();
  const auto body = body_of(*endpoint, request, with_ids);
  if (!body) {
    failed.error = body.error().message;
    return failed;
  }
  std::vector<ServerEvent> events;
  events.reserve(static_cast<size_t>(std::clamp(request.max_tokens, 0, 1 << 16)) + 16);
  const size_t events_max = kOtherEventsMax + 4 * static_cast<size_t>(std::max(request.max_tokens, 0));
  is_flooded_ = false;
  const StreamEnd end =
      client_->stream({.path = endpoint->path, .body = body_text(*body), .time_limit = request.time_limit,
                       .silence_limit = request.silence_limit},
                      [&](ServerEvent&& event) {
                        if (events.size() < events_max) events.push_back(std::move(event));
                        else is_flooded_ = true;
                      });
  Generation generation =
      read_answer(endpoint->stream, driver.gives_ids, events, end, with_ids ? &request.prompt_ids : nullptr);
  if (is_flooded_)
    generation.error = fmt::format("expected {} tokens, the server sent more than {} events", request.max_tokens,
                                   events_max);
  if (!generation.error.empty()) add_ending(generation.error);
  return generation;
}

void HttpTarget::add_ending(std::string& error) {
  if (!child_) return;
  // A dying process closes its connections a moment before it is dead.
  const bool may_have_died = error.starts_with("stream cut") || error.starts_with("no connection") ||
                             error.starts_with("connection refused");
  for (int tries = may_have_died ? 100 : 1; tries > 0 && !child_->ending(); --tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto ending = child_->ending();
  if (!ending) return;
  const std::string tail = child_->log_tail();
  error += fmt::format("; the server ended with {}", *ending);
  if (!tail.empty()) error += fmt::format("; the end of its log ({}):\n{}", options_.log_path, tail);
}

Result<std::vector<TokenLogprob>> HttpTarget::next_logprobs(const std::vector<int32_t>& ids, int32_t count) {
  const auto& endpoint = options_.driver.logprobs;
  if (!endpoint) return Error::unsupported("driver {} gives no log probabilities with ids", options_.driver.name);
  RequestValues values;
  values.ids = ids;
  values.count = count;
  if (!model_.empty()) values.model = model_;
  FATHOM_ASSIGN(const Json answer, ask(endpoint->path, fill_body(endpoint->body, values)));
  FATHOM_ASSIGN(auto tokens, read_logprobs(*endpoint, answer));
  if (tokens.size() > static_cast<size_t>(std::max(count, 0)))
    tokens.resize(static_cast<size_t>(std::max(count, 0)));
  return tokens;
}

Result<std::vector<int32_t>> HttpTarget::tokenize(const std::string& text) {
  const auto& endpoint = options_.driver.tokenize;
  if (!endpoint) return Error::unsupported("driver {} has no tokenizer", options_.driver.name);
  RequestValues values;
  values.text = text;
  if (!model_.empty()) values.model = model_;
  FATHOM_ASSIGN(const Json answer, ask(endpoint->path, fill_body(endpoint->body, values)));
  std::vector<int32_t> ids;
  const bool is_list = answer.contains(endpoint->ids) && answer.at(endpoint->ids).is_array();
  for (const Json& id : is_list ? answer.at(endpoint->ids) : Json::array({nullptr})) {
    if (!id.is_number_integer())
      return Error::io("wrong ids: expected a list of numbers at {} of {}, found {}", endpoint->ids.to_string(),
                       endpoint->path, shown_json(answer));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

ProcessUsage HttpTarget::usage() { return child_ ? child_->usage() : ProcessUsage{}; }

}  // namespace fathom::measure
