// The members of a request that say how to generate, common to all APIs; docs/serve.md, "Request members".
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/generator.h"
#include "server/json_fields.h"

namespace fathom {

/// What requests get that do not say otherwise, and what they may ask for; set when the server starts.
struct GenerationDefaults {
  double temperature = 1.0;
  double top_p = 0.95;
  int64_t top_k = 0;
  double min_p = 0;
  int64_t max_tokens = 32768;  // of an answer; clients that forget it would run into a loop for hours
  LoopGuardOptions loop_guard;
  std::chrono::milliseconds time_limit{0};  // of a request; 0: none
};

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };
enum class AnswerForm : uint8_t { kFree, kJsonObject, kJsonSchema, kGrammar };

struct GenerationFields {
  SamplerOptions sampling;
  std::optional<int64_t> max_tokens;  // as the request says
  int64_t max_tokens_or_default = 0;
  int64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_ids;  // beside the model's own
  bool logprobs = false;
  int top_logprobs = 0;
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool reuse_prefix = true;
  LoopGuardOptions loop_guard;
  std::chrono::milliseconds time_limit{0};

  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;          // kNamed
  bool parallel_tool_calls = true;
  int64_t reasoning_tokens_max = -1;  // -1: no limit

  AnswerForm form = AnswerForm::kFree;
  std::string schema;             // kJsonSchema: its text; kGrammar: the grammar
};

constexpr int kChoicesMax = 64;
constexpr int kTopLogprobsMax = 20;
constexpr size_t kStopStringsMax = 16;
constexpr size_t kStopStringBytesMax = 1024;

/// Reads what the chat, completions, responses and messages APIs have in common, under each one's names.
/// kInvalidArgument names the member.
Result<GenerationFields> read_generation_fields(const Fields& request, const GenerationDefaults& defaults,
                                                int32_t vocab_size);

/// "tool_choice": a word, {"type": "function", "function": {"name"}}, {"type": "function", "name"}, or
/// Anthropic's {"type": "any" | "tool", "name", "disable_parallel_tool_use"}.
Result<void> read_tool_choice(const Fields& request, GenerationFields& fields);

/// The `seed` of choice `index`: the first choice has the request's own.
uint64_t choice_seed(uint64_t seed, int index);

}  // namespace fathom
