// A target without a clock: its times are made up, so tests know every figure to the last digit.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "measure/protocol.h"
#include "measure/target.h"

namespace fathom::measure {

enum class Keeps : uint8_t { kEverything, kPrompts, kNothing };

/// Prefill 1 ms a token, generation 10 ms a token; the next id is (3 * last + position) % 1000. What it keeps
/// between requests is told as cached tokens unless `is_silent`.
class ScriptedTarget : public Target {
 public:
  struct Behaviour {
    Keeps keeps = Keeps::kEverything;
    bool is_http = true, has_ids = true, is_silent = false, can_clear = true;
    std::function<void(Generation&, int request)>
        spoil;  // changes what is seen; requests count from 0, greetings too
    std::string start_error;
    std::string engine = "scripted 1";
    int32_t offset = 0;  // added to ids: another model
  };

  struct Journal {
    std::vector<std::vector<int32_t>> prompts;  // of all requests
    std::vector<std::string> texts;
    int starts = 0, stops = 0, requests = 0;
  };

  ScriptedTarget(Behaviour behaviour, Journal& journal) : behaviour_(std::move(behaviour)), journal_(journal) {}

  Result<TargetInfo> start() override {
    ++journal_.starts;
    kept_.clear();
    if (!behaviour_.start_error.empty()) return Error::io("{}", behaviour_.start_error);
    TargetInfo info;
    info.engine = behaviour_.engine;
    info.driver = "scripted";
    info.is_http = behaviour_.is_http;
    info.takes_ids = info.gives_ids = behaviour_.has_ids;
    info.gives_logprobs = true;
    info.continues_exactly = behaviour_.keeps == Keeps::kEverything;
    return info;
  }
  void stop() override { ++journal_.stops; }
  bool clear_state() override {
    if (behaviour_.can_clear) kept_.clear();
    return behaviour_.can_clear;
  }

  Generation generate(const GenerateRequest& request) override {
    journal_.prompts.push_back(request.prompt_ids);
    journal_.texts.push_back(request.prompt_text);
    std::vector<int32_t> ids = request.prompt_ids;
    if (ids.empty()) ids.assign(request.prompt_text.begin(), request.prompt_text.end());  // a byte a token
    const auto common = std::mismatch(ids.begin(), ids.end(), kept_.begin(), kept_.end()).first - ids.begin();
    const auto prompt_tokens = static_cast<int64_t>(ids.size());
    const int64_t cached = std::min<int64_t>(common, prompt_tokens - 1);

    Generation seen;
    seen.sent_ns = 1'000'000'000;
    int64_t now_ns = seen.sent_ns + (prompt_tokens - cached) * 1'000'000;
    for (int32_t token = 0; token < request.max_tokens; ++token) {
      const int32_t id = (3 * ids.back() + static_cast<int32_t>(ids.size()) + behaviour_.offset) % 1000;
      ids.push_back(id);
      seen.ids.push_back(id);
      seen.text += static_cast<char>('a' + id % 26);
      seen.token_ns.push_back(now_ns);
      now_ns += 10'000'000;
    }
    seen.ended_ns = now_ns;
    seen.finish_reason = "length";
    seen.claimed_prompt_tokens = prompt_tokens;
    seen.claimed_output_tokens = request.max_tokens;
    if (!behaviour_.is_silent) seen.claimed_cached_tokens = cached;
    if (!behaviour_.has_ids) seen.ids.clear();
    keep(ids, prompt_tokens);
    if (behaviour_.spoil) behaviour_.spoil(seen, journal_.requests);
    ++journal_.requests;
    return seen;
  }

  Result<std::vector<TokenLogprob>> next_logprobs(const std::vector<int32_t>& ids, int32_t count) override {
    journal_.prompts.push_back(ids);
    const int32_t id = (3 * ids.back() + static_cast<int32_t>(ids.size())) % 1000;
    std::vector<TokenLogprob> best = {{id, -0.25}, {(id + 7) % 1000, -0.5}};
    best.resize(static_cast<size_t>(std::min(count, 2)));
    return best;
  }
  ProcessUsage usage() override { return {}; }

 private:
  void keep(std::vector<int32_t> ids, int64_t prompt_tokens) {
    ids.pop_back();  // chosen, never evaluated
    if (behaviour_.keeps == Keeps::kPrompts) ids.resize(static_cast<size_t>(prompt_tokens) - 1);
    if (behaviour_.keeps == Keeps::kNothing) ids.clear();
    kept_ = std::move(ids);
  }

  Behaviour behaviour_;
  Journal& journal_;
  std::vector<int32_t> kept_;
};

/// Sees what it is told to see.
class ScriptedObserver final : public Observer {
 public:
  SystemUsage usage() override { return {}; }
  void begin() override { ++stages; }
  Observation end() override {
    const bool is_disturbed =
        std::find(disturbed_stages.begin(), disturbed_stages.end(), stages) != disturbed_stages.end();
    return {is_disturbed, {is_disturbed ? "another program took 50 %" : "another program took 1 %"}};
  }

  int stages = 0;                     // from 1
  std::vector<int> disturbed_stages;
};

/// A text of `tokens` letters, a token each, behind one that stands for BOS.
inline SourceText scripted_source(const std::string& name, int64_t tokens) {
  SourceText source;
  source.source = {name, "hash of " + name, tokens};
  for (int64_t token = 0; token < tokens; ++token) {
    source.ids.push_back(token == 0 ? 0 : static_cast<int32_t>(100 + (token * 7) % 800));
    if (token > 0) source.text += static_cast<char>('A' + token % 26);
    source.text_ends.push_back(source.text.size());
  }
  return source;
}

}  // namespace fathom::measure
