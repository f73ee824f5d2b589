// fathom serve: the HTTP server.
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "commands.h"
#include "failure.h"
#include "interrupt.h"
#include "model_options.h"
#include "output.h"
#include "server/serve.h"
#include "sizes.h"

namespace fathom::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  fathom serve -m DeepSeek-V4.1-Flash --ctx 128K --parallel 4\n"
    "  fathom serve --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem\n"
    "  fathom serve --cache-dir ~/.cache/fathom --cache-size 64GB\n\n"
    "The API: docs/serve.md. The first Ctrl-C lets answers finish; another one, a second later or more, ends at once.\n";

// Agents begin with prompts of tens of thousands of tokens.
constexpr int64_t kContextTokens = 128 << 10;

struct Options {
  ModelOptions model;
  ServeOptions serve;
  int port = 8080;
  int64_t body_bytes = int64_t{64} << 20;
  int64_t cache_ram_bytes = int64_t{1} << 30;
  std::string key_file, script_file, loop_guard = "observe", loop_reason = "length";
  double keep_alive_s = 5, time_limit_s = 0, grace_s = 30, step_target_ms = 50;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read {}", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// One key a line; empty lines and those that begin with # do not count.
std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) fail("{}: expected a key on a line of its own, found none", path);
  return keys;
}

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// What the command line says, in the server's terms.
ServeOptions serve_options(Options& options, int64_t context_tokens) {
  ServeOptions serve = options.serve;
  serve.http.port = static_cast<uint16_t>(options.port);
  serve.http.body_bytes_max = static_cast<size_t>(options.body_bytes);
  if (!options.key_file.empty()) {
    const std::vector<std::string> keys = read_keys(options.key_file);
    serve.service.api_keys.insert(serve.service.api_keys.end(), keys.begin(), keys.end());
  }
  if (!options.script_file.empty()) serve.script_json = read_file(options.script_file);
  GenerationDefaults& defaults = serve.service.defaults;
  defaults.time_limit = to_ms(options.time_limit_s);
  defaults.loop_guard.mode = options.loop_guard == "off"    ? LoopGuardMode::kOff
                             : options.loop_guard == "stop" ? LoopGuardMode::kStop
                                                            : LoopGuardMode::kObserve;
  serve.service.loop_finish_reason = options.loop_reason == "stop"     ? LoopFinishReason::kStop
                                     : options.loop_reason == "length" ? LoopFinishReason::kLength
                                                                       : LoopFinishReason::kContentFilter;
  serve.service.keep_alive_interval = to_ms(options.keep_alive_s);
  serve.scheduler.slots = options.model.sessions;
  serve.scheduler.context_tokens = context_tokens;
  serve.scheduler.cache_bytes = options.cache_ram_bytes;
  serve.scheduler.step_target_us = static_cast<int64_t>(options.step_target_ms * 1000);
  return serve;
}

int serve(Options& options) {
  catch_hangup();
  Progress progress;
  const Engine engine = open_engine(options.model, progress);
  fathom_engine_info info{};
  require(fathom_engine_get_info(engine.get(), &info));
  const int64_t context_tokens = options.model.context_tokens != 0
                                     ? options.model.context_tokens
                                     : std::min(kContextTokens, info.max_context_tokens);
  Result<std::unique_ptr<Server>> started = Server::start(*engine, serve_options(options, context_tokens));
  if (!started.ok()) fail("{}", started.error().message);
  const std::unique_ptr<Server> server = std::move(started).value();
  // On standard output and flushed at once: programs that start the server wait for this line.
  Output(STDOUT_FILENO).write(fmt::format("{} is served at {} ({} at once, {} tokens each)\n", info.model_name,
                                          server->address(), options.model.sessions, context_tokens));
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  remark("fathom: finishing\n");
  server->stop(to_ms(options.grace_s));
  return 0;
}

void add_http_options(CLI::App& app, Options& options) {
  HttpOptions& http = options.serve.http;
  app.add_option("--host", http.host, "Address to listen on (default: 127.0.0.1)");
  add_number(app, "--port", options.port, 0, 65535, "Port; 0: any free one (default: 8080)");
  app.add_option("--api-key", options.serve.service.api_keys, "Key that requests must carry; may be repeated");
  app.add_option("--api-key-file", options.key_file, "File with one key a line");
  app.add_flag("--allow-open", options.serve.allow_open, "Listen beyond this machine without a key");
  app.add_option("--tls-cert", http.tls_certificate_path, "Certificate chain (PEM)");
  app.add_option("--tls-key", http.tls_key_path, "Its private key (PEM)");
  app.add_option("--cors", http.cors_origins, "Origin whose pages may use the server, or *; may be repeated");
  add_amount(app, "--max-body", options.body_bytes, parse_bytes, "Largest request (default: 64MiB)");
  add_number(app, "--sse-ping-interval", options.keep_alive_s, 0.05, 3600,
             "Seconds after which a silent stream shows that it lives (default: 5)");
  add_number(app, "--grace", options.grace_s, 0, 86400,
             "Seconds that answers may take when the server ends (default: 30)");
}

void add_generation_options(CLI::App& app, Options& options) {
  GenerationDefaults& defaults = options.serve.service.defaults;
  add_number(app, "--parallel", options.model.sessions, 1, 64, "Requests that run at once (default: 4)");
  add_number(app, "--max-queue", options.serve.scheduler.queue_limit, 0, 100000,
             "Requests that may wait; more are refused with 429 (default: 64)");
  add_number(app, "--step-target", options.step_target_ms, 1, 60000,
             "Milliseconds a step may take while several requests share it (default: 50)");
  add_number(app, "--max-tokens", defaults.max_tokens, 1, 1e9,
             "Tokens of an answer whose request sets no limit (default: 32768)");
  add_number(app, "--request-timeout", options.time_limit_s, 0, 1e6,
             "Seconds a request may take; 0: any (default)");
  add_number(app, "--temp", defaults.temperature, 0, 100, "Default temperature (default: 1)");
  add_number(app, "--top-p", defaults.top_p, 1e-6, 1, "Default top_p (default: 0.95)");
  app.add_option("--loop-guard", options.loop_guard,
                 "Answers that go round in circles: off, observe (report, default) or stop")
      ->check(CLI::IsMember({"off", "observe", "stop"}));
  app.add_option("--loop-finish-reason", options.loop_reason,
                 "What finish_reason says of an answer ended for that: length (default), stop or content_filter")
      ->check(CLI::IsMember({"length", "stop", "content_filter"}));
  app.add_option("--served-name", options.serve.model_name, "Name of the model for clients (default: the pack's)");
  app.add_flag("!--keep-billing-header", options.serve.service.drops_billing_header,
               "Keep the line with a changing number that some clients put into the system text");
}

void add_cache_options(CLI::App& app, Options& options) {
  add_amount(app, "--cache-ram", options.cache_ram_bytes, parse_bytes,
             "Memory for the states of conversations (default: 1GiB)");
  app.add_option("--cache-dir", options.serve.cache_folder, "Folder for states that outlive the server");
  add_amount(app, "--cache-size", options.serve.cache_folder_bytes, parse_bytes,
             "What that folder may hold (default: 32GiB)");
  add_number(app, "--cache-min-tokens", options.serve.scheduler.disk_tokens_min, 1, 1e9,
             "States that would spare fewer tokens are not kept there (default: 1024)");
}

}  // namespace

Command add_serve(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("serve", "Serve the model over HTTP: OpenAI and Anthropic APIs, chat page");
  command->footer(kFooter);
  auto options = std::make_shared<Options>();
  options->model.sessions = 4;
  options->model.keeps_checkpoints = false;  // the scheduler has its own cache
  options->model.add_all(*command, "128K");
  add_http_options(*command, *options);
  add_generation_options(*command, *options);
  add_cache_options(*command, *options);
  command->add_option("--scripted", options->script_file)->group("");  // for tests of clients
  return {command, [options] { return serve(*options); }};
}

}  // namespace fathom::cli
