// Checks for what only our own mistake can cause. They stop the program; anything a file, a device
// or a user can cause is returned as a Result instead (base/result.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace fathom::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}  // namespace fathom::detail

#define FATHOM_CHECK(condition, ...)                                            \
  do {                                                                          \
    if (!(condition)) [[unlikely]]                                              \
      ::fathom::detail::check_failed(__FILE__, __LINE__, #condition,            \
                                     ::fmt::format("" __VA_ARGS__));            \
  } while (false)
