#include "measure/json_lines.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace fathom::measure {

Result<void> JsonLines::write(const nlohmann::json& value) {
  const std::string line = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t bytes = send(descriptor_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return Error::io("writing to the other process: {}", std::strerror(errno));
    sent += static_cast<size_t>(bytes);
  }
  return {};
}

Result<std::optional<nlohmann::json>> JsonLines::read(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  size_t searched = 0;
  for (;;) {
    if (const size_t end = pending_.find('\n', searched); end != pending_.npos) {
      nlohmann::json value =
          nlohmann::json::parse(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(end), nullptr,
                                /*allow_exceptions=*/false);
      pending_.erase(0, end + 1);
      if (value.is_discarded())
        return Error::io("expected a line of JSON from the other process, found something else");
      return std::optional(std::move(value));
    }
    searched = pending_.size();
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{descriptor_, POLLIN, 0};
    const int events =
        left.count() > 0 ? poll(&ready, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000))) : 0;
    if (events < 0 && errno == EINTR) return Error::cancelled("interrupted by a signal");
    if (events < 0) return Error::io("waiting for the other process: {}", std::strerror(errno));
    if (events == 0 && std::chrono::steady_clock::now() >= deadline)
      return Error::busy("no answer within {} s", limit.count() / 1000);
    if (events == 0) continue;
    char buffer[65536];
    const ssize_t bytes = ::read(descriptor_, buffer, sizeof buffer);
    if (bytes < 0 && errno != EINTR) return Error::io("reading from the other process: {}", std::strerror(errno));
    if (bytes == 0) return std::optional<nlohmann::json>();
    if (bytes > 0) pending_.append(buffer, static_cast<size_t>(bytes));
  }
}

}  // namespace fathom::measure
