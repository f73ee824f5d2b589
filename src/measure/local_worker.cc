#include "measure/local_worker.h"

#include <memory>
#include <vector>

#include "measure/json_lines.h"
#include "measure/target.h"

namespace fathom::measure {
namespace {

using nlohmann::json;

constexpr std::chrono::hours kForever{24 * 365};

struct SessionFree {
  void operator()(fathom_session* session) const { fathom_session_free(session); }
};
using SessionPtr = std::unique_ptr<fathom_session, SessionFree>;

/// A failed call of the C API as an error of the request.
struct Failed {
  std::string message = fathom_last_error();
};

void require(fathom_status status) {
  if (status != FATHOM_OK) throw Failed{};
}

class Worker {
 public:
  Worker(fathom_engine* engine, SessionPtr session)
      : session_(std::move(session)), tokenizer_(fathom_engine_tokenizer(engine)) {
    fathom_engine_info info{};
    fathom_engine_get_info(engine, &info);
    vocab_size_ = info.vocab_size;
    for (int32_t id = 0; tokenizer_ != nullptr && id < vocab_size_; ++id)
      if (fathom_is_stop(tokenizer_, id)) stop_ids_.push_back(id);
    ready_ = {{"engine", std::string("fathom ") + fathom_version()},
              {"model", info.model_name},
              {"pack_path", info.model_path},
              {"details", fmt::format("{}, {} numerics, prefill {}", info.backend, info.numerics, info.ced)}};
  }

  const json& ready() const { return ready_; }

  json answer(const json& request) {
    try {
      if (request.contains("forget")) {
        fathom_session_invalidate(session_.get());
        return {{"forgotten", true}};
      }
      if (request.contains("next_logprobs")) return next_logprobs(request);
      return generate(request);
    } catch (const Failed& failed) {
      return {{"error", failed.message}};
    } catch (const json::exception& error) {
      return {{"error", error.what()}};
    }
  }

 private:
  json generate(const json& request) {
    const std::vector<int32_t> prompt = prompt_of(request);
    const auto max_tokens = request.at("max_tokens").get<size_t>();
    const bool ignore_eos = request.at("ignore_eos").get<bool>();
    fathom_sampling sampling;
    fathom_sampling_init(&sampling);
    sampling.temperature = request.at("temperature").get<float>();
    sampling.seed = request.at("seed").get<uint64_t>();
    std::vector<fathom_logit_bias> bans;
    for (const int32_t id : stop_ids_) bans.push_back({id, -100});
    if (ignore_eos) {
      sampling.bias = bans.data();
      sampling.bias_count = bans.size();
    }

    std::vector<int32_t> ids;
    std::vector<int64_t> token_ns;
    ids.reserve(max_tokens);
    token_ns.reserve(max_tokens);
    const char* finish_reason = "length";
    fathom_sync_result synced{};
    const int64_t sent_ns = monotonic_ns();
    require(fathom_sync(session_.get(), prompt.data(), prompt.size(), &synced));
    const int64_t prefill_end_ns = monotonic_ns();
    while (ids.size() < max_tokens) {
      int32_t id = 0;
      require(fathom_sample(session_.get(), &sampling, &id));
      if (!ignore_eos && tokenizer_ != nullptr && fathom_is_stop(tokenizer_, id)) {
        finish_reason = "stop";
        break;
      }
      ids.push_back(id);
      token_ns.push_back(monotonic_ns());
      // The last one is chosen but never evaluated, as everywhere.
      if (ids.size() < max_tokens) require(fathom_eval(session_.get(), id));
    }
    return {{"sent_ns", sent_ns},
            {"prefill_end_ns", prefill_end_ns},
            {"ended_ns", monotonic_ns()},
            {"token_ns", token_ns},
            {"ids", ids},
            {"text", text_of(ids)},
            {"finish_reason", finish_reason},
            {"prompt_tokens", prompt.size()},
            {"cached_tokens", synced.reused_tokens}};
  }

  json next_logprobs(const json& request) {
    const auto ids = request.at("next_logprobs").get<std::vector<int32_t>>();
    require(fathom_sync(session_.get(), ids.data(), ids.size(), nullptr));
    size_t count = request.at("count").get<size_t>();
    std::vector<fathom_logprob> best(count);
    require(fathom_top_logprobs(session_.get(), best.data(), &count));
    json list = json::array();
    for (size_t rank = 0; rank < count; ++rank) list.push_back({best[rank].id, best[rank].logprob});
    return {{"logprobs", list}};
  }

  std::vector<int32_t> prompt_of(const json& request) const {
    if (request.contains("ids")) return request.at("ids").get<std::vector<int32_t>>();
    if (tokenizer_ == nullptr) throw Failed{"the pack has no tokenizer, so it takes ids only"};
    const auto text = request.at("text").get<std::string>();
    if (request.at("is_chat").get<bool>()) {
      const json message = {{"role", "user"}, {"content", text}};
      const json conversation = {{"messages", json::array({message})}, {"thinking", false}};
      fathom_prompt prompt{};
      require(fathom_chat_render(tokenizer_, conversation.dump().c_str(), &prompt));
      std::vector<int32_t> ids(prompt.ids, prompt.ids + prompt.count);
      fathom_prompt_free(&prompt);
      return ids;
    }
    int32_t* ids = nullptr;
    size_t count = 0;
    require(fathom_tokenize(tokenizer_, text.data(), text.size(), false, &ids, &count));
    std::vector<int32_t> result(ids, ids + count);
    fathom_free(ids);
    return result;
  }

  std::string text_of(const std::vector<int32_t>& ids) const {
    std::string text;
    for (const int32_t id : ids) {
      size_t bytes = 0;
      const char* piece = tokenizer_ == nullptr ? nullptr : fathom_token_bytes(tokenizer_, id, &bytes);
      if (piece != nullptr) text.append(piece, bytes);
    }
    return text;
  }

  SessionPtr session_;
  const fathom_tokenizer* tokenizer_;
  int32_t vocab_size_ = 0;
  std::vector<int32_t> stop_ids_;
  json ready_;
};

}  // namespace

void refuse_local_target(const char* why, int descriptor) {
  // Nobody else is there to be told.
  if (!JsonLines(descriptor).write({{"error", why}}).ok()) return;
}

bool serve_local_target(fathom_engine* engine, int64_t context_tokens, int descriptor) {
  JsonLines lines(descriptor);
  fathom_session* session = nullptr;
  if (fathom_session_create(engine, context_tokens, &session) != FATHOM_OK) {
    refuse_local_target(fathom_last_error(), descriptor);
    return true;
  }
  Worker worker(engine, SessionPtr(session));
  if (!lines.write({{"ready", worker.ready()}}).ok()) return false;
  for (;;) {
    Result<std::optional<json>> request = lines.read(kForever);
    if (!request.ok()) return false;
    if (!request->has_value()) return true;
    if (!lines.write(worker.answer(**request)).ok()) return false;
  }
}

}  // namespace fathom::measure
