// The engine thread's side of the scheduler: slots, steps, and who gets what. One thread, no locks.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/disk_loader.h"
#include "engine/job.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler.h"
#include "engine/step_budget.h"

namespace fathom {

/// Memory for one sequence, and the request that has it. The state and its logits stay when the request goes.
struct Slot {
  int index = 0;
  std::unique_ptr<SequenceState> state;
  std::vector<float> logits;     // [vocab] of the token after the last evaluated, if has_logits
  bool has_logits = false;
  std::vector<int32_t> tokens;   // evaluated; while `has_begun`, job->tokens says it
  uint64_t last_used = 0;        // of the core's clock
  bool is_worth_saving = false;  // its last request allows that it is kept

  std::shared_ptr<Job> job;      // null: idle
  bool has_begun = false;        // the job owns the state; false while it waits for another or for the disk
  GenerationId leader = 0;       // job that evaluates the same prefix; this one goes on from there
  int leader_slot = 0;
  int64_t leader_tokens = 0;     // how far
  bool is_loading = false;       // from disk
  bool decodes = false;          // all but the newest token is evaluated
  uint64_t draws_since = 0;      // of the core's clock: all is evaluated, the next token waits to be drawn; 0: no
  std::vector<int64_t> stops;    // positions inside the prompt at which the state is kept, ascending
  int64_t announced_rows = 0;    // of the next chunk, as the Engram reader was told

  int64_t position() const { return state->position(); }
};

class SchedulerCore {
 public:
  /// What the other threads' side wants to hear; called without anything locked.
  struct Hooks {
    std::function<void()> publish;             // status has changed
    std::function<void(const Job&, bool was_running)> ended;  // before the sink hears of it
    std::function<void(const Job&)> admitted;
    std::function<void()> wake;                // from any thread: round() has something to do
  };

  static Result<std::unique_ptr<SchedulerCore>> make(Model& model, const SchedulerOptions& options,
                                                     DiskCache* disk);

  /// Before anything else.
  void set_hooks(Hooks hooks);
  void enqueue(std::shared_ptr<Job> job);
  bool has_work() const { return !waiting_.empty() || running() > 0; }
  /// Ends what is over, gives slots to those who wait, and runs a step. False: nothing could run.
  bool round();
  /// From then on everything ends with kShutdown.
  void set_last_moment(GenerationClock::time_point moment) { last_moment_ = moment; }
  /// The earliest moment at which a request ends by itself.
  GenerationClock::time_point next_deadline() const;
  void describe(GeneratorStatus& status) const;
  /// Hands what the slots hold to the disk cache and waits for it to be written. When nothing runs any more.
  void close();

 private:
  struct Planned {
    Slot* slot = nullptr;
    int64_t rows = 0;          // new tokens; 0: a portion of the decoder's backlog
    int64_t decoder_rows = 0;  // of that portion
    bool is_last_chunk = true;
    LogitRows logits = LogitRows::kLast;
    int64_t units = 0;         // rows of one layer
  };
  struct Leader {
    Slot* slot = nullptr;
    int64_t tokens = 0;
  };

  SchedulerCore(Model& model, const SchedulerOptions& options, DiskCache* disk);
  int running() const;

  // scheduler_core.cc: requests come and go.
  std::optional<FinishCause> over(const Job& job) const;
  void end_overdue();
  void admit();
  Slot* choose(const Job& job);
  int64_t reuse_of(const Slot& slot, const Job& job) const;
  bool is_wanted(const Slot& slot) const;
  void begin(Slot& slot, std::unique_ptr<DiskLoader::Loaded> loaded = nullptr);
  void release(Slot& slot, FinishCause cause, const Error& error = {});
  void finish(Job& job, FinishCause cause, const Error& error, bool was_running);

  // scheduler_reuse.cc: what was evaluated before.
  void reuse(Slot& slot, bool from_slot, const DiskLoader::Loaded* loaded);
  bool restore_loaded(Slot& slot, const DiskLoader::Loaded& loaded);
  bool start_load(Slot& slot, int64_t reused_tokens);
  void begin_loaded();
  Leader find_leader(const Job& job, int64_t reused_tokens);
  void begin_followers();
  bool still_leads(const Slot& follower) const;
  void place_stops(Slot& slot) const;
  void keep(Slot& slot, std::span<const float> logits);
  std::optional<DiskCachePut> keep_on_disk(Slot& slot, std::span<const float> logits, int64_t spared_min);

  // scheduler_step.cc: what runs, and what comes of it.
  void plan();
  bool plan_lone(const std::vector<Slot*>& prompts);
  void plan_prompts(const std::vector<Slot*>& prompts);
  Planned chunk(Slot& slot, int64_t units, int64_t rows_max) const;
  int64_t units_wanted(const Slot& slot) const;
  Segment segment(const Planned& planned);
  void run_planned();
  void after(const Planned& planned);
  void after_prompt(Slot& slot);
  bool draw_waiting();
  bool masks_had_their_share() const;
  void draw(Slot& slot);
  void failed(Error error);

  Model& model_;
  const SchedulerOptions options_;
  const int64_t encoder_units_;  // layers that every row of a prompt passes
  const int64_t all_units_;
  Hooks hooks_;
  GeneratorStatistics statistics_;
  PrefixCache cache_;
  DiskCache* const disk_;  // may be null
  std::unique_ptr<DiskLoader> loader_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<Slot> slots_;
  std::vector<Planned> planned_;
  std::vector<Segment> segments_;
  std::vector<Slot*> prompts_, lone_;  // of the step being planned
  std::vector<float> score_logits_;  // [rows, vocab] of a step that scores a prompt
  StepBudget shared_budget_;
  StepBudget alone_budget_;
  size_t cursor_ = 0;        // slot whose prompt comes first in the next step
  bool lone_turn_ = false;
  bool is_alone_step_ = false;
  bool draws_wait_ = false;  // somebody's next token does
  int64_t masks_us_ = 0;     // since the round began
  uint64_t clock_ = 0;
  GenerationClock::time_point last_moment_ = GenerationClock::time_point::max();
};

}  // namespace fathom
