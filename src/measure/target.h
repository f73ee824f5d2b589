// Something that generates tokens and can be measured: this engine in a process of its own, or any server.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::measure {

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
int64_t monotonic_ns();
/// "2026-11-30T21:33:31Z"
std::string utc_now();

struct GenerateRequest {
  std::vector<int32_t> prompt_ids;  // [prompt]; empty: the text is sent
  std::string prompt_text;
  bool is_chat = false;  // the text is a user's message, thinking off; otherwise it is continued as it stands
  int32_t max_tokens = 256;
  double temperature = 0;  // 0: greedy
  uint64_t seed = 0;
  bool ignore_eos = true;  // tokens that end an answer are excluded
  std::chrono::seconds time_limit{3600};     // of the whole request
  std::chrono::seconds silence_limit{1800};  // without one byte from the target
};

/// What was seen of one request, raw. Claims are what the target says of itself.
struct Generation {
  int64_t sent_ns = 0;     // before the request's first byte
  int64_t ended_ns = 0;    // after the answer's last byte
  std::vector<int64_t> token_ns;  // [tokens] arrival; tokens that came in one piece share a time
  std::vector<int32_t> ids;       // [tokens]; empty where the target tells none
  std::string text;
  std::string finish_reason;
  std::optional<int64_t> prefill_end_ns;  // told by the target; otherwise the first token counts as the end
  std::optional<int64_t> claimed_prompt_tokens, claimed_cached_tokens, claimed_output_tokens;
  std::optional<double> claimed_prefill_s, claimed_decode_s;
  std::string error;  // what went wrong; empty: the answer is whole
};

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};

/// Of the target's processes; all unknown for a server that was not started here.
struct ProcessUsage {
  std::optional<int64_t> resident_bytes, resident_peak_bytes, read_bytes, written_bytes;
  std::optional<double> cpu_s;
};

/// How prompts reach the target, and what it evaluates again when a conversation goes on. Named in every result;
/// figures of different variants are not comparable.
enum class Variant : uint8_t {
  kSession,            // inside the engine's process, ids, exact continuation
  kHttpIdsExact,       // HTTP, ids, only what is new (and one token) is evaluated
  kHttpIdsReprocessed, // HTTP, ids, the generated part is evaluated again
  kHttpIdsCold,        // HTTP, ids, nothing of a conversation is kept
  kHttpText,           // HTTP, text
  kMixed,              // stages differ
};
const char* variant_name(Variant variant);  // "session", "http_ids_exact", ...
std::optional<Variant> variant_of_name(const std::string& name);

struct TargetInfo {
  std::string engine;         // "fathom 0.1.0", what the server says of itself, or the driver's name
  std::string driver;         // "local" or the driver file's name
  std::string address;        // URL; empty: local
  std::string command;        // that started it; empty: it ran already
  std::string model;          // as the target names it
  std::string pack_path;      // empty: unknown
  std::string details;        // flags, backend, placement: one line for people
  bool takes_ids = true, gives_ids = true, gives_logprobs = false, is_http = false;
  bool continues_exactly = true;  // what the driver expects where the target claims no cached tokens
};

/// In which members that make another target of it the two differ, for people: engine, driver, model, pack,
/// details.
std::vector<std::string> differences(const TargetInfo& kept, const TargetInfo& found);

/// One user's view of a target; used by one thread. A failed call names the target and what it said.
class Target {
 public:
  virtual ~Target() = default;
  /// A fresh process, ready for requests; for a server that ran already, only a look whether it answers.
  virtual Result<TargetInfo> start() = 0;
  /// Ends what start() started and waits for it; harmless when nothing runs.
  virtual void stop() = 0;
  /// Forgets prompts and answers. False: the target has no way to be told.
  virtual bool clear_state() = 0;
  /// Never fails as a whole: what was seen until an error counts, and `error` says what it was.
  virtual Generation generate(const GenerateRequest& request) = 0;
  /// Most likely next tokens after `ids`, best first.
  virtual Result<std::vector<TokenLogprob>> next_logprobs(const std::vector<int32_t>& ids, int32_t count) = 0;
  virtual ProcessUsage usage() = 0;
};

}  // namespace fathom::measure
