// Writes the report of two made-up results, and of published ones behind them, for tests in a browser.
// usage: report_sample OUT.html [RESULTS]
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "measure/published.h"
#include "measure/report.h"

namespace fathom::measure {
namespace {

/// A number from -1 to 1 that looks random and is always the same.
double noise(int64_t seed) {
  auto state = static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  return static_cast<double>((state ^ (state >> 27)) >> 11) / static_cast<double>(uint64_t{1} << 52) - 1;
}

struct Machine {
  double prefill_tokens_per_s, generation_tokens_per_s;
  int64_t overlap_tokens;  // evaluated again in a step
};

Stage stage_of(const Machine& machine, int64_t context_tokens, int64_t new_tokens, bool is_code, int64_t seed) {
  const double slope = 1 - 0.1 * static_cast<double>(context_tokens) / 131072;
  const double wobble = 1 + 0.002 * noise(seed);
  Stage stage{.name = fmt::format("{}K", context_tokens / 1024), .context_tokens = context_tokens,
              .prompt_tokens = context_tokens, .new_tokens = new_tokens, .status = StageStatus::kOk};
  stage.evaluated_tokens = new_tokens + (new_tokens < context_tokens ? machine.overlap_tokens : 0);
  stage.prefill_tokens_per_s = machine.prefill_tokens_per_s * slope * wobble * (is_code ? 1.09 : 1);
  stage.first_token_s = static_cast<double>(*stage.evaluated_tokens) / *stage.prefill_tokens_per_s;
  const double rate = machine.generation_tokens_per_s * (1 - 0.06 * (1 - slope) * 10) * (1 + 0.003 * noise(seed + 7));
  stage.generation_f2_tokens_per_s = rate;
  stage.generation_f1_tokens_per_s = rate * 1.0039;
  stage.output_tokens = 256;
  stage.first_gaps_ms = {0.4, 1150 / rate, 1020 / rate, 1010 / rate};
  stage.gap_p50_ms = 1000 / rate;
  stage.gap_p90_ms = 1060 / rate;
  stage.gap_p99_ms = 1190 / rate;
  stage.gap_max_ms = 1400 / rate;
  stage.total_s = stage.first_token_s + 256 / *stage.generation_f1_tokens_per_s;
  for (int32_t token = 0; token < 256; ++token) stage.output_ids.push_back(1000 + (token * 37) % 911);
  return stage;
}

Run run_of(const Machine& machine, const std::string& source, int32_t number) {
  Run run{.source = source, .number = number, .begun = fmt::format("2026-11-30T1{}:05:00Z", number)};
  const bool is_code = source == "code";
  int64_t seed = number * 100 + (is_code ? 50 : 0) + machine.overlap_tokens;
  run.stages.push_back(stage_of(machine, 8192, 8192, is_code, ++seed));
  for (int64_t context_tokens = 32768; context_tokens <= 131072; context_tokens += 32768)
    run.stages.push_back(stage_of(machine, context_tokens, 32768, is_code, ++seed));
  return run;
}

BenchResult result_of(std::string name, const Machine& machine) {
  BenchResult result{.name = std::move(name), .kind = "protocol", .created = "2026-11-30T14:20:00Z",
                     .program = "fathom 0.1.0", .formula = "both", .pack_name = "Q2 (IQ2_XXS/Q2_K)",
                     .pack_sha256 = "3f8ac01be27d55aa"};
  result.plan = {.sources = {{.name = "novel", .sha256 = "51aa07c8d1f2", .tokens = 417059},
                             {.name = "code", .sha256 = "9e02b7714c3d", .tokens = 402113}},
                 .alone_tokens = {8192}, .step_tokens = {32768, 65536, 98304, 131072}};
  result.environment = {.machine = "workstation", .cpu = "Xeon w7-2595X", .gpu = "H200", .os = "Debian 12",
                        .kernel = "6.1.0-28-amd64", .power = "mains, performance", .cores = 26,
                        .memory_bytes = int64_t{256} << 30};
  for (const char* source : {"novel", "code"})
    for (int32_t number = 1; number <= 3; ++number) result.runs.push_back(run_of(machine, source, number));
  return result;
}

std::vector<BenchResult> results_of(size_t count) {
  BenchResult first = result_of("Fathom, Q2", {2480, 58.4, 1});
  first.target = {.engine = "fathom 0.1.0", .driver = "local", .details = "CUDA, all weights resident"};
  first.variant = Variant::kSession;

  BenchResult second = result_of("Another server, Q2 XL", {1910, 59.6, 257});
  second.target = {.engine = "another 1.2", .driver = "another", .address = "http://127.0.0.1:8080",
                   .is_http = true};
  second.target.details = "--slots 1 </script><img src=x onerror=\"document.title='broken'\"> & <!-- \u2028";
  second.variant = Variant::kHttpIdsReprocessed;
  second.pack_name = "Q2 XL";
  second.pack_sha256 = "77b1c9d02e4f8812";
  second.environment.kernel = "6.12.9-amd64";
  second.environment.more = {{"GPU clock", "1980 MHz"}};
  Run disturbed = run_of({1500, 40, 257}, "novel", 4);
  disturbed.is_disturbed = disturbed.is_excluded = true;
  disturbed.disturbances = {"64K: swap grew by 312 MB", "64K: other processes used 3.1 cores"};
  second.runs.push_back(disturbed);
  second.runs[2].stages[3].output_ids[41] = 7;
  second.runs[2].stages[4].output_ids[3] = 8;
  for (size_t run = 0; run < 3; ++run) second.runs[run].stages[0].output_ids[200] = 5;

  std::vector<BenchResult> results = {first, second};
  for (const char* preferred : {"m5-ultra-ds4-q2.json", ""})
    for (const PublishedFile& file : published_results()) {
      if ((file.name == "m5-ultra-ds4-q2.json") != (*preferred != 0)) continue;
      auto result = parse_result(file.bytes, std::string(file.name));
      if (result.ok()) results.push_back(std::move(result).value());
    }
  results.resize(std::min(count, results.size()));
  return results;
}

int write_sample(const char* path, size_t count) {
  const auto page = render_report(results_of(count));
  if (!page.ok()) {
    std::cerr << page.error().message << "\n";
    return 1;
  }
  std::ofstream out(path, std::ios::binary);
  out << *page;
  out.close();
  return out ? 0 : 1;
}

}  // namespace
}  // namespace fathom::measure

int main(int count, char** arguments) {
  if (count < 2) return 2;
  return fathom::measure::write_sample(arguments[1], count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 3);
}
