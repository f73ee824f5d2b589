#include "measure/child_process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "measure/process_files.h"

extern char** environ;

namespace fathom::measure {
namespace {

/// What the guardian says: first the command's process, then how it ended.
struct GuardianMessage {
  int32_t pid = 0;     // or -errno
  int32_t status = 0;  // exit status or signal
  bool is_signal = false;
  bool has_ended = false;
};

// From here to guard() runs a copy of a process that may have had many threads: system calls only, no allocation.

/// Sends `number` to every child of the calling process; returns whether there was one.
bool signal_children(int number) {
  const int file = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[4096];
  const ssize_t count = ::read(file, text, sizeof text);
  ::close(file);
  bool any = false;
  pid_t pid = 0;
  for (ssize_t at = 0; at < count; ++at) {
    if (text[at] >= '0' && text[at] <= '9') {
      pid = pid * 10 + (text[at] - '0');
    } else if (pid != 0) {
      ::kill(pid, number);
      any = true;
      pid = 0;
    }
  }
  return any;
}

/// Whether the command has ended, which is told once on `line`. It stays a zombie, so that its number, which is
/// also its group's, cannot become anybody else's.
bool has_ended(pid_t command, int line, bool& is_told) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(command), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  if (is_told) return true;
  is_told = true;
  const GuardianMessage message{command, info.si_status, info.si_code != CLD_EXITED, true};
  (void)!::send(line, &message, sizeof message, MSG_NOSIGNAL);
  return true;
}

/// Other files of this process must not stay open in a copy of it, least of all its lines to other guardians.
void close_all_but(int first, int second) {
  const int low = std::min(first, second), high = std::max(first, second);
  const int ranges[3][2] = {{3, low - 1}, {low + 1, high - 1}, {high + 1, 65535}};
  for (const auto& [from, to] : ranges) {
    if (from > to || ::close_range(static_cast<unsigned>(from), static_cast<unsigned>(to), 0) == 0) continue;
    for (int file = from; file <= to; ++file) ::close(file);
  }
}

[[noreturn]] void become_command(const char* command) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // should the guardian be killed
  sigset_t nothing;
  ::sigemptyset(&nothing);
  ::sigprocmask(SIG_SETMASK, &nothing, nullptr);
  ::execl("/bin/sh", "sh", "-c", command, nullptr);
  ::_exit(127);
}

/// Ends the command's group and what is left of it elsewhere: orphans become children of this process and are
/// found one generation after the other.
void end_all(pid_t command, int line, bool is_told) {
  ::kill(-command, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(command), &info, WEXITED | WNOWAIT);
  has_ended(command, line, is_told);
  ::waitpid(command, nullptr, 0);
  while (signal_children(SIGKILL)) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
    ::usleep(1000);
  }
}

/// Waits for the end of the command and for a word on `line`, which says how long it may take to end. Returns
/// whether its ending has been told.
bool watch(pid_t command, int line, int endings) {
  pollfd watched[2] = {{line, POLLIN, 0}, {endings, POLLIN, 0}};
  bool is_told = false, asked = false;
  int64_t kill_ns = 0;
  while (!asked || (monotonic_ns() < kill_ns && !has_ended(command, line, is_told))) {
    ::poll(watched, 2, asked ? 20 : -1);
    signalfd_siginfo info;
    while (::read(endings, &info, sizeof info) > 0) {}
    has_ended(command, line, is_told);
    int64_t grace_ns = 0;  // none if the program has died
    if (asked && ::recv(line, &grace_ns, sizeof grace_ns, MSG_DONTWAIT) == 0) break;  // and it died while it waited
    if (asked || watched[0].revents == 0) continue;
    (void)!::recv(line, &grace_ns, sizeof grace_ns, MSG_DONTWAIT);
    asked = true;
    watched[0].fd = -1;
    kill_ns = monotonic_ns() + grace_ns;
    ::kill(-command, SIGTERM);
  }
  return is_told;
}

[[noreturn]] void guard(const char* command, int log, int line) {
  // This process ends by its line only; a terminal's signals are for the program.
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
  ::dup2(log, 1);
  ::dup2(log, 2);
  close_all_but(log, line);
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const int endings = ::signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
  // All signals are blocked here and stay so. The command, which begins the same way, finds none missing that came
  // before its first instruction.
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  const pid_t pid = ::fork();
  if (pid == 0) become_command(command);
  if (pid > 0) ::setpgid(pid, pid);  // whoever of the two comes first
  const GuardianMessage begun{pid > 0 ? pid : -errno};
  (void)!::send(line, &begun, sizeof begun, MSG_NOSIGNAL);
  if (pid < 0) ::_exit(1);
  const bool is_told = watch(pid, line, endings);
  end_all(pid, line, is_told);
  ::_exit(0);
}

std::string ending_text(const GuardianMessage& message) {
  if (message.is_signal) return fmt::format("signal {} ({})", message.status, ::strsignal(message.status));
  return fmt::format("exit status {}", message.status);
}

}  // namespace

Result<int> free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const int number = errno;
  if (socket >= 0) ::close(socket);
  if (!found) return Error::io("no free port on 127.0.0.1: {}", std::strerror(number));
  return static_cast<int>(ntohs(address.sin_port));
}

std::string with_port(std::string command, int port) {
  constexpr std::string_view kMark = "{port}";
  const std::string number = std::to_string(port);
  for (size_t at = 0; (at = command.find(kMark, at)) != std::string::npos; at += number.size())
    command.replace(at, kMark.size(), number);
  return command;
}

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(const std::string& command,
                                                          const std::string& log_path) {
  const int log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Error::io("log {}: {}", log_path, std::strerror(errno));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    const int number = errno;
    ::close(log);
    return Error::io("socketpair for {}: {}", command, std::strerror(number));
  }
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->log_path_ = log_path;
  child->log_begin_ = ::lseek(log, 0, SEEK_END);
  child->line_ = ends[0];
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  child->guardian_ = ::fork();
  if (child->guardian_ == 0) {
    ::close(ends[0]);
    guard(command.c_str(), log, ends[1]);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[1]);
  ::close(log);
  GuardianMessage begun;
  if (child->guardian_ < 0) return Error::io("{}: fork: {}", command, std::strerror(errno));
  const ssize_t got = ::recv(child->line_, &begun, sizeof begun, 0);
  if (got != sizeof begun || begun.pid <= 0)
    return Error::io("{}: fork: {}", command, std::strerror(got == sizeof begun ? -begun.pid : ECHILD));
  child->pid_ = begun.pid;
  return child;
}

ChildProcess::~ChildProcess() { stop(); }

void ChildProcess::read_ending() {
  GuardianMessage message;
  if (ending_ || line_ < 0) return;
  const ssize_t got = ::recv(line_, &message, sizeof message, MSG_DONTWAIT);
  if (got == sizeof message && message.has_ended) ending_ = ending_text(message);
  if (got == 0) ending_ = "an ending unknown, as its guardian was killed";
}

std::optional<std::string> ChildProcess::ending() {
  read_ending();
  return ending_;
}

Result<void> ChildProcess::wait_ready(const std::function<bool()>& is_ready, std::chrono::milliseconds limit,
                                      const std::function<bool()>& is_cancelled) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const auto with_log = [&](std::string what) {
    const std::string tail = log_tail();
    if (tail.empty()) return what + "; its log is empty";
    return fmt::format("{}; the end of its log ({}):\n{}", what, log_path_, tail);
  };
  while (true) {
    if (ending()) return Error::io("{}", with_log(fmt::format("the server ended with {}", *ending_)));
    if (is_ready() && !ending()) return {};
    if (is_cancelled && is_cancelled()) return Error::cancelled("interrupted before the server was ready");
    if (std::chrono::steady_clock::now() >= until)
      return Error::io("{}", with_log(fmt::format("the server was not ready after {} s",
                                                  static_cast<double>(limit.count()) / 1e3)));
    pollfd watched{line_, POLLIN, 0};
    ::poll(&watched, 1, ending_ ? 0 : 50);
  }
}

std::string ChildProcess::log_tail(size_t lines) const {
  constexpr int64_t kBytes = 16 << 10;
  std::ifstream file(log_path_, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : 0;
  const int64_t begin = std::max(log_begin_, size - kBytes);
  if (begin >= size) return {};
  std::string text(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t from = text.size();
  for (size_t left = lines; left > 0 && from != std::string::npos && from > 0; --left)
    from = text.rfind('\n', from - 1);
  return from == std::string::npos || from == 0 ? text : text.substr(from + 1);
}

ProcessUsage ChildProcess::usage() const {
  return guardian_ > 0 ? usage_below("/proc", guardian_) : ProcessUsage{};
}

void ChildProcess::stop(std::chrono::milliseconds grace) {
  if (guardian_ > 0) {
    const int64_t grace_ns = std::chrono::nanoseconds(grace).count();
    (void)!::send(line_, &grace_ns, sizeof grace_ns, MSG_NOSIGNAL);
    int status = 0;
    while (::waitpid(guardian_, &status, 0) < 0 && errno == EINTR) {}
    read_ending();
    guardian_ = -1;
  }
  if (line_ >= 0) ::close(std::exchange(line_, -1));
}

std::optional<std::string> output_of(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  int ends[2];
  if (arguments.empty() || ::pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::vector<char*> list;
  for (const std::string& argument : arguments) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, list[0], &actions, nullptr, list.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  bool whole = false;
  const auto until = std::chrono::steady_clock::now() + limit;
  while (failed == 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd watched{ends[0], POLLIN, 0};
    if (left.count() <= 0 || ::poll(&watched, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, 4096> buffer;
    const ssize_t count = ::read(ends[0], buffer.data(), buffer.size());
    whole = count == 0;
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(ends[0]);
  if (failed != 0) return {};
  if (!whole) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (!whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return {};
  return text;
}

}  // namespace fathom::measure
