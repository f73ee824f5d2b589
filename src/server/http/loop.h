// The thread that serves all connections, as others see it: a queue of functions. It outlives the server as long
// as somebody holds an exchange.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "server/http/asio.h"

namespace fathom {

class HttpLoop {
 public:
  asio::io_context& io() { return io_; }
  HttpExecutor executor() { return io_.get_executor(); }

  /// Any thread. Runs `function` on the loop's thread, or never: after close() nobody is there to run it.
  template <class Function>
  void post(Function function) {
    std::lock_guard lock(mutex_);
    if (work_) asio::post(io_, std::move(function));
  }

  /// Until close() was called and nothing is left to do.
  void run() { io_.run(); }
  void close() {
    std::lock_guard lock(mutex_);
    work_.reset();
  }

 private:
  asio::io_context io_{1};
  std::mutex mutex_;
  std::optional<asio::executor_work_guard<HttpExecutor>> work_{io_.get_executor()};
};

}  // namespace fathom
