// Server-sent events (WHATWG HTML, section 9.2) out of bytes that come in any pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom::measure {

struct ServerEvent {
  int64_t arrived_ns = 0;  // of the bytes that completed it
  std::string name;        // of its "event:" line; empty: none
  std::string data;        // its "data:" lines, joined by line feeds
};

class SseParser {
 public:
  using Handler = std::function<void(ServerEvent&&)>;

  explicit SseParser(size_t event_bytes_max) : event_bytes_max_(event_bytes_max) {}

  /// Events without data are dropped, comments too. After an error nothing more can be fed.
  Result<void> feed(std::string_view bytes, int64_t arrived_ns, const Handler& on_event);
  /// Whether an event has begun and not ended.
  bool is_inside_event() const { return !line_.empty() || has_data_; }

 private:
  Result<void> end_line(int64_t arrived_ns, const Handler& on_event);

  size_t event_bytes_max_;
  std::string line_, name_, data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed that follows belongs to the carriage return
  bool is_first_line_ = true;  // may begin with a byte order mark
};

/// Offset of the first byte that is no part of a UTF-8 character; npos: there is none.
size_t invalid_utf8_offset(std::string_view text);

}  // namespace fathom::measure
