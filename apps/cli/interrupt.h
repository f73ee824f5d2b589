// Ctrl-C as a flag that work looks at between its steps.
#pragma once

namespace fathom::cli {

/// From now on SIGINT and SIGTERM set the flag. Another one before clear_interrupt(), a second later or more,
/// ends the program at once: a step can be long, and whoever asks again means it. A quick double press does
/// not, or it would cost a conversation. SIGPIPE is ignored: writes say EPIPE instead. SIGBUS, a mapped pack
/// that shrinks under the program, ends with a line that says so.
void catch_signals();
/// SIGHUP, too, sets the flag: a terminal that closes ends a server in good order.
void catch_hangup();
bool interrupted();
void clear_interrupt();

}  // namespace fathom::cli
