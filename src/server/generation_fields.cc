#include "server/generation_fields.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <random>

namespace fathom {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;

template <class Value, class Into>
void assign(const std::optional<Value>& value, Into& into) {
  if (value) into = static_cast<Into>(*value);
}

Result<void> read_sampling(const Fields& request, const GenerationDefaults& defaults, SamplerOptions& sampling) {
  FATHOM_ASSIGN(const auto temperature, request.number("temperature", 0, 100));
  FATHOM_ASSIGN(const auto top_p, request.number("top_p", 0, 1));
  FATHOM_ASSIGN(const auto top_k, request.integer("top_k", -1, INT32_MAX));
  FATHOM_ASSIGN(const auto min_p, request.number("min_p", 0, 1));
  FATHOM_ASSIGN(const auto repeat, request.number("repeat_penalty", 0.01, 100));
  FATHOM_ASSIGN(const auto repetition, request.number("repetition_penalty", 0.01, 100));
  FATHOM_ASSIGN(const auto presence, request.number("presence_penalty", -100, 100));
  FATHOM_ASSIGN(const auto frequency, request.number("frequency_penalty", -100, 100));
  FATHOM_ASSIGN(const auto last_n, request.integer("repeat_last_n", -1, INT32_MAX));
  if (top_p && *top_p == 0)
    return Error::invalid("{}: expected a number above 0 and up to 1, found 0", request.path_of("top_p"));
  sampling.temperature = static_cast<float>(temperature.value_or(defaults.temperature));
  sampling.top_p = static_cast<float>(top_p.value_or(defaults.top_p));
  // Zero and -1 both mean "all" somewhere.
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(0, top_k.value_or(defaults.top_k)));
  sampling.min_p = static_cast<float>(min_p.value_or(defaults.min_p));
  assign(repetition, sampling.repeat_penalty);
  assign(repeat, sampling.repeat_penalty);
  assign(presence, sampling.presence_penalty);
  assign(frequency, sampling.frequency_penalty);
  // OpenAI's penalties look at the whole answer; a window is for those who ask.
  sampling.repeat_last_n = static_cast<int32_t>(last_n.value_or(-1));
  return {};
}

Result<void> read_logit_bias(const Fields& request, int32_t vocab_size, SamplerOptions& sampling) {
  const Json* bias = request.find("logit_bias");
  if (bias == nullptr) return {};
  const std::string path = request.path_of("logit_bias");
  const auto add = [&](int64_t id, const std::string& where, const Json& value) -> Result<void> {
    if (id < 0 || id >= vocab_size)
      return Error::invalid("{}: expected a token id from 0 to {}, found {}", where, vocab_size - 1, id);
    const bool is_ban = value.is_boolean() && !value.get<bool>();  // llama.cpp's spelling
    const double amount = is_ban ? -100 : value.is_number() ? value.get<double>() : NAN;
    if (!(amount >= -100 && amount <= 100)) return wrong_json(where, "a number from -100 to 100", value);
    sampling.bias.push_back({static_cast<int32_t>(id), static_cast<float>(amount)});
    return {};
  };
  if (bias->is_object()) {
    for (const auto& [key, value] : bias->items()) {
      int64_t id = -1;
      const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (failure != std::errc() || end != key.data() + key.size())
        return Error::invalid("{}: expected token ids as names, found \"{}\"", path, key);
      FATHOM_TRY(add(id, path + "." + key, value));
    }
    return {};
  }
  if (!bias->is_array()) return wrong_json(path, "an object of token ids and numbers", *bias);
  for (size_t index = 0; index < bias->size(); ++index) {
    const Json& pair = (*bias)[index];
    const std::string where = fmt::format("{}[{}]", path, index);
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer())
      return wrong_json(where, "[token id, number]", pair);
    FATHOM_TRY(add(pair[0].get<int64_t>(), where, pair[1]));
  }
  return {};
}

Result<void> add_stop(const Json& value, const std::string& path, int32_t vocab_size, GenerationFields& fields) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (text.empty()) return Error::invalid("{}: expected a string with at least one character, found \"\"", path);
    if (text.size() > kStopStringBytesMax)
      return Error::invalid("{}: expected at most {} bytes, found {}", path, kStopStringBytesMax, text.size());
    if (fields.stop_strings.size() == kStopStringsMax)
      return Error::invalid("{}: expected at most {} stop strings, found more", path, kStopStringsMax);
    fields.stop_strings.push_back(text);
    return {};
  }
  if (!value.is_number_integer()) return wrong_json(path, "a string or a token id", value);
  const Json one = Json::array({value});
  FATHOM_ASSIGN(const std::vector<int32_t> ids, read_ids(one, path, vocab_size));
  fields.stop_ids.push_back(ids[0]);
  return {};
}

Result<void> read_stops(const Fields& request, int32_t vocab_size, GenerationFields& fields) {
  for (const char* name : {"stop", "stop_sequences"}) {
    const Json* stop = request.find(name);
    if (stop == nullptr) continue;
    const std::string path = request.path_of(name);
    if (!stop->is_array()) {
      FATHOM_TRY(add_stop(*stop, path, vocab_size, fields));
      continue;
    }
    for (size_t index = 0; index < stop->size(); ++index)
      FATHOM_TRY(add_stop((*stop)[index], fmt::format("{}[{}]", path, index), vocab_size, fields));
  }
  if (const Json* ids = request.find("stop_token_ids")) {
    FATHOM_ASSIGN(const auto more, read_ids(*ids, request.path_of("stop_token_ids"), vocab_size));
    fields.stop_ids.insert(fields.stop_ids.end(), more.begin(), more.end());
  }
  return {};
}

// Chat: logprobs true/false and top_logprobs; completions: logprobs as a number.
Result<void> read_logprobs(const Fields& request, GenerationFields& fields) {
  const Json* logprobs = request.find("logprobs");
  if (logprobs != nullptr && logprobs->is_boolean()) {
    fields.logprobs = logprobs->get<bool>();
  } else if (logprobs != nullptr) {
    FATHOM_ASSIGN(const auto count, request.integer("logprobs", 0, kTopLogprobsMax));
    fields.logprobs = true;
    fields.top_logprobs = static_cast<int>(*count);
  }
  FATHOM_ASSIGN(const auto top, request.integer("top_logprobs", 0, kTopLogprobsMax));
  if (top && *top > 0 && !fields.logprobs && logprobs != nullptr)
    return Error::invalid("{}: expected logprobs to be true as well", request.path_of("top_logprobs"));
  if (top) fields.top_logprobs = static_cast<int>(*top);
  if (top && *top > 0) fields.logprobs = true;
  return {};
}

Result<void> read_lengths(const Fields& request, const GenerationDefaults& defaults, GenerationFields& fields) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"}) {
    FATHOM_ASSIGN(const auto limit, request.integer(name, name[0] == 'n' ? -1 : 0, kTokensMax));
    if (limit && *limit >= 0) fields.max_tokens = limit;
  }
  fields.max_tokens_or_default = fields.max_tokens.value_or(defaults.max_tokens);
  FATHOM_ASSIGN(const auto least, request.integer("min_tokens", 0, kTokensMax));
  assign(least, fields.min_tokens);
  if (fields.min_tokens > fields.max_tokens_or_default)
    return Error::invalid("{}: expected at most max_tokens, {}, found {}", request.path_of("min_tokens"),
                          fields.max_tokens_or_default, fields.min_tokens);
  FATHOM_ASSIGN(const auto ignore, request.boolean("ignore_eos"));
  assign(ignore, fields.ignore_eos);
  FATHOM_ASSIGN(const auto seconds, request.number("timeout", 0.001, 1e6));
  fields.time_limit = defaults.time_limit;
  if (seconds) {
    const std::chrono::milliseconds wanted(static_cast<int64_t>(*seconds * 1000));
    // The server's own limit is one that requests cannot raise.
    if (fields.time_limit.count() == 0 || wanted < fields.time_limit) fields.time_limit = wanted;
  }
  return {};
}

Result<void> read_loop_guard(const Fields& request, const GenerationDefaults& defaults, LoopGuardOptions& guard) {
  guard = defaults.loop_guard;
  const Json* value = request.find("loop_guard");
  if (value == nullptr) return {};
  if (*value == "off") guard.mode = LoopGuardMode::kOff;
  else if (*value == "observe") guard.mode = LoopGuardMode::kObserve;
  else if (*value == "stop") guard.mode = LoopGuardMode::kStop;
  else return wrong_json(request.path_of("loop_guard"), "off, observe or stop", *value);
  return {};
}

Result<void> read_form(const Fields& request, GenerationFields& fields) {
  FATHOM_ASSIGN(const auto grammar, request.text("grammar"));
  FATHOM_ASSIGN(const Json* format, request.object("response_format"));
  if (format != nullptr) {
    const Fields members(*format, request.path_of("response_format"));
    FATHOM_ASSIGN(const auto type, members.text("type"));
    if (type == "json_object") {
      fields.form = AnswerForm::kJsonObject;
    } else if (type == "json_schema") {
      FATHOM_ASSIGN(const Json* wrapper, members.object("json_schema"));
      const Json& holder = wrapper != nullptr ? *wrapper : *format;
      const auto schema = holder.find("schema");
      if (schema == holder.end() || !(schema->is_object() || schema->is_boolean()))
        return Error::invalid("{}.json_schema.schema: expected a schema, found none", members.path());
      fields.form = AnswerForm::kJsonSchema;
      fields.schema = json_line(*schema);
    } else if (type != "text") {
      return Error::invalid("{}.type: expected text, json_object or json_schema, found {}", members.path(),
                            type ? "\"" + *type + "\"" : "nothing");
    }
  }
  if (!grammar) return {};
  if (grammar->empty()) return Error::invalid("{}: expected a grammar, found \"\"", request.path_of("grammar"));
  if (fields.form != AnswerForm::kFree)
    return Error::invalid("{}: expected no response_format beside it, found both", request.path_of("grammar"));
  fields.form = AnswerForm::kGrammar;
  fields.schema = *grammar;
  return {};
}

Result<void> read_delivery(const Fields& request, GenerationFields& fields) {
  FATHOM_ASSIGN(const auto n, request.integer("n", 1, kChoicesMax));
  FATHOM_ASSIGN(const auto stream, request.boolean("stream"));
  FATHOM_ASSIGN(const auto ids, request.boolean("return_token_ids"));
  FATHOM_ASSIGN(const auto reuse, request.boolean("cache_prompt"));
  FATHOM_ASSIGN(const Json* options, request.object("stream_options"));
  assign(n, fields.n);
  assign(stream, fields.stream);
  assign(ids, fields.return_token_ids);
  assign(reuse, fields.reuse_prefix);
  if (options == nullptr) return {};
  FATHOM_ASSIGN(const auto usage, Fields(*options, request.path_of("stream_options")).boolean("include_usage"));
  assign(usage, fields.include_usage);
  return {};
}

// "thinking": {"budget_tokens": N}, "thinking_budget": N, "reasoning": {"max_tokens": N}.
Result<void> read_reasoning_limit(const Fields& request, GenerationFields& fields) {
  FATHOM_ASSIGN(const auto plain, request.integer("thinking_budget", -1, kTokensMax));
  assign(plain, fields.reasoning_tokens_max);
  for (const auto& [outer, inner] :
       {std::pair("thinking", "budget_tokens"), std::pair("reasoning", "max_tokens")}) {
    const Json* value = request.find(outer);
    if (value == nullptr || !value->is_object()) continue;
    FATHOM_ASSIGN(const auto limit, Fields(*value, request.path_of(outer)).integer(inner, 0, kTokensMax));
    assign(limit, fields.reasoning_tokens_max);
  }
  return {};
}

Result<void> read_seed(const Fields& request, GenerationFields& fields) {
  const Json* seed = request.find("seed");
  if (seed != nullptr && seed->is_number_unsigned()) {
    fields.sampling.seed = seed->get<uint64_t>();
    return {};
  }
  // -1 is how llama.cpp's clients say "any".
  FATHOM_ASSIGN(const auto found, request.integer("seed", INT64_MIN, INT64_MAX));
  if (found && *found != -1) {
    fields.sampling.seed = static_cast<uint64_t>(*found);
  } else {
    std::random_device device;
    fields.sampling.seed = uint64_t{device()} << 32 | device();
  }
  return {};
}

}  // namespace

Result<GenerationFields> read_generation_fields(const Fields& request, const GenerationDefaults& defaults,
                                                int32_t vocab_size) {
  GenerationFields fields;
  FATHOM_TRY(read_sampling(request, defaults, fields.sampling));
  FATHOM_TRY(read_logit_bias(request, vocab_size, fields.sampling));
  FATHOM_TRY(read_seed(request, fields));
  FATHOM_TRY(read_stops(request, vocab_size, fields));
  FATHOM_TRY(read_logprobs(request, fields));
  FATHOM_TRY(read_lengths(request, defaults, fields));
  FATHOM_TRY(read_loop_guard(request, defaults, fields.loop_guard));
  FATHOM_TRY(read_form(request, fields));
  FATHOM_TRY(read_delivery(request, fields));
  FATHOM_TRY(read_reasoning_limit(request, fields));
  FATHOM_TRY(read_tool_choice(request, fields));
  return fields;
}

Result<void> read_tool_choice(const Fields& request, GenerationFields& fields) {
  FATHOM_ASSIGN(const auto parallel, request.boolean("parallel_tool_calls"));
  assign(parallel, fields.parallel_tool_calls);
  const Json* choice = request.find("tool_choice");
  if (choice == nullptr) return {};
  const std::string path = request.path_of("tool_choice");
  const bool is_object = choice->is_object();
  const Json* type = choice;
  if (is_object) {
    type = Fields(*choice, path).find("type");
    if (type == nullptr) return Error::invalid("{}.type: expected a string, found nothing", path);
  }
  if (*type == "auto") fields.tool_choice = ToolChoice::kAuto;
  else if (*type == "none") fields.tool_choice = ToolChoice::kNone;
  else if (*type == "required" || *type == "any") fields.tool_choice = ToolChoice::kRequired;
  else if (is_object && (*type == "function" || *type == "tool")) fields.tool_choice = ToolChoice::kNamed;
  else return wrong_json(is_object ? path + ".type" : path, "auto, none, required or a named function", *type);
  if (!is_object) return {};
  const Fields members(*choice, path);
  FATHOM_ASSIGN(const auto alone, members.boolean("disable_parallel_tool_use"));
  if (alone && *alone) fields.parallel_tool_calls = false;
  if (fields.tool_choice != ToolChoice::kNamed) return {};
  FATHOM_ASSIGN(const Json* function, members.object("function"));
  const Fields holder = function != nullptr ? Fields(*function, path + ".function") : members;
  FATHOM_ASSIGN(const auto name, holder.text("name"));
  if (!name || name->empty())
    return Error::invalid("{}: expected a tool's name, found none", holder.path_of("name"));
  fields.tool_name = *name;
  return {};
}

uint64_t choice_seed(uint64_t seed, int index) {
  return seed + static_cast<uint64_t>(index);
}

}  // namespace fathom
