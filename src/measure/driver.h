// How one kind of server is spoken to, as data. docs/formats/bench_driver.md
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fathom::measure {

using JsonPointer = nlohmann::json::json_pointer;

/// Where things are in the events of a streamed answer. Empty: not told by this kind of server.
struct StreamShape {
  bool ends_with_done = false;          // a "[DONE]" ends the stream
  std::optional<JsonPointer> end;       // an event that has this, neither null nor false, ends it
  std::optional<JsonPointer> ids, prompt_ids, finish_reason, error;
  std::vector<JsonPointer> text;        // joined
  bool ids_accumulate = false;          // each event has all ids so far
  bool text_accumulates = false;
  std::optional<JsonPointer> prompt_tokens, cached_tokens, output_tokens;
  std::optional<JsonPointer> prefill, decode;   // times
  double prefill_unit_s = 1, decode_unit_s = 1;
  std::optional<JsonPointer> prefill_done, prefill_total;  // when equal, the prompt has been evaluated
};

struct Endpoint {
  std::string path;
  nlohmann::json body;             // with placeholders
  nlohmann::json when_ignore_eos;  // merged into it (RFC 7396)
  StreamShape stream;
};

struct Probe {  // one value of a small GET
  std::string path;
  JsonPointer pointer;
};

struct ClearState {
  std::string method, path;     // a request of its own,
  std::optional<nlohmann::json> body;
  std::optional<nlohmann::json> next_request;  // or members that the next request gets
};

struct LogprobsEndpoint {
  std::string path;
  nlohmann::json body;
  JsonPointer entries;      // a list, or an object of names "token_id:N" or "N" with log probabilities
  JsonPointer id, logprob;  // in each entry of a list
};

struct TokenizeEndpoint {
  std::string path;
  nlohmann::json body;
  JsonPointer ids;
};

struct Driver {
  std::string name, engine;
  std::vector<std::pair<std::string, std::string>> source;  // which fact -> where from
  std::vector<std::string> unconfirmed, notes;
  std::string ready_path;
  std::optional<Probe> version, model;
  bool takes_ids = false, gives_ids = false, gives_logprobs = false, continues_exactly = false;
  std::optional<Endpoint> completion, chat;
  std::optional<ClearState> clear;
  std::optional<LogprobsEndpoint> logprobs;
  std::optional<TokenizeEndpoint> tokenize;
};

/// An error names `where`, the member, what was expected and what was found. Members that are not known are errors
/// too: a misspelled one would otherwise be a fact that is silently missing.
Result<Driver> parse_driver(std::string_view text, const std::string& where);
/// A name of the ones in the program, or the path of a file.
Result<Driver> load_driver(const std::string& name_or_path);
std::vector<std::string> embedded_driver_names();

/// What placeholders stand for. A member whose value is a placeholder without a value is left out.
struct RequestValues {
  std::optional<std::vector<int32_t>> ids;  // "{ids}"; "{ids_or_text}" is these, or else the text
  std::optional<std::string> text;          // "{text}"
  std::optional<std::string> model;         // "{model}"
  std::optional<int64_t> max_tokens, count;
  std::optional<double> temperature;
  std::optional<uint64_t> seed;
};
nlohmann::json fill_body(const nlohmann::json& body, const RequestValues& values);

/// Bytes of a driver file that is part of the program.
struct EmbeddedDriver {
  std::string_view name, text;
};
std::vector<EmbeddedDriver> embedded_drivers();

}  // namespace fathom::measure
