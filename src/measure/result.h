// A result file: what was measured, where, how, and what came out. docs/formats/bench_result.md
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "measure/target.h"

namespace fathom::measure {

/// What the machine looked like. Members that could not be read are empty, never invented.
struct Environment {
  std::string machine, cpu, gpu, os, kernel, power;  // power: governor, profile, mains or battery
  std::optional<int64_t> cores, memory_bytes;
  std::vector<std::pair<std::string, std::string>> more;  // name -> value, for people and comparison
};

/// Before, during or after a stage.
struct SystemUsage {
  std::optional<int64_t> swap_used_bytes, swapped_in_bytes, swapped_out_bytes;  // the latter two since boot
  std::optional<int64_t> memory_available_bytes;
  std::optional<int64_t> disk_read_bytes, disk_written_bytes;  // all disks, since boot
};

enum class StageStatus : uint8_t { kOk, kFailed, kNotRun };

struct Stage {
  std::string name;            // "32K"
  int64_t context_tokens = 0;  // nominal, of the source
  int64_t prompt_tokens = 0;   // sent, or claimed where text was sent
  int64_t new_tokens = 0;      // of the prompt that were not in the one before, nor generated
  StageStatus status = StageStatus::kNotRun;
  std::string error;

  std::optional<int64_t> evaluated_tokens;  // prompt - claimed cached; what should have been, without a claim
  std::optional<int64_t> cached_tokens_claimed;
  std::optional<int64_t> cached_tokens_implied;    // from the time, with the rate of the run's first stage
  double first_token_s = 0;
  std::optional<double> prefill_tokens_per_s;      // evaluated / first token
  int64_t output_tokens = 0;
  std::optional<double> generation_f1_tokens_per_s;  // n / (prefill end -> last token)
  std::optional<double> generation_f2_tokens_per_s;  // (n - 1) / (first -> last token)
  std::vector<double> first_gaps_ms;               // prefill end -> 1st, 1st -> 2nd, ... of the first four tokens
  std::optional<double> gap_p50_ms, gap_p90_ms, gap_p99_ms, gap_max_ms;  // of the tokens after those
  double total_s = 0;                              // sent -> last token
  std::optional<double> claimed_prefill_s, claimed_decode_s;
  std::string finish_reason;
  std::vector<int32_t> output_ids;
  std::string output_sha256;                       // of the ids as little-endian int32, or of the text
  ProcessUsage process;                            // at the end; read and written: of this stage
  SystemUsage before, after;
  std::vector<std::string> observed;               // what else the machine did, for people
};

struct Run {
  std::string source;
  int32_t number = 0;  // from 1
  std::vector<Stage> stages;
  std::string begun;   // UTC, ISO 8601
  bool is_disturbed = false;
  bool is_excluded = false;  // by rule: attempts that failed, and disturbed ones that were repeated
  std::vector<std::string> disturbances;  // what disturbed, for people
  std::string error;   // of the run as a whole: the server did not start, ...
};

struct Source {
  std::string name, sha256;  // of the text
  int64_t tokens = 0;
};

struct Plan {
  std::vector<Source> sources;
  std::vector<int64_t> alone_tokens, step_tokens;  // of the source, scaled
  int64_t generated_tokens = 256;
  int32_t runs = 3;
  std::string scale = "1";
};

/// Whether it gave not all of its figures.
bool has_failed(const Run& run);

/// Two runs whose prompts were equal and whose outputs part.
struct Divergence {
  std::string source, stage;
  int32_t run_a = 0, run_b = 0;
  int64_t token = 0;  // the first that differs, index in the output
  int32_t id_a = 0, id_b = 0;
  std::optional<double> logprob_a, logprob_b;  // of both there; their difference is the margin
};

/// One measured figure of a published table: only what the publication says.
struct PublishedFigure {
  std::string source, stage;  // "novel", "32K"; empty: the publication does not say
  std::string metric;         // name of a Stage member
  std::optional<double> value;
  std::optional<double> low, high;  // where only a range is told, or a pair whose order is not
};

struct BenchResult {
  std::string name;     // for people
  std::string kind;     // "protocol", "published"
  std::string created;  // UTC, ISO 8601
  std::string origin;   // of a published one: where the figures are from
  std::string program;  // that measured: "fathom 0.1.0"
  TargetInfo target;
  std::optional<Variant> variant;
  std::string formula;  // "both", or what a publication used: "f1", "f2"
  std::string pack_name, pack_sha256;
  Plan plan;
  Environment environment;
  std::vector<Run> runs;
  std::vector<Divergence> divergences;
  std::vector<PublishedFigure> published;
  std::vector<std::string> remarks;
};

nlohmann::json to_json(const BenchResult& result);
/// Says which member of `where` is wrong, what was expected and what was found.
Result<BenchResult> result_from_json(const nlohmann::json& json, const std::string& where);
Result<BenchResult> parse_result(std::string_view text, const std::string& where);
Result<BenchResult> read_result(const std::string& path);
/// Whole or not at all: a temporary file beside it, synchronised and renamed.
Result<void> write_result(const std::string& path, const BenchResult& result);
/// One row a stage; the columns are in docs/formats/bench_result.md.
std::string to_csv(const BenchResult& result);

nlohmann::json to_json(const Run& run);
Result<Run> run_from_json(const nlohmann::json& json, const std::string& where);
nlohmann::json to_json(const TargetInfo& info);
Result<TargetInfo> target_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace fathom::measure
