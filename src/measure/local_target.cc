#include "measure/local_target.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "measure/json_lines.h"
#include "measure/process_files.h"

namespace fathom::measure {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kForgetLimit{60};

/// The worker, its end of the socket, and what it wrote to standard error.
class WorkerProcess {
 public:
  WorkerProcess() = default;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess() { stop(); }

  Result<void> start(const std::vector<std::string>& command) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return Error::io("a socket for the measured process: {}", std::strerror(errno));
    errors_ = memfd_create("fathom-bench-worker", MFD_CLOEXEC);
    // Everything that allocates happens before the fork.
    std::vector<std::string> words = command;
    words.push_back(fmt::format("{}", ends[1]));
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setpgid(0, 0);
      fcntl(ends[1], F_SETFD, 0);
      if (errors_ >= 0) dup2(errors_, STDERR_FILENO);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
    // Here too: the child may not have come so far when it is to be ended.
    if (process_ > 0) setpgid(process_, process_);
    if (process_ < 0) return Error::io("{}: cannot be started: {}", command.front(), std::strerror(errno));
    lines_.emplace(socket_);
    return {};
  }

  void stop() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
    lines_.reset();
    if (process_ > 0) {
      // It ends when its socket closes; a step that is still running is not waited for.
      kill(-process_, SIGKILL);
      wait_for_end();
    }
    process_ = -1;
    if (errors_ >= 0) close(errors_);
    errors_ = -1;
  }

  /// The answer, or why there is none.
  Result<json> ask(const json& request, std::chrono::seconds limit) {
    if (!lines_) return Error::state("the measured process does not run");
    if (!request.is_null())
      if (const Result<void> sent = lines_->write(request); !sent.ok()) return ended();
    Result<std::optional<json>> answer = lines_->read(limit);
    if (!answer.ok()) return std::move(answer).error();
    if (!answer->has_value()) return ended();
    if (const auto error = (**answer).find("error"); error != (**answer).end())
      return Error::state("{}", error->is_string() ? error->get<std::string>() : error->dump());
    return std::move(**answer);
  }

 private:
  int wait_for_end() const {
    int status = 0;
    while (process_ > 0 && waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  Error ended() {
    const int status = wait_for_end();
    process_ = -1;
    const std::string how = WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                                : fmt::format("exit code {}", WEXITSTATUS(status));
    return Error::state("the measured process ended with {}{}", how, last_words());
  }

  std::string last_words() const {
    char text[2048];
    const off_t size = errors_ < 0 ? 0 : lseek(errors_, 0, SEEK_END);
    const off_t from = std::max<off_t>(0, size - static_cast<off_t>(sizeof text));
    const ssize_t bytes = size <= 0 ? 0 : pread(errors_, text, sizeof text, from);
    std::string words(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
    while (!words.empty() && words.back() == '\n') words.pop_back();
    return words.empty() ? "" : ": " + words.substr(words.rfind('\n') + 1);
  }

  pid_t process_ = -1;
  int socket_ = -1, errors_ = -1;
  std::optional<JsonLines> lines_;
};

class LocalTarget final : public Target {
 public:
  explicit LocalTarget(LocalTargetOptions options) : options_(std::move(options)) {}

  Result<TargetInfo> start() override {
    stop();
    process_.emplace();
    FATHOM_TRY(process_->start(options_.command));
    FATHOM_ASSIGN(const json answer, process_->ask(json(), options_.load_limit));
    TargetInfo info;
    try {
      const json& ready = answer.at("ready");
      info.engine = ready.at("engine");
      info.model = ready.at("model");
      info.pack_path = ready.at("pack_path");
      info.details = ready.at("details");
    } catch (const json::exception& error) {
      return Error::internal("the measured process answered something else: {}", error.what());
    }
    info.driver = "local";
    info.gives_logprobs = true;
    return info;
  }

  void stop() override { process_.reset(); }

  bool clear_state() override { return process_ && process_->ask({{"forget", true}}, kForgetLimit).ok(); }

  Generation generate(const GenerateRequest& request) override {
    json asked = {{"max_tokens", request.max_tokens},
                  {"ignore_eos", request.ignore_eos},
                  {"temperature", request.temperature},
                  {"seed", request.seed},
                  {"is_chat", request.is_chat}};
    if (request.prompt_ids.empty()) asked["text"] = request.prompt_text;
    else asked["ids"] = request.prompt_ids;
    Generation seen;
    seen.sent_ns = monotonic_ns();
    const Result<json> answer = process_ ? process_->ask(asked, request.time_limit)
                                         : Result<json>(Error::state("the target does not run"));
    seen.ended_ns = monotonic_ns();
    if (!answer.ok()) {
      seen.error = answer.error().message;
      // A late answer must not be taken for that of the next request.
      stop();
      return seen;
    }
    read_generation(*answer, seen);
    return seen;
  }

  Result<std::vector<TokenLogprob>> next_logprobs(const std::vector<int32_t>& ids, int32_t count) override {
    if (!process_) return Error::state("the target does not run");
    FATHOM_ASSIGN(const json answer,
                  process_->ask({{"next_logprobs", ids}, {"count", count}}, options_.load_limit));
    std::vector<TokenLogprob> result;
    try {
      for (const json& pair : answer.at("logprobs")) result.push_back({pair.at(0), pair.at(1)});
    } catch (const json::exception& error) {
      return Error::internal("the measured process answered something else: {}", error.what());
    }
    return result;
  }

  /// The worker is the only process below this one.
  ProcessUsage usage() override { return process_ ? usage_below("/proc", getpid()) : ProcessUsage{}; }

 private:
  static void read_generation(const json& answer, Generation& seen) {
    try {
      seen.sent_ns = answer.at("sent_ns");
      seen.ended_ns = answer.at("ended_ns");
      seen.prefill_end_ns = answer.at("prefill_end_ns").get<int64_t>();
      answer.at("token_ns").get_to(seen.token_ns);
      answer.at("ids").get_to(seen.ids);
      answer.at("text").get_to(seen.text);
      answer.at("finish_reason").get_to(seen.finish_reason);
      seen.claimed_prompt_tokens = answer.at("prompt_tokens").get<int64_t>();
      seen.claimed_cached_tokens = answer.at("cached_tokens").get<int64_t>();
      seen.claimed_output_tokens = static_cast<int64_t>(seen.ids.size());
    } catch (const json::exception& error) {
      seen.error = fmt::format("the measured process answered something else: {}", error.what());
    }
  }

  LocalTargetOptions options_;
  std::optional<WorkerProcess> process_;
};

}  // namespace

std::unique_ptr<Target> make_local_target(LocalTargetOptions options) {
  return std::make_unique<LocalTarget>(std::move(options));
}

}  // namespace fathom::measure
