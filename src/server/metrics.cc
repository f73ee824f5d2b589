// GET /metrics: counters in Prometheus' text format.
#include <iterator>

#include "server/submit.h"

namespace fathom {
namespace {

void add(std::string& out, std::string_view name, std::string_view type, std::string_view help, double value) {
  fmt::format_to(std::back_inserter(out), "# HELP fathom_{0} {2}\n# TYPE fathom_{0} {1}\nfathom_{0} {3}\n",
                 name, type, help, value);
}

constexpr FinishCause kCauses[] = {FinishCause::kStopId,    FinishCause::kSink,     FinishCause::kMaxTokens,
                                   FinishCause::kContextFull, FinishCause::kLoop,   FinishCause::kDeadline,
                                   FinishCause::kCancelled, FinishCause::kShutdown, FinishCause::kError};

void add_finished(std::string& out, const GeneratorStatistics& statistics) {
  out += "# HELP fathom_requests_finished_total Answers by the cause of their end\n"
         "# TYPE fathom_requests_finished_total counter\n";
  for (const FinishCause cause : kCauses)
    fmt::format_to(std::back_inserter(out), "fathom_requests_finished_total{{cause=\"{}\"}} {}\n",
                   finish_cause_name(cause), statistics.requests_finished[static_cast<size_t>(cause)]);
}

double seconds(int64_t us) { return static_cast<double>(us) / 1e6; }
double number(int64_t value) { return static_cast<double>(value); }

}  // namespace

Result<void> get_metrics(ServiceContext& context, const HttpRequest&, const Exchange& exchange) {
  const GeneratorStatus status = context.generator.status();
  const GeneratorStatistics& s = status.statistics;
  int64_t prefilling = 0, decoding = 0;
  for (const SlotStatus& slot : status.slots) {
    prefilling += slot.phase == SlotStatus::Phase::kPrefill;
    decoding += slot.phase == SlotStatus::Phase::kDecode;
  }
  const auto uptime = std::chrono::steady_clock::now() - context.started;
  std::string out;
  add_finished(out, s);
  add(out, "requests_refused_total", "counter", "Requests refused because the queue was full",
      number(s.requests_refused));
  add(out, "requests_queued", "gauge", "Requests that wait for a slot", number(status.queued_requests));
  add(out, "slots", "gauge", "Sequences that can run at once", number(static_cast<int64_t>(status.slots.size())));
  add(out, "slots_prefill", "gauge", "Sequences whose prompt is being evaluated", number(prefilling));
  add(out, "slots_decode", "gauge", "Sequences that are generating", number(decoding));
  add(out, "prompt_tokens_total", "counter", "Prompt tokens of all requests", number(s.prompt_tokens));
  add(out, "cached_tokens_total", "counter", "Prompt tokens that were reused", number(s.cached_tokens));
  add(out, "evaluated_tokens_total", "counter", "Prompt tokens that were evaluated", number(s.evaluated_tokens));
  add(out, "generated_tokens_total", "counter", "Tokens generated", number(s.generated_tokens));
  add(out, "prefill_seconds_total", "counter", "Time spent on prompts, summed over requests",
      seconds(s.prefill_us));
  add(out, "decode_seconds_total", "counter", "Time spent on generation, summed over requests",
      seconds(s.decode_us));
  add(out, "steps_total", "counter", "Steps of the engine", number(s.steps));
  add(out, "step_seconds_total", "counter", "Time of all steps", seconds(s.step_us));
  add(out, "step_seconds_max", "gauge", "The longest step", seconds(s.step_us_max));
  add(out, "loops_total", "counter", "Answers that went round in circles", number(s.loops_seen));
  add(out, "cache_entries", "gauge", "States in memory", number(s.cache_entries));
  add(out, "cache_bytes", "gauge", "Memory of these states", number(s.cache_bytes));
  add(out, "cache_bytes_max", "gauge", "What they may take", number(s.cache_bytes_max));
  add(out, "cache_hits_total", "counter", "Prompts that reused a state", number(s.cache_hits));
  add(out, "cache_misses_total", "counter", "Prompts that reused none", number(s.cache_misses));
  add(out, "cache_evictions_total", "counter", "States that made room", number(s.cache_evictions));
  add(out, "disk_cache_entries", "gauge", "States on disk", number(s.disk_entries));
  add(out, "disk_cache_bytes", "gauge", "Bytes of these states", number(s.disk_bytes));
  add(out, "disk_cache_bytes_max", "gauge", "What they may take", number(s.disk_bytes_max));
  add(out, "disk_cache_hits_total", "counter", "Prompts that used a state from disk", number(s.disk_hits));
  add(out, "disk_cache_writes_total", "counter", "States written", number(s.disk_writes));
  add(out, "disk_cache_dropped_total", "counter", "Damaged or foreign entries that were dropped",
      number(s.disk_dropped));
  add(out, "uptime_seconds", "gauge", "Since the server started", std::chrono::duration<double>(uptime).count());
  exchange->respond({.status = 200,
                     .headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                     .body = std::move(out)});
  return {};
}

}  // namespace fathom
