#include "interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

#include "failure.h"

namespace fathom::cli {
namespace {

volatile sig_atomic_t g_interrupted = 0;
volatile int64_t g_first_ms = 0;

int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

void on_signal(int /*number*/) {
  if (g_interrupted == 0) {
    g_first_ms = now_ms();
  } else if (now_ms() - g_first_ms >= 1000) {
    _exit(kExitInterrupted);
  }
  g_interrupted = 1;
}

/// Weights are mapped: when their file gets shorter or its disk fails, touching them raises this signal.
void on_lost_page(int /*number*/) {
  constexpr char kMessage[] =
      "fathom: cannot read the weights any more: a file of the pack became shorter, or its disk failed\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(kExitFailure);
}

}  // namespace

void catch_signals() {
  // Without SA_RESTART a read from the keyboard returns, so that the prompt notices too.
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction lost = {};
  lost.sa_handler = on_lost_page;
  sigaction(SIGBUS, &lost, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  sigaction(SIGXFSZ, &ignore, nullptr);  // a limit on the size of files: write() says EFBIG
}

void catch_hangup() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }
void clear_interrupt() { g_interrupted = 0; }

}  // namespace fathom::cli
