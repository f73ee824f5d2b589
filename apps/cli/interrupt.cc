#include "interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "failure.h"

namespace fathom::cli {
namespace {

volatile sig_atomic_t g_interrupted = 0;

void on_signal(int /*number*/) {
  if (g_interrupted != 0) _exit(kExitInterrupted);
  g_interrupted = 1;
}

}  // namespace

void catch_signals() {
  // Without SA_RESTART a read from the keyboard returns, so that the prompt notices too.
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

bool interrupted() { return g_interrupted != 0; }
void clear_interrupt() { g_interrupted = 0; }

}  // namespace fathom::cli
