#include "measure/sse_parser.h"

#include <algorithm>
#include <utility>

namespace fathom::measure {

Result<void> SseParser::feed(std::string_view bytes, int64_t arrived_ns, const Handler& on_event) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + data_.size() > event_bytes_max_)
      return Error::io("event too large: expected at most {} bytes, found more", event_bytes_max_);
    if (end == std::string_view::npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    FATHOM_TRY(end_line(arrived_ns, on_event));
  }
  return {};
}

Result<void> SseParser::end_line(int64_t arrived_ns, const Handler& on_event) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  std::string whole = std::exchange(line_, {});
  std::string_view line = whole;
  if (std::exchange(is_first_line_, false) && line.starts_with(kMark)) line.remove_prefix(kMark.size());
  if (line.empty()) {
    ServerEvent event{arrived_ns, std::exchange(name_, {}), std::exchange(data_, {})};
    if (!std::exchange(has_data_, false)) return {};
    if (const size_t offset = invalid_utf8_offset(event.data); offset != std::string_view::npos)
      return Error::io("invalid UTF-8 in an event: byte 0x{:02x} at offset {} of {}",
                       static_cast<uint8_t>(event.data[offset]), offset, event.data.size());
    on_event(std::move(event));
    return {};
  }
  const size_t colon = std::min(line.find(':'), line.size());
  const std::string_view field = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") {
    name_ = value;
  } else if (field == "data") {
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
  return {};
}

size_t invalid_utf8_offset(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t offset) { return static_cast<uint8_t>(text[offset]); };
    const uint8_t lead = byte(at);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const size_t length = lead < 0xC2 || lead > 0xF4 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (length == 0 || at + length > text.size()) return at;
    // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
    const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(at + 1) < least || byte(at + 1) > most) return at;
    for (size_t next = at + 2; next < at + length; ++next)
      if ((byte(next) & 0xC0) != 0x80) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace fathom::measure
