// Ctrl-C as a flag that work looks at between its steps.
#pragma once

namespace fathom::cli {

/// From now on SIGINT and SIGTERM set the flag. A second signal before clear_interrupt() ends the program at
/// once: a step can be long, and whoever asks twice means it. SIGPIPE is ignored: writes say EPIPE instead.
void catch_signals();
bool interrupted();
void clear_interrupt();

}  // namespace fathom::cli
