// Log lines go to one hook. The library itself never prints: without a hook, lines are dropped.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>

namespace fathom {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
using LogSink = std::function<void(LogLevel, std::string_view line)>;

/// Replaces the hook. Call before other threads use the library, or with no work in flight.
void set_log_sink(LogSink sink);
void log_line(LogLevel level, std::string_view line);

template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace fathom
