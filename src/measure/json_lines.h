// JSON values over a socket, a line each.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <optional>
#include <string>

#include "base/result.h"

namespace fathom::measure {

/// Borrows the descriptor; used by one thread.
class JsonLines {
 public:
  explicit JsonLines(int descriptor) : descriptor_(descriptor) {}
  Result<void> write(const nlohmann::json& value);
  /// Empty: the other side closed. kBusy: nothing whole came within the limit. kCancelled: a signal came.
  Result<std::optional<nlohmann::json>> read(std::chrono::milliseconds limit);

 private:
  int descriptor_;
  std::string pending_;
};

}  // namespace fathom::measure
