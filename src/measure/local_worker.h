// The inside of a local target: a process that does nothing but evaluate what it is told.
#pragma once

#include <cstdint>

#include "fathom/fathom.h"

namespace fathom::measure {

/// Answers requests of a LocalTarget, JSON lines on the socket `descriptor`, with one session of
/// `context_tokens` until the other side closes. Times are taken here, around the engine's calls: nothing of
/// the way between the processes is in them. False: the socket failed.
bool serve_local_target(fathom_engine* engine, int64_t context_tokens, int descriptor);

/// Tells the other side why there will be no engine.
void refuse_local_target(const char* why, int descriptor);

}  // namespace fathom::measure
