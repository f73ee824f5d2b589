// A server with everything in it: a generator, the API, HTTP. What `fathom serve` runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/scheduler.h"
#include "fathom/fathom.h"
#include "server/http/http_server.h"
#include "server/service.h"

namespace fathom {

struct ServeOptions {
  HttpOptions http;
  ServiceOptions service;
  SchedulerOptions scheduler;
  std::string cache_folder;          // of states that outlive the process; empty: none
  int64_t cache_folder_bytes = int64_t{32} << 30;
  std::string model_name;            // as clients see it; empty: the pack's
  bool allow_open = false;           // listening beyond this machine without keys
  std::string script_json;           // plays a script instead of running the model; for tests of clients
};

/// Answers requests from start() to stop(). Members may be called by one thread.
class Server {
 public:
  /// The engine must live longer, and nobody else may run it. kInvalidArgument: options that contradict each
  /// other, among them an open bind without keys; else as HttpServer::start() and Scheduler::make().
  static Result<std::unique_ptr<Server>> start(fathom_engine& engine, ServeOptions options);
  /// stop() without patience.
  ~Server();

  uint16_t port() const;
  /// "http://127.0.0.1:8080"
  std::string address() const;
  Service& service();
  /// Takes no more requests, lets running ones finish for `patience`, then ends them, and says so to their
  /// clients.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Whether only programs on this machine can reach the address.
bool is_loopback(std::string_view host);

}  // namespace fathom
