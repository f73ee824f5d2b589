// One list of members a struct, which both the writer and the reader walk: what is written can be read.
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "measure/metrics.h"

namespace fathom::measure {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "fathom-bench";
constexpr int kVersion = 1;
constexpr const char* kStatusNames[] = {"ok", "failed", "not_run"};

/// T or const T: writing and reading share the lists below.
template <class T, class Plain>
concept Either = std::same_as<std::remove_const_t<T>, Plain>;

void members(auto& visit, Either<std::pair<std::string, std::string>> auto& entry) {
  visit.required("name", entry.first);
  visit.required("value", entry.second);
}

void members(auto& visit, Either<Environment> auto& environment) {
  visit("machine", environment.machine);
  visit("cpu", environment.cpu);
  visit("gpu", environment.gpu);
  visit("os", environment.os);
  visit("kernel", environment.kernel);
  visit("power", environment.power);
  visit("cores", environment.cores);
  visit("memory_bytes", environment.memory_bytes);
  visit("more", environment.more);
}

void members(auto& visit, Either<TargetInfo> auto& target) {
  visit("engine", target.engine);
  visit("driver", target.driver);
  visit("address", target.address);
  visit("command", target.command);
  visit("model", target.model);
  visit("pack_path", target.pack_path);
  visit("details", target.details);
  visit("takes_ids", target.takes_ids);
  visit("gives_ids", target.gives_ids);
  visit("gives_logprobs", target.gives_logprobs);
  visit("is_http", target.is_http);
  visit("continues_exactly", target.continues_exactly);
}

void members(auto& visit, Either<ProcessUsage> auto& usage) {
  visit("resident_bytes", usage.resident_bytes);
  visit("resident_peak_bytes", usage.resident_peak_bytes);
  visit("read_bytes", usage.read_bytes);
  visit("written_bytes", usage.written_bytes);
  visit("cpu_s", usage.cpu_s);
}

void members(auto& visit, Either<SystemUsage> auto& usage) {
  visit("swap_used_bytes", usage.swap_used_bytes);
  visit("swapped_in_bytes", usage.swapped_in_bytes);
  visit("swapped_out_bytes", usage.swapped_out_bytes);
  visit("memory_available_bytes", usage.memory_available_bytes);
  visit("disk_read_bytes", usage.disk_read_bytes);
  visit("disk_written_bytes", usage.disk_written_bytes);
}

void members(auto& visit, Either<Stage> auto& stage) {
  visit.required("name", stage.name);
  visit("context_tokens", stage.context_tokens);
  visit("prompt_tokens", stage.prompt_tokens);
  visit("new_tokens", stage.new_tokens);
  visit.required("status", stage.status);
  visit("error", stage.error);
  visit("evaluated_tokens", stage.evaluated_tokens);
  visit("cached_tokens_claimed", stage.cached_tokens_claimed);
  visit("cached_tokens_implied", stage.cached_tokens_implied);
  visit("first_token_s", stage.first_token_s);
  visit("prefill_tokens_per_s", stage.prefill_tokens_per_s);
  visit("output_tokens", stage.output_tokens);
  visit("generation_f1_tokens_per_s", stage.generation_f1_tokens_per_s);
  visit("generation_f2_tokens_per_s", stage.generation_f2_tokens_per_s);
  visit("first_gaps_ms", stage.first_gaps_ms);
  visit("gap_p50_ms", stage.gap_p50_ms);
  visit("gap_p90_ms", stage.gap_p90_ms);
  visit("gap_p99_ms", stage.gap_p99_ms);
  visit("gap_max_ms", stage.gap_max_ms);
  visit("total_s", stage.total_s);
  visit("claimed_prefill_s", stage.claimed_prefill_s);
  visit("claimed_decode_s", stage.claimed_decode_s);
  visit("finish_reason", stage.finish_reason);
  visit("output_ids", stage.output_ids);
  visit("output_sha256", stage.output_sha256);
  visit("process", stage.process);
  visit("before", stage.before);
  visit("after", stage.after);
  visit("observed", stage.observed);
}

void members(auto& visit, Either<Run> auto& run) {
  visit.required("source", run.source);
  visit.required("number", run.number);
  visit.required("stages", run.stages);
  visit("begun", run.begun);
  visit("is_disturbed", run.is_disturbed);
  visit("is_excluded", run.is_excluded);
  visit("disturbances", run.disturbances);
  visit("error", run.error);
}

void members(auto& visit, Either<Source> auto& source) {
  visit.required("name", source.name);
  visit("sha256", source.sha256);
  visit("tokens", source.tokens);
}

void members(auto& visit, Either<Plan> auto& plan) {
  visit("sources", plan.sources);
  visit("alone_tokens", plan.alone_tokens);
  visit("step_tokens", plan.step_tokens);
  visit.required("generated_tokens", plan.generated_tokens);
  visit.required("runs", plan.runs);
  visit.required("scale", plan.scale);
}

void members(auto& visit, Either<Divergence> auto& divergence) {
  visit.required("source", divergence.source);
  visit.required("stage", divergence.stage);
  visit.required("run_a", divergence.run_a);
  visit.required("run_b", divergence.run_b);
  visit.required("token", divergence.token);
  visit.required("id_a", divergence.id_a);
  visit.required("id_b", divergence.id_b);
  visit.logprob("logprob_a", divergence.logprob_a);
  visit.logprob("logprob_b", divergence.logprob_b);
}

void members(auto& visit, Either<PublishedFigure> auto& figure) {
  visit("source", figure.source);
  visit("stage", figure.stage);
  visit.required("metric", figure.metric);
  visit("value", figure.value);
  visit("low", figure.low);
  visit("high", figure.high);
}

void members(auto& visit, Either<BenchResult> auto& result) {
  visit.required("name", result.name);
  visit.required("kind", result.kind);
  visit("created", result.created);
  visit("origin", result.origin);
  visit("program", result.program);
  visit("target", result.target);
  visit("variant", result.variant);
  visit("formula", result.formula);
  visit("pack_name", result.pack_name);
  visit("pack_sha256", result.pack_sha256);
  visit.required("plan", result.plan);
  visit("environment", result.environment);
  visit("runs", result.runs);
  visit("divergences", result.divergences);
  visit("published", result.published);
  visit("remarks", result.remarks);
}

/// Leaves out what is unknown: empty texts and lists, numbers that are not there, are 0, or can be no figure.
class Writer {
 public:
  template <class T>
  static Json object_of(const T& value) {
    Writer writer;
    members(writer, value);
    return std::move(writer.object_);
  }

  void operator()(const char* name, const auto& value) {
    if (is_known(value)) object_[name] = json_of(value);
  }
  void required(const char* name, const auto& value) { object_[name] = json_of(value); }
  void logprob(const char* name, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) object_[name] = *value;
  }

 private:
  static bool is_known(bool) { return true; }
  static bool is_known(std::integral auto value) { return value > 0; }
  static bool is_known(double value) { return std::isfinite(value) && value > 0; }
  static bool is_known(const std::optional<double>& value) {
    return value && std::isfinite(*value) && *value >= 0;
  }
  static bool is_known(const std::optional<int64_t>& value) { return value && *value >= 0; }
  static bool is_known(const std::optional<Variant>& value) { return value.has_value(); }
  static bool is_known(const std::string& value) { return !value.empty(); }
  template <class T>
  static bool is_known(const std::vector<T>& value) { return !value.empty(); }
  template <class T>
    requires std::is_class_v<T>
  static bool is_known(const T& value) { return !json_of(value).empty(); }

  static Json json_of(const std::string& value) { return value; }
  static Json json_of(bool value) { return value; }
  static Json json_of(std::integral auto value) { return value; }
  static Json json_of(double value) { return std::isfinite(value) && value >= 0 ? Json(value) : Json(0.0); }
  static Json json_of(StageStatus value) { return kStatusNames[static_cast<size_t>(value)]; }
  static Json json_of(const std::optional<Variant>& value) { return variant_name(*value); }
  template <class T>
  static Json json_of(const std::optional<T>& value) { return *value; }
  template <class T>
  static Json json_of(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(json_of(value));
    return list;
  }
  template <class T>
    requires std::is_class_v<T>
  static Json json_of(const T& value) { return object_of(value); }

  Json object_ = Json::object();
};

std::string description(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII: it may be cut anywhere
  constexpr size_t kShownBytes = 60;
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

/// Reads members until the first that is wrong, which it keeps as the error.
class Reader {
 public:
  template <class T>
  static Result<T> read(const Json& json, const std::string& where, const std::string& path) {
    Reader reader(where);
    T value;
    reader.value(json, path, value);
    if (reader.error_) return std::move(*reader.error_);
    return value;
  }

  void operator()(const char* name, auto& value) { member(name, value, false); }
  void required(const char* name, auto& value) { member(name, value, true); }
  /// The one kind of number that is negative.
  void logprob(const char* name, std::optional<double>& target) {
    Logprob number;
    member(name, number, false);
    target = number.value;
  }

 private:
  struct Logprob {
    std::optional<double> value;
  };

  explicit Reader(const std::string& where) : where_(where) {}

  void member(const char* name, auto& target, bool is_required) {
    if (error_) return;
    const std::string path = path_.empty() ? name : path_ + "." + name;
    const auto found = object_->find(name);
    if (found != object_->end())
      value(*found, path, target);
    else if (is_required)
      error_ = Error::invalid("{}: {}: expected this member, found none", where_, path);
  }

  void wrong(const std::string& path, const std::string& expected, const Json& found) {
    error_ = Error::invalid("{}: {}: expected {}, found {}", where_, path, expected, description(found));
  }

  void value(const Json& json, const std::string& path, std::string& target) {
    if (!json.is_string()) return wrong(path, "a string", json);
    target = json.get<std::string>();
  }
  void value(const Json& json, const std::string& path, bool& target) {
    if (!json.is_boolean()) return wrong(path, "true or false", json);
    target = json.get<bool>();
  }
  void value(const Json& json, const std::string& path, double& target) {
    const double number = json.is_number() ? json.get<double>() : NAN;
    if (!std::isfinite(number) || number < 0) return wrong(path, "a number from 0", json);
    target = number;
  }
  void value(const Json& json, const std::string& path, Logprob& target) {
    if (!json.is_number() || !std::isfinite(json.get<double>())) return wrong(path, "a number", json);
    target.value = json.get<double>();
  }
  template <std::integral T>
  void value(const Json& json, const std::string& path, T& target) {
    constexpr T kMax = std::numeric_limits<T>::max();
    // The parser keeps a non-negative whole number as unsigned, values of the program may be signed.
    const bool is_whole = json.is_number_unsigned() || (json.is_number_integer() && json.get<int64_t>() >= 0);
    if (!is_whole || json.get<uint64_t>() > static_cast<uint64_t>(kMax))
      return wrong(path, fmt::format("a whole number from 0 to {}", kMax), json);
    target = json.get<T>();
  }
  void value(const Json& json, const std::string& path, StageStatus& target) {
    for (size_t status = 0; status < std::size(kStatusNames); ++status) {
      if (json != kStatusNames[status]) continue;
      target = static_cast<StageStatus>(status);
      return;
    }
    wrong(path, "\"ok\", \"failed\" or \"not_run\"", json);
  }
  void value(const Json& json, const std::string& path, Variant& target) {
    const std::optional<Variant> variant =
        json.is_string() ? variant_of_name(json.get<std::string>()) : std::nullopt;
    if (!variant) return wrong(path, "the name of a variant (\"session\", \"http_ids_exact\", ...)", json);
    target = *variant;
  }
  template <class T>
  void value(const Json& json, const std::string& path, std::optional<T>& target) {
    value(json, path, target.emplace());
  }
  template <class T>
  void value(const Json& json, const std::string& path, std::vector<T>& target) {
    if (!json.is_array()) return wrong(path, "an array", json);
    target.clear();
    target.reserve(json.size());
    for (const Json& item : json) {
      const std::string item_path = fmt::format("{}[{}]", path, target.size());
      value(item, item_path, target.emplace_back());
      if (error_) return;
    }
  }
  template <class T>
    requires std::is_class_v<T>
  void value(const Json& json, const std::string& path, T& target) {
    if (!json.is_object()) return wrong(path.empty() ? "the file" : path, "an object", json);
    const Json* const outer = std::exchange(object_, &json);
    const std::string outer_path = std::exchange(path_, path);
    members(*this, target);
    object_ = outer;
    path_ = outer_path;
  }

  const std::string& where_;
  const Json* object_ = nullptr;  // whose members are being read
  std::string path_;
  std::optional<Error> error_;
};

}  // namespace

Json to_json(const BenchResult& result) {
  Json json = Writer::object_of(result);
  json["format"] = kFormat;
  json["version"] = kVersion;
  return json;
}

Json to_json(const Run& run) { return Writer::object_of(run); }

Result<Run> run_from_json(const Json& json, const std::string& where) {
  return Reader::read<Run>(json, where, "");
}

Json to_json(const TargetInfo& info) { return Writer::object_of(info); }

Result<TargetInfo> target_from_json(const Json& json, const std::string& where) {
  return Reader::read<TargetInfo>(json, where, "");
}

Result<BenchResult> result_from_json(const Json& json, const std::string& where) {
  if (!json.is_object()) return Error::invalid("{}: expected a JSON object, found {}", where, description(json));
  const Json format = json.value("format", Json());
  if (format != kFormat)
    return Error::invalid("{}: format: expected \"{}\", found {}", where, kFormat, description(format));
  const Json version = json.value("version", Json());
  if (version != kVersion)
    return Error::invalid("{}: version: expected {}, which this program reads, found {}", where, kVersion,
                          description(version));
  FATHOM_ASSIGN(BenchResult result, Reader::read<BenchResult>(json, where, ""));
  if (result.kind != "protocol" && result.kind != "published")
    return Error::invalid("{}: kind: expected \"protocol\" or \"published\", found {}", where,
                          description(Json(result.kind)));
  for (size_t figure = 0; figure < result.published.size(); ++figure)
    if (metric_named(result.published[figure].metric) == nullptr)
      return Error::invalid(
          "{}: published[{}].metric: expected the name of a figure (\"prefill_tokens_per_s\", ...), "
          "found {}",
          where, figure, description(Json(result.published[figure].metric)));
  return result;
}

}  // namespace fathom::measure
