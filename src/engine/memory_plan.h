// What a model will take of memory, before any of it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/pack.h"
#include "model/sequence_state.h"
#include "ops/backend.h"
#include "ops/ops.h"

namespace fathom {

struct MemoryPlanOptions {
  Numerics numerics = Numerics::kOfficial;
  int64_t context_tokens = 4096;  // of each session
  int sessions = 1;
  int step_rows = 512;
  int rewind_tokens = 32;
  int64_t checkpoint_bytes = 0;  // of each session
  /// Sessions are slots of a Scheduler: each has a sampler of its own, and prompts can be scored.
  bool is_scheduler = false;
  int64_t cache_bytes = 0;       // SchedulerOptions::cache_bytes
  int64_t disk_queue_bytes = 0;  // DiskCacheOptions::queue_bytes_max; 0: there is no disk cache
  int io_threads = 8;            // of the Engram reader
  const Backend* backend = nullptr;  // whose working memory counts; null: none
  int64_t program_bytes = 0;         // what the process holds already; see resident_bytes()
};

/// Weights are mapped, not copied, but count as resident: decoding touches all dense ones for every token and
/// sooner or later every expert, and what does not stay is read from disk again and again.
struct WeightGroups {
  int64_t dense_bytes = 0;              // attention, shared experts, routers, norms, hyper-connections
  int64_t expert_bytes = 0;             // routed experts
  int64_t embedding_bytes = 0;          // embedding and head
  int64_t engram_projection_bytes = 0;  // wkv and gates
  int64_t engram_disk_bytes = 0;        // tables: rows are read by position, nothing stays
  int64_t draft_bytes = 0;              // not loaded
  int64_t vision_bytes = 0;             // not loaded
  int64_t other_bytes = 0;              // names that the model does not know; not loaded

  int64_t resident_bytes() const {
    return dense_bytes + expert_bytes + embedding_bytes + engram_projection_bytes;
  }
};
WeightGroups weigh_pack(const Pack& pack);
/// Which group a tensor's official name belongs to.
int64_t WeightGroups::* weight_group(std::string_view official_name);

struct MemoryPlan {
  MemoryPlanOptions options;
  WeightGroups weights;
  int64_t rows_bytes = 0;   // compressed rows and index keys, all sessions
  int64_t rings_bytes = 0;  // window rings and open groups, all sessions
  int64_t tail_bytes = 0;   // decoder inputs kept between the chunks of a prompt, all sessions
  int64_t checkpoints_bytes = 0;
  int64_t cache_bytes = 0;       // prefix cache
  int64_t disk_bytes = 0;        // states on their way to the disk and from it
  int64_t scratch_bytes = 0;     // activations of a step
  int64_t working_bytes = 0;     // the backend's own
  int64_t engram_fetch_bytes = 0;  // rows of tables on their way, this step's and the next one's
  int64_t host_bytes = 0;        // tokenizer, logits, token lists
  int64_t budget_bytes = 0;
  int64_t largest_context_tokens = 0;  // that fits, all else equal; 0: not even one token
  int64_t model_context_tokens = 0;    // what the model was made for; the largest context stops there

  int64_t kv_bytes() const { return rows_bytes + rings_bytes; }
  int64_t session_bytes() const { return kv_bytes() + tail_bytes + checkpoints_bytes; }
  int64_t caches_bytes() const { return cache_bytes + disk_bytes; }
  /// What does not grow with the number of sessions.
  int64_t fixed_bytes() const {
    return weights.resident_bytes() + scratch_bytes + working_bytes + engram_fetch_bytes + host_bytes +
           caches_bytes();
  }
  int64_t total_bytes() const { return fixed_bytes() + session_bytes(); }
  /// Of the process, with the program itself: what VmHWM will say once every expert has been used, every session
  /// is full and has all checkpoints it may have.
  int64_t peak_bytes() const { return total_bytes() + options.program_bytes; }
  bool fits() const { return total_bytes() <= budget_bytes; }
  /// A table, and what to change if it does not fit. Many lines, for people.
  std::string report() const;
};

/// `budget_bytes` is for the total; 0: available_memory_bytes(). Reads nothing but what the opened pack holds.
MemoryPlan plan_memory(const Pack& pack, const MemoryPlanOptions& options, int64_t budget_bytes = 0);
/// The same from a model's shape and what its weights weigh.
MemoryPlan plan_memory(const ModelConfig& config, const WeightGroups& weights,
                       const MemoryPlanOptions& options, int64_t budget_bytes);

/// What this process holds in memory now (VmRSS), files that are mapped included; 0 if the system does not tell.
int64_t resident_bytes();
/// What this process may still use: MemAvailable, or what its control groups leave, whichever is less.
int64_t available_memory_bytes();
/// The same for files under another root, for tests: <root>/proc/meminfo, <root>/sys/fs/cgroup/...
int64_t available_memory_bytes(const std::string& root);

/// "151.8 GiB", "87.3 MiB", "512 B".
std::string format_bytes(int64_t bytes);

}  // namespace fathom
