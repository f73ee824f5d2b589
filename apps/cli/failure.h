// How a command gives up: one exception, caught in main(), which prints one line and returns the exit code.
#pragma once

#include <fmt/format.h>

#include <string>

#include "fathom/fathom.h"

namespace fathom::cli {

constexpr int kExitFailure = 1;     // the work could not be done
constexpr int kExitUsage = 2;       // the command line is wrong
constexpr int kExitDoesNotFit = 3;  // `fathom plan`: the answer is no
constexpr int kExitInterrupted = 130;
constexpr int kExitOutputClosed = 141;  // as a shell reports SIGPIPE

struct Failure {
  int exit_code = kExitFailure;
  std::string message;  // empty: nothing more to say
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Failure{kExitFailure, fmt::format(text, std::forward<Args>(args)...)};
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> text, Args&&... args) {
  throw Failure{kExitUsage, fmt::format(text, std::forward<Args>(args)...)};
}

/// Throws the library's own message unless the status is FATHOM_OK.
void require(fathom_status status);

}  // namespace fathom::cli
