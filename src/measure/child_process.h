// A server's process: started from a command line, watched, measured, and gone when it is no longer wanted.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/target.h"

namespace fathom::measure {

/// A TCP port of 127.0.0.1 that nobody listens on right now.
Result<int> free_port();

/// Replaces every "{port}".
std::string with_port(std::string command, int port);

/// The command runs as `/bin/sh -c COMMAND`, so quotes, variables and redirections mean what they mean in a shell,
/// in a process group of its own, with nothing on standard input and with both outputs in the log file. Beside it
/// runs a guardian, a copy of this process that only waits: when this object, the thread that made it or this
/// whole process is gone, by whatever death, it ends the group and everything that the command left elsewhere.
class ChildProcess {
 public:
  /// `log_path` is appended to; its folder must exist.
  static Result<std::unique_ptr<ChildProcess>> start(const std::string& command, const std::string& log_path);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Asks `is_ready` again and again until it says yes. The process's death is an error at once, with the last
  /// lines of its log; so is the limit. kCancelled when `is_cancelled` (may be empty) says so.
  Result<void> wait_ready(const std::function<bool()>& is_ready, std::chrono::milliseconds limit,
                          const std::function<bool()>& is_cancelled = {});

  /// How it ended ("exit status 1", "signal 11 (Segmentation fault)"); nothing while it runs.
  std::optional<std::string> ending();
  /// Of this process only: what it wrote to its log.
  std::string log_tail(size_t lines = 20) const;
  pid_t pid() const { return pid_; }
  /// The guardian, whose descendants are all that the command started.
  pid_t guardian_pid() const { return guardian_; }
  ProcessUsage usage() const;

  /// SIGTERM to the group; after `grace`, or once the command itself has ended, SIGKILL to whatever is left.
  /// Returns when all of them are gone.
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(10));

 private:
  ChildProcess() = default;
  void read_ending();

  pid_t guardian_ = -1, pid_ = -1;
  int line_ = -1;  // to the guardian; it ends everything when this closes
  std::string log_path_;
  int64_t log_begin_ = 0;
  std::optional<std::string> ending_;
};

/// Runs a program (found as the shell finds it) and returns what it wrote on standard output; nothing if it is not
/// there, fails, or needs longer than `limit`.
std::optional<std::string> output_of(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

}  // namespace fathom::measure
