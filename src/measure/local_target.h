// This engine in a process of its own, measured from the inside: the variant "session".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "measure/target.h"

namespace fathom::measure {

struct LocalTargetOptions {
  /// Program and arguments of a process that calls serve_local_target(); the socket's number is appended.
  std::vector<std::string> command;
  std::chrono::seconds load_limit{3600};
};

std::unique_ptr<Target> make_local_target(LocalTargetOptions options);

}  // namespace fathom::measure
