// A server as a target: started here or already running, spoken to as its driver says.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/child_process.h"
#include "measure/driver.h"
#include "measure/http_client.h"
#include "measure/target.h"

namespace fathom::measure {

struct HttpTargetOptions {
  std::string driver_name;  // as the user named it
  Driver driver;
  std::string command;      // starts the server; "{port}" becomes a free port. Empty: it runs already
  std::string address;      // needed without "{port}" in a command; with it, the free port takes its port's place
  std::string key, model;   // empty model: the server is asked
  std::string pack_path;
  std::string log_path;     // of the server that is started
  std::function<bool()> is_cancelled;  // ends whatever is waited for; empty: never
  std::chrono::milliseconds ready_limit{std::chrono::minutes(60)};
  std::chrono::milliseconds grace{std::chrono::seconds(30)};
};

/// Tokens that one event brings share its time. Without ids each event with text counts as one entry of
/// `token_ns`, and how many tokens there were is the server's claim.
class HttpTarget final : public Target {
 public:
  explicit HttpTarget(HttpTargetOptions options) : options_(std::move(options)) {}
  ~HttpTarget() override { stop(); }

  Result<TargetInfo> start() override;
  void stop() override;
  bool clear_state() override;
  Generation generate(const GenerateRequest& request) override;
  Result<std::vector<TokenLogprob>> next_logprobs(const std::vector<int32_t>& ids, int32_t count) override;
  ProcessUsage usage() override;

  /// By the server's own tokenizer.
  Result<std::vector<int32_t>> tokenize(const std::string& text);

 private:
  Result<void> launch();
  Result<void> check_nobody_answers() const;
  Result<nlohmann::json> ask(const std::string& path, const nlohmann::json& body);
  std::string probe(const std::optional<Probe>& probe);
  Result<nlohmann::json> body_of(const Endpoint& endpoint, const GenerateRequest& request, bool with_ids);
  void add_ending(std::string& error);

  HttpTargetOptions options_;
  std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<HttpClient> client_;
  std::string address_, model_;
  nlohmann::json next_request_;  // members for the next one
  bool is_flooded_ = false;      // more events came than any answer of the wanted length has
};

/// What the events of one answer say. `sent_ids`: null if text was sent.
Generation read_answer(const StreamShape& shape, bool gives_ids, const std::vector<ServerEvent>& events,
                       const StreamEnd& end, const std::vector<int32_t>* sent_ids);

}  // namespace fathom::measure
