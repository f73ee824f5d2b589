// Shows how long work goes on, on standard error: one line that is rewritten on a terminal, plain lines at a
// steady interval in a log, nothing for work that is done soon.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "fathom/fathom.h"

namespace fathom::cli {

/// The library reports between its steps, and a step can take a minute; so a thread of its own draws at
/// steady times what was reported last. Begins with the first report and ends with finish().
class Progress {
 public:
  Progress();
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A fathom_progress_fn; `user` is a Progress. Cancels when interrupted() is true.
  static bool report(void* user, const fathom_progress* progress);
  /// The work is over: removes the line from the terminal. The next report starts anew.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    Clock::time_point time;
    int64_t done;
  };

  void update(const fathom_progress& progress);
  void draw_until_stopped();
  std::string line(Clock::time_point now) const;

  const bool terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
  bool stop_ = false;
  bool drawn_ = false;
  std::string stage_, unit_;
  int64_t total_ = 0;
  std::deque<Sample> samples_;  // of this stage, oldest first, of the last kWindow
  Clock::time_point start_;     // of the first report
};

}  // namespace fathom::cli
