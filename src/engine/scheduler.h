// Many requests on one model: continuous batching, slots, and reuse of what was evaluated before.
// docs/scheduler.md follows a request through it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/generator.h"
#include "model/model.h"

namespace fathom {

class DiskCache;

struct SchedulerOptions {
  int slots = 4;                    // requests that run at once, 1 to 64; not more than a step has rows
  int64_t context_tokens = 4096;    // of each slot, prompt and answer together
  int64_t queue_limit = 64;         // requests that wait for a slot; more are refused
  int64_t step_target_us = 50'000;  // of a step that more than one request waits for
  /// Of a step of one prompt's rows only. It may be longer: nobody's tokens wait for it, and leaving ends it.
  int64_t alone_target_us = 1'000'000;
  int chunk_rows_min = 8;           // a prompt advances by so many rows, however slow steps are

  int64_t cache_bytes = int64_t{1} << 30;  // of the prefix cache in RAM; 0: none
  int64_t branch_spacing_tokens = 8192;    // inside a prompt a state is kept at multiples of this; 0: nowhere
  int64_t branch_gap_tokens = 256;         // states inside a prompt are at least so far apart
  int64_t keep_tokens_min = 64;            // a state that would spare fewer is not kept
  /// A request waits for another that is evaluating the same prefix if that spares at least so many tokens.
  int64_t share_tokens_min = 1024;
  int64_t disk_tokens_min = 1024;          // states that spare fewer are neither written to disk nor read from it
  int64_t disk_flush_ms = 10'000;          // at shutdown, for what still waits to be written
};

class Scheduler final : public Generator {
 public:
  /// Makes the states of all slots and starts the engine's thread: from here on nobody else may run `model`.
  /// `disk` may be null; model and disk must live longer. kInvalidArgument, kNoMemory.
  static Result<std::unique_ptr<Scheduler>> make(Model& model, const SchedulerOptions& options,
                                                 DiskCache* disk = nullptr);
  /// Ends everything at once, as shutdown() with a deadline that is over.
  ~Scheduler() override;

  Result<GenerationId> submit(GenerationRequest request) override;
  void cancel(GenerationId id) override;
  GeneratorStatus status() const override;
  /// Not from a sink.
  void shutdown(GenerationClock::time_point deadline) override;

 private:
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fathom
