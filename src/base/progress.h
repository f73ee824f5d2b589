// Progress of long work, told to whoever asked for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace fathom {

struct Progress {
  std::string_view stage;  // "checking", "prefill", ...
  std::string_view unit;   // "bytes", "tokens", ...
  int64_t done = 0;
  int64_t total = 0;
};

/// Called from the thread that does the work. Returning false asks for cancellation; the call then
/// ends with ErrorCode::kCancelled.
using ProgressFn = std::function<bool(const Progress&)>;

}  // namespace fathom
