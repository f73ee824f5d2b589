#include "measure/driver.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/file.h"
#include "base/json_depth.h"
#include "measure/embedded_files.h"
#include "measure/json_members.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kDriverBytesMax = 1 << 20;
constexpr std::array kPlaceholders = {"{ids}",        "{text}",        "{ids_or_text}", "{model}",
                                      "{max_tokens}", "{count}",       "{temperature}", "{seed}"};

/// An object of the file: reads its members and remembers which names there are.
class Members {
 public:
  static Result<Members> open(const Json& json, std::string where) {
    if (!json.is_object()) return Error::invalid("{}: expected an object, found {}", where, shown_json(json));
    return Members(json, std::move(where));
  }

  /// Null where there is none.
  const Json* find(const std::string& name) {
    known_.insert(name);
    const auto at = json_->find(name);
    return at == json_->end() ? nullptr : &*at;
  }
  Result<const Json*> need(const std::string& name, const char* expected) {
    const Json* value = find(name);
    if (value == nullptr) return Error::invalid("{}: expected {}, found nothing", place(name), expected);
    return value;
  }
  Error wrong(const std::string& name, const char* expected, const Json& found) const {
    return Error::invalid("{}: expected {}, found {}", place(name), expected, shown_json(found));
  }
  std::string place(const std::string& name) const {
    return where_ + (where_.ends_with(": ") ? "" : ".") + name;
  }

  Result<std::string> text(const std::string& name) {
    FATHOM_ASSIGN(const Json* value, need(name, "a string that is not empty"));
    if (!value->is_string() || value->get_ref<const std::string&>().empty())
      return wrong(name, "a string that is not empty", *value);
    return value->get<std::string>();
  }
  Result<bool> boolean(const std::string& name) {
    FATHOM_ASSIGN(const Json* value, need(name, "true or false"));
    if (!value->is_boolean()) return wrong(name, "true or false", *value);
    return value->get<bool>();
  }
  Result<std::string> path(const std::string& name) {
    FATHOM_ASSIGN(const Json* value, need(name, "a path that begins with /"));
    if (!value->is_string() || !value->get_ref<const std::string&>().starts_with('/'))
      return wrong(name, "a path that begins with /", *value);
    return value->get<std::string>();
  }
  Result<JsonPointer> pointer_of(const std::string& name, const Json& value) const {
    constexpr const char* kExpected = "a JSON pointer, such as /choices/0/text";
    if (!value.is_string() || !value.get_ref<const std::string&>().starts_with('/'))
      return wrong(name, kExpected, value);
    try {
      return JsonPointer(value.get_ref<const std::string&>());
    } catch (const Json::exception&) {
      return wrong(name, kExpected, value);
    }
  }
  Result<JsonPointer> pointer(const std::string& name) {
    FATHOM_ASSIGN(const Json* value, need(name, "a JSON pointer"));
    return pointer_of(name, *value);
  }
  Result<void> pointer(const std::string& name, std::optional<JsonPointer>& into) {
    if (const Json* value = find(name)) {
      FATHOM_ASSIGN(into, pointer_of(name, *value));
    }
    return {};
  }
  Result<void> texts(const std::string& name, std::vector<std::string>& into) {
    FATHOM_ASSIGN(const Json* value, need(name, "a list of strings"));
    if (!value->is_array()) return wrong(name, "a list of strings", *value);
    for (const Json& item : *value) {
      if (!item.is_string()) return wrong(name, "a list of strings", *value);
      into.push_back(item.get<std::string>());
    }
    return {};
  }
  /// An object whose strings in braces are known placeholders.
  Result<Json> body(const std::string& name) {
    FATHOM_ASSIGN(const Json* value, need(name, "an object"));
    if (!value->is_object()) return wrong(name, "an object", *value);
    FATHOM_TRY(check_placeholders(place(name), *value));
    return *value;
  }
  /// To be called when everything has been asked for.
  Result<void> end() const {
    for (const auto& [name, value] : json_->items()) {
      if (known_.contains(name)) continue;
      std::string names;
      for (const std::string& known : known_) names += (names.empty() ? "" : ", ") + known;
      return Error::invalid("{}: expected one of {}, found this name", place(name), names);
    }
    return {};
  }

 private:
  Members(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}

  static Result<void> check_placeholders(const std::string& where, const Json& value) {
    if (value.is_string()) {
      const std::string& text = value.get_ref<const std::string&>();
      if (!text.starts_with('{') || !text.ends_with('}')) return {};
      if (std::find(kPlaceholders.begin(), kPlaceholders.end(), text) != kPlaceholders.end()) return {};
      std::string names;
      for (const char* known : kPlaceholders) names += (names.empty() ? "" : ", ") + std::string(known);
      return Error::invalid("{}: expected one of {}, found {}", where, names, text);
    }
    if (value.is_structured())
      for (const auto& [name, item] : value.items()) FATHOM_TRY(check_placeholders(where + "." + name, item));
    return {};
  }

  const Json* json_;
  std::string where_;
  std::set<std::string> known_;
};

Result<void> read_time(Members& stream, const std::string& name, std::optional<JsonPointer>& into,
                       double& unit_s) {
  std::optional<JsonPointer> seconds;
  FATHOM_TRY(stream.pointer(name + "_ms", into));
  FATHOM_TRY(stream.pointer(name + "_s", seconds));
  if (into && seconds)
    return Error::invalid("{}: expected only one of {}_ms and {}_s, found both", stream.place(name + "_s"), name,
                          name);
  unit_s = into ? 1e-3 : 1;
  if (seconds) into = seconds;
  return {};
}

Result<void> read_flag(Members& members, const std::string& name, bool& into) {
  if (members.find(name) == nullptr) return {};
  FATHOM_ASSIGN(into, members.boolean(name));
  return {};
}

Result<StreamShape> read_stream(const Json& json, std::string where) {
  FATHOM_ASSIGN(Members members, Members::open(json, std::move(where)));
  StreamShape shape;
  FATHOM_ASSIGN(const std::string end, members.text("end"));
  shape.ends_with_done = end == "[DONE]";
  if (!shape.ends_with_done) {
    if (!end.starts_with('/')) return members.wrong("end", "\"[DONE]\" or a JSON pointer", json["end"]);
    FATHOM_ASSIGN(shape.end, members.pointer("end"));
  }
  FATHOM_TRY(members.pointer("ids", shape.ids));
  FATHOM_TRY(members.pointer("prompt_ids", shape.prompt_ids));
  FATHOM_TRY(members.pointer("finish_reason", shape.finish_reason));
  FATHOM_TRY(members.pointer("error", shape.error));
  FATHOM_ASSIGN(const Json* text, members.need("text", "a JSON pointer or a list of them"));
  for (const Json& item : text->is_array() ? *text : Json::array({*text})) {
    FATHOM_ASSIGN(JsonPointer pointer, members.pointer_of("text", item));
    shape.text.push_back(std::move(pointer));
  }
  FATHOM_TRY(read_flag(members, "ids_accumulate", shape.ids_accumulate));
  FATHOM_TRY(read_flag(members, "text_accumulates", shape.text_accumulates));
  FATHOM_TRY(members.pointer("prompt_tokens", shape.prompt_tokens));
  FATHOM_TRY(members.pointer("cached_tokens", shape.cached_tokens));
  FATHOM_TRY(members.pointer("output_tokens", shape.output_tokens));
  FATHOM_TRY(members.pointer("prefill_done", shape.prefill_done));
  FATHOM_TRY(members.pointer("prefill_total", shape.prefill_total));
  if (shape.prefill_done.has_value() != shape.prefill_total.has_value())
    return Error::invalid("{}: expected both prefill_done and prefill_total or neither, found one",
                          members.place(shape.prefill_done ? "prefill_total" : "prefill_done"));
  FATHOM_TRY(read_time(members, "prefill", shape.prefill, shape.prefill_unit_s));
  FATHOM_TRY(read_time(members, "decode", shape.decode, shape.decode_unit_s));
  FATHOM_TRY(members.end());
  return shape;
}

Result<void> read_endpoint(Members& file, const std::string& name, std::optional<Endpoint>& into) {
  const Json* json = file.find(name);
  if (json == nullptr) return {};
  FATHOM_ASSIGN(Members members, Members::open(*json, file.place(name)));
  Endpoint endpoint;
  FATHOM_ASSIGN(endpoint.path, members.path("path"));
  FATHOM_ASSIGN(endpoint.body, members.body("body"));
  FATHOM_ASSIGN(endpoint.when_ignore_eos, members.body("when_ignore_eos"));
  FATHOM_ASSIGN(const Json* stream, members.need("stream", "an object"));
  FATHOM_ASSIGN(endpoint.stream, read_stream(*stream, members.place("stream")));
  FATHOM_TRY(members.end());
  into = std::move(endpoint);
  return {};
}

Result<void> read_probe(Members& file, const std::string& name, std::optional<Probe>& into) {
  const Json* json = file.find(name);
  if (json == nullptr) return {};
  FATHOM_ASSIGN(Members members, Members::open(*json, file.place(name)));
  Probe probe;
  FATHOM_ASSIGN(probe.path, members.path("path"));
  FATHOM_ASSIGN(probe.pointer, members.pointer("pointer"));
  FATHOM_TRY(members.end());
  into = std::move(probe);
  return {};
}

Result<void> read_clear(Members& file, std::optional<ClearState>& into) {
  FATHOM_ASSIGN(const Json* json, file.need("clear", "an object, or null where there is no way"));
  if (json->is_null()) return {};
  FATHOM_ASSIGN(Members members, Members::open(*json, file.place("clear")));
  ClearState clear;
  if (members.find("next_request") != nullptr) {
    FATHOM_ASSIGN(clear.next_request, members.body("next_request"));
  } else {
    FATHOM_ASSIGN(clear.method, members.text("method"));
    FATHOM_ASSIGN(clear.path, members.path("path"));
    if (members.find("body") != nullptr) {
      FATHOM_ASSIGN(clear.body, members.body("body"));
    }
  }
  FATHOM_TRY(members.end());
  into = std::move(clear);
  return {};
}

Result<void> read_logprobs(Members& file, std::optional<LogprobsEndpoint>& into) {
  const Json* json = file.find("logprobs");
  if (json == nullptr) return {};
  FATHOM_ASSIGN(Members members, Members::open(*json, file.place("logprobs")));
  LogprobsEndpoint endpoint;
  FATHOM_ASSIGN(endpoint.path, members.path("path"));
  FATHOM_ASSIGN(endpoint.body, members.body("body"));
  FATHOM_ASSIGN(endpoint.entries, members.pointer("entries"));
  if (members.find("id") != nullptr || members.find("logprob") != nullptr) {
    FATHOM_ASSIGN(endpoint.id, members.pointer("id"));
    FATHOM_ASSIGN(endpoint.logprob, members.pointer("logprob"));
  }
  FATHOM_TRY(members.end());
  into = std::move(endpoint);
  return {};
}

Result<void> read_tokenize(Members& file, std::optional<TokenizeEndpoint>& into) {
  const Json* json = file.find("tokenize");
  if (json == nullptr) return {};
  FATHOM_ASSIGN(Members members, Members::open(*json, file.place("tokenize")));
  TokenizeEndpoint endpoint;
  FATHOM_ASSIGN(endpoint.path, members.path("path"));
  FATHOM_ASSIGN(endpoint.body, members.body("body"));
  FATHOM_ASSIGN(endpoint.ids, members.pointer("ids"));
  FATHOM_TRY(members.end());
  into = std::move(endpoint);
  return {};
}

Result<void> read_about(Members& file, Driver& driver) {
  FATHOM_ASSIGN(driver.name, file.text("name"));
  FATHOM_ASSIGN(driver.engine, file.text("engine"));
  FATHOM_ASSIGN(const Json* source, file.need("source", "an object: which fact, and where it is from"));
  FATHOM_ASSIGN(Members sources, Members::open(*source, file.place("source")));
  if (source->empty()) return file.wrong("source", "at least one fact and where it is from", *source);
  for (const auto& [fact, from] : source->items()) {
    FATHOM_ASSIGN(std::string text, sources.text(fact));
    driver.source.emplace_back(fact, std::move(text));
  }
  FATHOM_TRY(file.texts("unconfirmed", driver.unconfirmed));
  FATHOM_TRY(file.texts("notes", driver.notes));
  return {};
}

Result<void> read_capabilities(Members& file, Driver& driver) {
  FATHOM_ASSIGN(const Json* json, file.need("capabilities", "an object"));
  FATHOM_ASSIGN(Members members, Members::open(*json, file.place("capabilities")));
  FATHOM_ASSIGN(driver.takes_ids, members.boolean("takes_ids"));
  FATHOM_ASSIGN(driver.gives_ids, members.boolean("gives_ids"));
  FATHOM_ASSIGN(driver.gives_logprobs, members.boolean("gives_logprobs"));
  FATHOM_ASSIGN(driver.continues_exactly, members.boolean("continues_exactly"));
  return members.end();
}

Result<void> check_whole(const Driver& driver, const std::string& where) {
  if (!driver.completion && !driver.chat)
    return Error::invalid("{}: expected completion, chat or both, found neither", where);
  const bool has_ids = driver.completion && driver.completion->stream.ids;
  if (driver.gives_ids && !has_ids)
    return Error::invalid("{}: capabilities.gives_ids: expected false without completion.stream.ids, found true",
                          where);
  if (driver.takes_ids) {
    const std::string body = driver.completion ? driver.completion->body.dump() : "";
    if (body.find("\"{ids}\"") == std::string::npos && body.find("\"{ids_or_text}\"") == std::string::npos)
      return Error::invalid("{}: completion.body: expected \"{{ids}}\" or \"{{ids_or_text}}\" in it, as "
                            "capabilities.takes_ids is true, found neither", where);
  }
  if (driver.gives_logprobs != driver.logprobs.has_value())
    return Error::invalid("{}: logprobs: expected it exactly where capabilities.gives_logprobs is true, found {}",
                          where, driver.logprobs ? "it with false" : "nothing with true");
  return {};
}

/// Null where the placeholder has no value.
Json value_of(const std::string& placeholder, const RequestValues& values) {
  const auto json = [](const auto& value) { return value ? Json(*value) : Json(); };
  if (placeholder == "{ids}") return json(values.ids);
  if (placeholder == "{text}") return json(values.text);
  if (placeholder == "{ids_or_text}") return values.ids ? Json(*values.ids) : json(values.text);
  if (placeholder == "{model}") return json(values.model);
  if (placeholder == "{max_tokens}") return json(values.max_tokens);
  if (placeholder == "{count}") return json(values.count);
  if (placeholder == "{temperature}") return json(values.temperature);
  if (placeholder == "{seed}") return json(values.seed);
  return placeholder;
}

}  // namespace

Result<Driver> parse_driver(std::string_view text, const std::string& where) {
  if (json_is_deeper_than(text, kPackJsonDepthMax))
    return Error::invalid("{}: expected a driver file, found JSON nested deeper than {}", where,
                          kPackJsonDepthMax);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    return Error::invalid("{}: expected JSON, found: {}", where, error.what());
  }
  FATHOM_ASSIGN(Members file, Members::open(json, where + ": "));
  Driver driver;
  FATHOM_TRY(read_about(file, driver));
  FATHOM_ASSIGN(const Json* ready, file.need("ready", "an object with a path"));
  FATHOM_ASSIGN(Members ready_members, Members::open(*ready, file.place("ready")));
  FATHOM_ASSIGN(driver.ready_path, ready_members.path("path"));
  FATHOM_TRY(ready_members.end());
  FATHOM_TRY(read_probe(file, "version", driver.version));
  FATHOM_TRY(read_probe(file, "model", driver.model));
  FATHOM_TRY(read_capabilities(file, driver));
  FATHOM_TRY(read_endpoint(file, "completion", driver.completion));
  FATHOM_TRY(read_endpoint(file, "chat", driver.chat));
  FATHOM_TRY(read_clear(file, driver.clear));
  FATHOM_TRY(read_logprobs(file, driver.logprobs));
  FATHOM_TRY(read_tokenize(file, driver.tokenize));
  FATHOM_TRY(file.end());
  FATHOM_TRY(check_whole(driver, where));
  return driver;
}

Result<Driver> load_driver(const std::string& name_or_path) {
  for (const EmbeddedDriver& driver : embedded_drivers())
    if (driver.name == name_or_path) return parse_driver(driver.text, fmt::format("driver {}", driver.name));
  if (name_or_path.find_first_of("/.") == std::string::npos) {
    std::string names;
    for (const std::string& name : embedded_driver_names()) names += (names.empty() ? "" : ", ") + name;
    return Error::not_found("driver: expected one of {}, or the path of a file, found \"{}\"", names,
                            name_or_path);
  }
  FATHOM_ASSIGN(const std::string text, read_text_file(name_or_path, kDriverBytesMax));
  return parse_driver(text, name_or_path);
}

std::vector<EmbeddedDriver> embedded_drivers() {
  std::vector<EmbeddedDriver> drivers;
  for (const EmbeddedFile& file : bench_drivers())
    drivers.push_back({file.name.substr(0, file.name.rfind('.')), file.bytes});
  return drivers;
}

std::vector<std::string> embedded_driver_names() {
  std::vector<std::string> names;
  for (const EmbeddedDriver& driver : embedded_drivers()) names.emplace_back(driver.name);
  return names;
}

Json fill_body(const Json& body, const RequestValues& values) {
  if (body.is_string()) return value_of(body.get_ref<const std::string&>(), values);
  if (!body.is_structured()) return body;
  Json filled = body.is_array() ? Json::array() : Json::object();
  for (const auto& [name, item] : body.items()) {
    Json value = fill_body(item, values);
    if (value.is_null() && item.is_string()) continue;
    if (body.is_array()) filled.push_back(std::move(value));
    else filled[name] = std::move(value);
  }
  return filled;
}

}  // namespace fathom::measure
